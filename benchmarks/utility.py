"""Excess risk against the number of rows, on problems whose optimum is known, beside the theorems.

    make bench-utility
    make bench-utility ARGS="--only phased-sgd --seconds 60"
    make bench-utility ARGS="--only pinball"

Rows have norm 1: their first entry is 0.8 or -0.8 (always 0.8 for the pinball loss, or its corner
would be as good as symmetric), the others random signs of norm 0.6 together; w* is along the first.
Population risk is the expectation given the row, known in closed form, averaged over all sign
patterns (over 4,096 random ones where there are more), so its excess has no noise of its own to
speak of. Empirical risk is compared with the minimum that L-BFGS finds on the same rows; a corner
is rounded off there within 1e-3, which lowers the minimum by less than 1e-6.

Beside the risks stands the order of the lower bound for the whole class of losses. A theorem is an
upper bound: what is asked is that the fitted exponent of 1/n is at least the
theorem's, less 0.1, in the regime where the leading term dominates; each line names it. Where a
theorem is for delta > 0 alone, the exponent for delta = 0 is that of the same bound with Laplace
noise, which for T steps grows by T instead of sqrt(T): shown, and up to logarithms, but not asked.

Means over runs, each with rows and noise of its own. The exponent is the slope of a straight line
through the logarithms, and its standard error follows from the spread of the runs. A line is repeated
until that is below 0.04, or its seconds are over; and up to ten times as long while the exponent is
within two errors of what is asked, so that no verdict is a matter of luck.
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import ceil, sqrt
from multiprocessing import get_context

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from benchmarks.theorems import QUANTILE, Line, lines
from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

SPIKE = 0.8  # the first entry of every row
SPREAD = 0.5  # of the noise in a real-valued label: uniform on [-SPREAD, SPREAD]
# |<w*, x>| where nothing pulls w* to 0; for the hinge that of the labels' chances
SIGNAL = {
    "logistic": 1.5,
    "hinge": 1.5,
    "absolute": 0.4,
    "pinball": 0.1 + SPREAD * (2 * QUANTILE - 1),
}
CORNER = 1e-3
ERROR, ALLOWED, RUNS_MIN = 0.04, 0.1, 8
RANK, COLUMNS, RANK_RUNS = 5, (5, 20, 100, 500, 2000), 30

Risk = Callable[[np.ndarray], tuple[float, np.ndarray]]  # with its gradient


@dataclass(frozen=True)
class Result:
    runs: int
    risks: list[float]
    exponent: float
    error: float

    def steep(self, line: Line) -> bool:
        return self.exponent >= line.exponent - ALLOWED


def step() -> float:
    return SPIKE / 4095


def units(d: int) -> np.ndarray:
    """The entries of a row but for their signs, in feature units."""
    rest = round(sqrt((1 - SPIKE**2) / max(1, d - 1)) / step())
    return np.array([4095] + [rest] * (d - 1), dtype=np.int16)


def facts(line: Line, n: int) -> Facts:
    return Facts(
        rows=n,
        columns=line.d,
        storage="fixed",
        feature_step=step(),
        linf_units=4095,
        l2_units=ceil(float(np.linalg.norm(units(line.d).astype(float)))),
        label="numeric" if line.loss in ("absolute", "pinball") else "binary",
        account=AccountTerms.for_ceiling(line.epsilon, line.delta),
    )


def draw(line: Line, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in units, and labels."""
    x = rng.choice(np.array([-1, 1], dtype=np.int16), (n, line.d)) * units(line.d)
    if line.loss == "pinball":
        x[:, 0] = np.abs(x[:, 0])
        return x, rng.uniform(0.1 - SPREAD, 0.1 + SPREAD, n)
    best = SIGNAL[line.loss] * np.sign(x[:, 0])
    if line.loss == "absolute":
        return x, best + rng.uniform(-SPREAD, SPREAD, n)
    return x, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-best)), 1.0, -1.0)


@cache
def panel(d: int) -> np.ndarray:
    """Rows whose first entry is positive: their negatives, with labels negated, do the same."""
    if d <= 12:
        signs = np.array(list(product([-1.0, 1.0], repeat=d - 1)))
    else:
        signs = np.random.default_rng(1).choice([-1.0, 1.0], (4096, d - 1))
    return np.hstack([np.ones((len(signs), 1)), signs]) * units(d) * step()


