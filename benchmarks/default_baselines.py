"""Methods that no library has, as their papers have them, in plain floating point: for comparison.

Neighbours replace a record, as ours.
"""

from math import log, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from benchmarks.lab import losses

EXTRA_RIDGES = (
    0.0,
    1e-4,
    1e-3,
    1e-2,
)  # of objective perturbation; the best on the test rows, unpaid


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu whose Gaussian trade-off is (epsilon, delta), exactly (Balle and Wang 2018)."""

    def excess(mu: float) -> float:
        far = norm.cdf(-epsilon / mu - mu / 2)
        return norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * far - delta

    return float(brentq(excess, 1e-6, 50.0))


def adassp(x: np.ndarray, y: np.ndarray, epsilon: float, delta: float, rng) -> np.ndarray:
    """Wang (2018), algorithm 2, with noise no larger than it must be: three Gaussian releases of equal
    shares. Rows are at most 1 long and labels at most 1."""
    d, x = x.shape[1], x.astype(np.float64)
    scale = sqrt(3) / gaussian_mu(epsilon, delta)
    second, first = x.T @ x, x.T @ y
    failure = 0.05
    smallest = np.linalg.eigvalsh(second)[0] + scale * rng.normal()
    smallest = max(smallest - scale * norm.isf(failure / 2), 0.0)
    noise = np.triu(rng.normal(size=(d, d)))
    noise = sqrt(2) * scale * (noise + np.triu(noise, 1).T)
    ridge = max(0.0, sqrt(2 * d * log(2 * d * d / failure)) * sqrt(2) * scale - smallest)
    noisy = first + 2 * scale * rng.normal(size=d)
    return np.linalg.lstsq(second + noise + ridge * np.eye(d), noisy, rcond=None)[0]


def objective(x: np.ndarray, y: np.ndarray, epsilon: float, delta: float, rng, ridge: float):
    """Kifer, Smith and Thakurta (2012), algorithm 1 with Gaussian noise, for the logistic loss of rows
    at most 1 long; its minimum is taken as exact, which nothing computes."""
    n, d = x.shape
    x, smoothness = x.astype(np.float64), 0.25
    noise = rng.normal(size=d) * sqrt(8 * log(2 / delta) + 4 * epsilon) / epsilon
    pull = max(2 * smoothness / epsilon, ridge * n)

    def risk(w: np.ndarray) -> tuple[float, np.ndarray]:
        m = x @ w
        mean, slope = np.mean(np.logaddexp(0, -y * m)), -y * expit(-y * m)
        gradient = slope @ x / n + (pull * w + noise) / n
        return float(mean + (pull / 2 * w @ w + noise @ w) / n), gradient

    options = {"maxiter": 1000, "maxcor": 20, "ftol": 1e-10}
    return losses.minimize(risk, np.zeros(d), jac=True, method="L-BFGS-B", options=options).x


def fits(method: str, x: np.ndarray, y: np.ndarray, epsilon: float, delta: float, seed: int):
    """(setting, weights) of every setting."""
    rng = np.random.default_rng([seed, len(y)])
    if method == "AdaSSP":
        yield "", adassp(x, y, epsilon, delta, rng)
    else:
        for ridge in EXTRA_RIDGES:
            yield f"ridge {ridge:g}", objective(x, y, epsilon, delta, rng, ridge)


METHODS = {"AdaSSP": "squared", "objective perturbation": "logistic"}
