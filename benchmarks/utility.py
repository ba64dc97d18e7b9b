"""Excess risk against the number of rows, on problems whose optimum is known, beside the theorems.

    make bench-utility
    make bench-utility ARGS="--runs 20 --only phased-sgd"

Rows have norm 1: their first entry is 0.8 or -0.8, the others random signs of norm 0.6 together; w* is
along the first. Population risk is an average over fresh rows of the conditional expectation given the
row, which is known in closed form, so the excess over w* has no noise of its own to speak of.
Empirical risk is compared with the minimum that L-BFGS finds on the same rows. A theorem is an upper
bound: what is asked is that the fitted exponent of 1/n is at least the theorem's, less 0.1, in the
regime where the leading term dominates. Each line names the regime; the private term dominates where
epsilon is small.

Medians over the runs; every run draws new rows and new noise.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
from scipy.optimize import minimize

from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.data import Data
from workers.execute import RUNS
from workers.progress import Progress
from workers.randomness import Randomness

SPIKE = 0.8  # the first entry of every row
SPREAD = 0.5  # of the noise in a real-valued label: uniform on [-SPREAD, SPREAD]
DELTA = 1e-6


@dataclass(frozen=True)
class Problem:
    """Rows of random signs, a planted w*, and the excess risk of any w."""

    loss: str
    signal: float  # |<w*, x>|

    def planted(self, d: int) -> np.ndarray:
        w = np.zeros(d)
        w[0] = self.signal / SPIKE
        return w

    def draw(self, rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows in units, and labels."""
        x = rng.choice(np.array([-1, 1], dtype=np.int16), (n, d)) * units(d)
        margins = x[:, 0] * (step() * self.planted(d)[0])
        if self.loss == "absolute":
            return x, margins + rng.uniform(-SPREAD, SPREAD, n)
        return x, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)

    def population(self, w: np.ndarray, rng: np.random.Generator) -> float:
        """E l(w) - E l(w*): over 20,000 fresh rows, exact given each row."""
        x = rng.choice([-1.0, 1.0], (20_000, w.size)) * units(w.size) * step()
        best = x @ self.planted(w.size)
        if self.loss == "absolute":
            off = np.abs(x @ w - best)
            within = off**2 / (2 * SPREAD)
            return float(np.mean(np.where(off <= SPREAD, within, off - SPREAD / 2)))
        p, m = 1 / (1 + np.exp(-best)), x @ w
        risk = p * np.logaddexp(0, -m) + (1 - p) * np.logaddexp(0, m)
        least = p * np.logaddexp(0, -best) + (1 - p) * np.logaddexp(0, best)
        return float(np.mean(risk - least))

    def empirical(
        self, w: np.ndarray, rows: np.ndarray, y: np.ndarray, ridge: float, tilt: float
    ) -> float:
        """F(w) - min F on these rows, with the ridge; logistic loss, tilted if tilt > 0."""
        x = rows * step()

        def risk(v: np.ndarray) -> tuple[float, np.ndarray]:
            losses = np.logaddexp(0, -y * (x @ v))
            slope = -y * -np.expm1(-losses)
            weights = np.exp(tilt * losses)
            weights /= weights.sum()
            value = np.log(np.mean(np.exp(tilt * losses))) / tilt if tilt else np.mean(losses)
            return float(value + ridge / 2 * v @ v), x.T @ (weights * slope) + ridge * v

        found = minimize(risk, np.zeros(w.size), jac=True, method="L-BFGS-B", tol=1e-14)
        return risk(w)[0] - float(found.fun)


@dataclass(frozen=True)
class Scenario:
    algorithm: str
    problem: Problem
    job: dict[str, Any]
    epsilon: float
    d: int
    sizes: tuple[int, ...]
    theorem: str
    exponent: float
    regime: str
    risk: str = "population"
    pure: bool = True  # whether the theorem is for delta = 0 as well


def sizes(low: int, high: int) -> tuple[int, ...]:
    return tuple(2**k for k in range(low, high + 1))