def population(loss: str, ridge: float, w: np.ndarray, reach: float = 0.0) -> float:
    """`reach` is a bounded adversary's."""
    m, signal = panel(w.size) @ w, SIGNAL[loss]
    if loss == "absolute":
        off = np.abs(m - signal)
        risks = np.where(off <= SPREAD, (off**2 + SPREAD**2) / (2 * SPREAD), off)
    elif loss == "pinball":
        off = m - 0.1
        below, above = np.clip(SPREAD - off, 0, None), np.clip(SPREAD + off, 0, None)
        near = (QUANTILE * below**2 + (1 - QUANTILE) * above**2) / (4 * SPREAD)
        risks = np.where(
            np.abs(off) <= SPREAD, near, np.where(off > 0, 1 - QUANTILE, -QUANTILE) * off
        )
    else:
        p, shift = 1 / (1 + np.exp(-signal)), reach * float(np.linalg.norm(w))
        loss_of = _hinge if loss == "hinge" else _logistic
        risks = p * loss_of(m - shift) + (1 - p) * loss_of(-m - shift)
    return float(np.mean(risks) + ridge / 2 * w @ w)


def _logistic(margin: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0, -margin))


def _hinge(margin: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1 - margin)


@cache
def least_population(loss: str, ridge: float, d: int, reach: float = 0.0) -> float:
    """The minimum is along the first axis: the other signs are as often positive as negative."""
    axis = np.eye(d)[0]
    if ridge == 0 and reach == 0:
        return population(loss, ridge, SIGNAL[loss] / SPIKE * axis)
    found = minimize_scalar(
        lambda a: population(loss, ridge, a * axis, reach), bounds=(0, 3), options={"xatol": 1e-9}
    )
    return float(found.fun)


def empirical(job: JobSpec, x: np.ndarray, y: np.ndarray, penalty: float, corner: float) -> Risk:
    """The objective on these rows, in units, as the paper has it. A corner is rounded off within
    `corner`; `penalty` is a penalised adversary's."""
    given = job.parameters
    tilt = float(given.get("tilt", 0.0))
    reach = float(given.get("perturbation", 0.1)) if given.get("adversary") == "bounded" else 0.0

    def risk(w: np.ndarray) -> tuple[float, np.ndarray]:
        m, norm = (x @ w) * step(), float(np.linalg.norm(w))
        drift = np.zeros_like(w)  # what a moved row adds to the gradient, per unit of slope
        if job.loss.kind == "absolute":
            off = np.abs(m - y)
            losses = np.where(off < corner, (off**2 / max(corner, 1e-300) + corner) / 2, off)
            slope = np.clip((m - y) / max(corner, 1e-300), -1, 1)
        elif penalty:
            z, give = m, norm**2 / penalty
            for _ in range(15):
                z = m - give * y / (1 + np.exp(y * z))
            slope = -y / (1 + np.exp(y * z))
            losses = np.logaddexp(0, -y * z) - give / 2 * slope**2
            drift = w * float(np.mean(slope**2)) / penalty
        else:
            z = y * m - reach * norm
            slope, losses = -y / (1 + np.exp(z)), np.logaddexp(0, -z)
            drift = reach * w / max(norm, 1e-300) * float(np.mean(1 / (1 + np.exp(z))))
        shares, value = np.full(y.size, 1 / y.size), float(np.mean(losses))
        if tilt:
            shares = np.exp(tilt * losses)
            value = float(np.log(np.mean(shares)) / tilt)
            shares /= shares.sum()
        gradient = (shares * slope) @ x * step() + drift + job.ridge * w
        return value + job.ridge / 2 * norm**2, gradient

    return risk


def once(line: Line, n: int, rng: np.random.Generator) -> float:
    """The excess risk of one run on fresh rows."""
    x, y = draw(line, rng, n)
    spec = {"dataset": "ds_bench", "algorithm": line.algorithm, "loss": line.loss, **line.job}
    job = JobSpec.model_validate(
        {**spec, "privacy": {"epsilon": line.epsilon, "delta": line.delta}}
    )
    made = plan(job, facts(line, n))
    data = Data(made, x, y, Randomness(os.urandom(32), made.digest()))
    w = RUNS[line.algorithm](made, data, Progress())
    hostile = getattr(made.schedule, "adversary", None)
    if line.risk == "population":
        reach = hostile.reach if hostile is not None else 0.0
        least = least_population(line.loss, line.ridge, line.d, reach)
        return population(line.loss, line.ridge, w, reach) - least
    penalty = hostile.penalty if hostile is not None and hostile.kind == "penalised" else 0.0
    risk = partial(empirical, job, x.astype(float), y, penalty)
    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    found = minimize(risk(CORNER), w, jac=True, method="L-BFGS-B", options=options)
    return risk(0.0)(w)[0] - min(risk(0.0)(found.x)[0], found.fun)


