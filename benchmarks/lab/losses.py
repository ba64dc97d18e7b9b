"""Losses in plain numpy: their means on held-out rows, and their least value without privacy."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from scipy.stats import rankdata

from service.planning.loss import BaseLoss

RIDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)  # of fits without privacy; the best on held-out rows is kept
CORNER = 1e-3  # a corner is rounded off within this, for L-BFGS alone

Slopes = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def of_margins(loss: BaseLoss, corner: float = 0.0) -> Slopes:
    """(margins, labels) -> (losses, slopes)."""
    kind = loss.kind
    if kind == "logistic":
        return lambda m, y: (np.logaddexp(0, -y * m), -y * expit(-y * m))
    if kind == "squared":
        return lambda m, y: ((m - y) ** 2 / 2, m - y)
    if kind == "huber":

        def huber(m: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            slope = np.clip(m - y, -loss.threshold, loss.threshold)
            return slope * (m - y - slope / 2), slope

        return huber
    if kind == "smoothed_hinge":

        def smoothed(m: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            slope = np.clip((1 - y * m) / loss.width, 0, 1)
            return slope * (1 - y * m - loss.width * slope / 2), -y * slope

        return smoothed
    low, high = {
        "absolute": lambda: (-1.0, 1.0),
        "pinball": lambda: (-loss.quantile, 1 - loss.quantile),
        "hinge": lambda: (-1.0, 0.0),
    }[kind]()

    def cornered(m: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r, sign = (y * m - 1, y) if kind == "hinge" else (m - y, 1.0)
        value = np.where(r > 0, high * r, low * r)
        slope = np.where(r > 0, high, low)
        if corner:
            slope = low + (high - low) * expit(r / corner * 4)
        return value, sign * slope

    return cornered


def value(loss: BaseLoss, x: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """The mean loss of the weights w."""
    if loss.kind == "softmax":
        logits = log_softmax(x @ w.reshape(-1, x.shape[1]).T, axis=1)
        return float(-np.mean(logits[np.arange(len(y)), y.astype(int)]))
    return float(np.mean(of_margins(loss)(x @ w, y)[0]))


def fitted(loss: BaseLoss, x: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """The weights of the least mean loss plus (ridge/2) ||w||^2, by L-BFGS."""
    n, d = x.shape
    classes = int(y.max()) + 1 if loss.kind == "softmax" else 1
    if loss.kind == "squared":
        return np.linalg.solve(x.T @ x / n + max(ridge, 1e-10) * np.eye(d), x.T @ y / n)
    slopes = None if classes > 1 else of_margins(loss, CORNER)

    def risk(w: np.ndarray) -> tuple[float, np.ndarray]:
        if slopes is None:
            logits = log_softmax(x @ w.reshape(classes, d).T, axis=1)
            own = np.arange(n), y.astype(int)
            q = np.exp(logits)
            q[own] -= 1
            mean, gradient = -np.mean(logits[own]), (q.T @ x).ravel() / n
        else:
            losses, slope = slopes(x @ w, y)
            mean, gradient = np.mean(losses), slope @ x / n
        return float(mean + ridge / 2 * w @ w), gradient + ridge * w

    start = np.zeros(classes * d)
    options = {"maxiter": 500, "maxcor": 20, "ftol": 1e-9}
    return minimize(risk, start, jac=True, method="L-BFGS-B", options=options).x


def ceiling(loss: BaseLoss, train: tuple, test: tuple) -> np.ndarray:
    """The best of fits without privacy, by the loss of held-out rows."""
    rows = min(len(train[1]), 100_000)
    x, y = train[0][:rows].astype(np.float64), train[1][:rows]
    fits = [fitted(loss, x, y, ridge) for ridge in RIDGES]
    return min(fits, key=lambda w: value(loss, *test, w))


def constant(loss: BaseLoss, y: np.ndarray) -> np.ndarray:
    """The best margin (of softmax: margins) without looking at any column."""
    if loss.kind == "softmax":
        return np.log(np.maximum(np.bincount(y.astype(int)), 0.5) / len(y))
    if loss.kind in ("absolute", "pinball"):
        return np.array([np.quantile(y, getattr(loss, "quantile", 0.5))])
    return fitted(loss, np.ones((len(y), 1)), y, 0.0)


def scores(x: np.ndarray, y: np.ndarray, w: np.ndarray, kind: str) -> dict[str, float]:
    """What an analyst looks at, by the kind of label; numbers are kept within the label's bounds."""
    if kind == "categorical":
        return {"accuracy": float(np.mean(np.argmax(x @ w.reshape(-1, x.shape[1]).T, axis=1) == y))}
    m = x @ w
    if kind == "binary":
        positive = y > 0
        p, n = positive.sum(), (~positive).sum()
        area = (rankdata(m)[positive].sum() - p * (p + 1) / 2) / (p * n) if p * n else 0.5
        return {"accuracy": float(np.mean((m > 0) == positive)), "auc": float(area)}
    r = np.clip(m, -1, 1) - y
    return {"r2": float(1 - np.mean(r**2) / np.var(y)), "mae": float(np.mean(np.abs(r)))}