LOGISTIC, ABSOLUTE = Problem("logistic", 1.5), Problem("absolute", 0.4)
BALL, SMALL_BALL = {"kind": "l2_ball", "radius": 4.0}, {"kind": "l2_ball", "radius": 1.0}
SCENARIOS = [
    Scenario(
        "output-perturbation",
        LOGISTIC,
        {"set": "all", "ridge": 0.1},
        epsilon=1.0,
        d=10,
        sizes=sizes(11, 16),
        theorem="LR-OP Theorem 2.2",
        exponent=2.0,
        regime="smooth and strongly convex, (d/(epsilon n))^2",
        risk="empirical",
    ),
    Scenario(
        "output-perturbation",
        LOGISTIC,
        {"set": BALL},
        epsilon=0.5,
        d=10,
        sizes=sizes(12, 17),
        theorem="LR-OP Theorem 2.4",
        exponent=2 / 3,
        regime="smooth, private term (d/(epsilon n))^(2/3)",
    ),
    Scenario(
        "output-perturbation",
        ABSOLUTE,
        {"set": SMALL_BALL},
        epsilon=0.5,
        d=10,
        sizes=sizes(12, 17),
        theorem="LR-OP Theorem 2.3",
        exponent=0.5,
        regime="a loss with a corner, private term (d/(epsilon n))^(1/2)",
    ),
    Scenario(
        "tilted-output-perturbation",
        LOGISTIC,
        {"set": SMALL_BALL, "ridge": 0.3, "parameters": {"tilt": 0.5}},
        epsilon=1.0,
        d=5,
        sizes=sizes(12, 16),
        theorem="LR-OP Proposition 4.2",
        exponent=2.0,
        regime="smooth and strongly convex",
        risk="empirical",
    ),
    Scenario(
        "phased-sgd",
        ABSOLUTE,
        {"set": SMALL_BALL},
        epsilon=0.08,
        d=200,
        sizes=sizes(14, 17),
        theorem="BGM Theorem 6",
        exponent=1.0,
        regime="private term sqrt(d)/(epsilon n)",
    ),
    Scenario(
        "phased-sgd",
        ABSOLUTE,
        {"set": SMALL_BALL},
        epsilon=8.0,
        d=10,
        sizes=sizes(11, 17),
        theorem="BGM Theorem 6",
        exponent=0.5,
        regime="statistical term 1/sqrt(n)",
        pure=False,
    ),
    Scenario(
        "phased-sgd",
        ABSOLUTE,
        {"set": "all"},
        epsilon=1.0,
        d=10,
        sizes=sizes(12, 18),
        theorem="BGM Theorem 7",
        exponent=0.5,
        regime="over all of R^d",
        pure=False,
    ),
    Scenario(
        "frank-wolfe",
        ABSOLUTE,
        {"set": {"kind": "l1_ball", "radius": 1.0}},
        epsilon=1.0,
        d=100,
        sizes=sizes(12, 15),
        theorem="BGM Theorem 9",
        exponent=0.5,
        regime="private term 1/sqrt(epsilon n)",
    ),
    Scenario(
        "accelerated-sgd",
        LOGISTIC,
        {"set": BALL},
        epsilon=0.05,
        d=50,
        sizes=sizes(12, 16),
        theorem="KLL Theorem 4.11",
        exponent=1.0,
        regime="private term sqrt(d)/(epsilon n)",
        risk="empirical",
        pure=False,
    ),
    Scenario(
        "accelerated-sgd",
        LOGISTIC,
        {"set": "all", "ridge": 0.1},
        epsilon=1.0,
        d=10,
        sizes=sizes(12, 16),
        theorem="KLL Theorem 4.9",
        exponent=2.0,
        regime="strongly convex, d/(epsilon n)^2",
        risk="empirical",
        pure=False,
    ),
    Scenario(
        "localized-accelerated-sgd",
        ABSOLUTE,
        {"set": SMALL_BALL},
        epsilon=8.0,
        d=10,
        sizes=sizes(11, 16),
        theorem="KLL Theorem 5.6",
        exponent=0.5,
        regime="statistical term 1/sqrt(n)",
        pure=False,
    ),
]


def step() -> float:
    return SPIKE / 4095


def units(d: int) -> np.ndarray:
    """The entries of a row but for their signs, in feature units."""
    rest = round(sqrt((1 - SPIKE**2) / max(1, d - 1)) / step())
    return np.array([4095] + [rest] * (d - 1), dtype=np.int16)


def facts(n: int, d: int, loss: str, epsilon: float, delta: float) -> Facts:
    return Facts(
        rows=n,
        columns=d,
        storage="fixed",
        feature_step=step(),
        linf_units=4095,
        l2_units=ceil(float(np.linalg.norm(units(d).astype(float)))),
        label="numeric" if loss == "absolute" else "binary",
        account=AccountTerms.for_ceiling(epsilon, delta),
    )


def once(s: Scenario, n: int, delta: float, rng: np.random.Generator) -> float:
    x, y = s.problem.draw(rng, n, s.d)
    spec = {"dataset": "ds_bench", "algorithm": s.algorithm, "loss": s.problem.loss, **s.job}
    job = JobSpec.model_validate({**spec, "privacy": {"epsilon": s.epsilon, "delta": delta}})
    made = plan(job, facts(n, s.d, s.problem.loss, s.epsilon, delta))
    data = Data(made, x, y, Randomness(os.urandom(32), made.digest()))
    w = RUNS[s.algorithm](made, data, Progress())
    if s.risk == "empirical":
        tilt = float(job.parameters.get("tilt", 0.0))
        return s.problem.empirical(w, x, y, job.ridge, tilt)
    return s.problem.population(w, rng)


def measured(s: Scenario, delta: float, runs: int) -> tuple[list[float], float]:
    """The median excess risk at each size, and the fitted exponent of 1/n."""
    rng = np.random.default_rng(7)
    risks = [float(np.median([once(s, n, delta, rng) for _ in range(runs)])) for n in s.sizes]
    return risks, -float(np.polyfit(np.log(s.sizes), np.log(risks), 1)[0])


def main(show: Callable[[str], None] = print) -> bool:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--only", default="", help="part of an algorithm's name")
    arguments = parser.parse_args()
    steep = True
    for s in SCENARIOS:
        if arguments.only not in s.algorithm:
            continue
        for delta in (DELTA, 0.0) if s.pure else (DELTA,):
            risks, exponent = measured(s, delta, arguments.runs)
            fine = exponent >= s.exponent - 0.1
            steep &= fine
            show(
                f"{s.algorithm}, {s.problem.loss}, {s.theorem}: {s.risk} risk, d = {s.d}, "
                f"epsilon {s.epsilon}, delta {delta:g}; {s.regime}\n"
                f"    n = {s.sizes[0]} ... {s.sizes[-1]}: "
                + " ".join(f"{risk:.2g}" for risk in risks)
                + f"\n    fitted exponent {exponent:.2f}, the theorem's {s.exponent:.2f}: "
                + ("steep enough" if fine else "NOT STEEP ENOUGH")
            )
    return steep


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