def measured(line: Line, seconds: float) -> Result:
    rng = np.random.default_rng(7)
    place = np.log(line.sizes) - np.mean(np.log(line.sizes))
    weights = -place / (place @ place)
    runs: list[list[float]] = []
    start = time.process_time()
    while True:
        runs.append([once(line, n, rng) for n in line.sizes])
        if len(runs) < RUNS_MIN:
            continue
        means, spread = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1)
        error = float(np.linalg.norm(weights * spread / means)) / sqrt(len(runs))
        exponent = float(weights @ np.log(means))
        decided = abs(exponent - (line.exponent - ALLOWED)) >= 2 * error
        spent = time.process_time() - start
        if (decided and (error <= ERROR or spent > seconds)) or spent > 10 * seconds:
            return Result(len(runs), means.tolist(), exponent, error)


def by_columns(runs: int) -> tuple[list[float], float]:
    """What BGM Theorem 7 says of the rank: the mean excess population risk where RANK columns vary
    and all others are 0, by how many there are; and its exponent in d."""
    line = Line(
        theorem="BGM Theorem 7",
        regime="rank 5",
        algorithm="phased-sgd",
        loss="absolute",
        job={"set": "all", "parameters": {"rank": RANK}},
        risk="population",
        epsilon=1.0,
        d=RANK,
        octaves=(14, 14),
        exponent=0.5,
    )
    (n,) = line.sizes
    rng, risks = np.random.default_rng(8), []
    spec = {"dataset": "ds_bench", "algorithm": line.algorithm, "loss": line.loss, **line.job}
    job = JobSpec.model_validate(
        {**spec, "privacy": {"epsilon": line.epsilon, "delta": line.delta}}
    )
    for d in COLUMNS:
        made = plan(job, facts(line, n).model_copy(update={"columns": d}))
        found = []
        for _ in range(runs):
            x, y = draw(line, rng, n)
            wide = np.zeros((n, d), dtype=np.int16)
            wide[:, :RANK] = x
            data = Data(made, wide, y, Randomness(os.urandom(32), made.digest()))
            w = RUNS[line.algorithm](made, data, Progress())[:RANK]
            found.append(population(line.loss, 0.0, w) - least_population(line.loss, 0.0, RANK))
        risks.append(float(np.mean(found)))
    return risks, float(np.polyfit(np.log(COLUMNS), np.log(risks), 1)[0])


def main(show: Callable[[str], None] = print) -> bool:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of an algorithm and loss")
    parser.add_argument("--seconds", type=float, default=30.0, help="of computing, per line")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = [line for line in lines() if options.only in f"{line.algorithm} {line.loss}"]
    steep = True
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the processes: two of them have all the cores
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        results = pool.map(measured, chosen, [options.seconds] * len(chosen))
        for line, result in zip(chosen, results, strict=True):
            fine = result.steep(line)
            steep &= fine or not line.proved
            whose = "the theorem's" if line.proved else "without a theorem the bound's"
            show(
                f"{line.algorithm}, {line.loss}, {line.theorem}: {line.risk} risk, d = {line.d}, "
                f"epsilon {line.epsilon:g}, delta {line.delta:g}; {line.regime}\n"
                f"    n = {line.sizes[0]} ... {line.sizes[-1]}, {result.runs} runs: "
                + " ".join(f"{risk:.2g}" for risk in result.risks)
                + "\n    lower bound's order: "
                + " ".join(f"{line.lower_bound(n):.2g}" for n in line.sizes)
                + f"\n    exponent {result.exponent:.2f} +- {result.error:.2f}, {whose} "
                f"{line.exponent:.2f}: " + ("steep enough" if fine else "NOT STEEP ENOUGH")
            )
    if options.only in "phased-sgd absolute":
        risks, exponent = by_columns(RANK_RUNS)
        steep &= exponent <= ALLOWED
        show(
            f"phased-sgd, absolute, BGM Theorem 7: population risk at rank {RANK}, n = 16384\n"
            f"    d = {COLUMNS[0]} ... {COLUMNS[-1]}, {RANK_RUNS} runs: "
            + " ".join(f"{risk:.2g}" for risk in risks)
            + f"\n    exponent in d {exponent:.2f}, the theorem's 0: "
            + ("flat enough" if exponent <= ALLOWED else "NOT FLAT ENOUGH")
        )
    return steep


if __name__ == "__main__":
    raise SystemExit(0 if main(partial(print, flush=True)) else 1)
