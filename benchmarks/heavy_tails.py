"""Heavy tails: excess risk against n beside the theorem, time against n, and a lasso's support.

    make bench-heavy-tails                                # everything that needs no data
    make bench-heavy-tails ARGS="--data FOLDER"           # California housing as well: california.py
    make bench-heavy-tails ARGS="--only rates --plot docs/heavy-tails.png"

**Rates.** `clipped-sgd`, LR-HT Theorem 33: for smooth losses with ridge mu the private term of the
excess risk is (d kappa log(n)/(epsilon n)^2)^((k-1)/k) up to constants, so its exponent in 1/n is
2 (k-1)/k, less some 0.05 for the logarithm, where the k-th moment of gradients is finite; what is
asked is the exponent of that term over the same sizes, less 0.1. The linear model has Gaussian rows
of mean square norm 1 and heavy noise in its labels, the logistic one heavy rows; either way gradients
have the tails of the distribution, and k is a little below its last finite moment. Epsilon is so small
that the private term exceeds the statistical one, 1/n, several times over. The clip is the theorem's,
from the k-th moment at w = 0, or chosen privately, for which no theorem is claimed. Beside them the
same algorithm with the clip that a Lipschitz constant asks for, on the smallest bounds that cover the
rows that were drawn (which it is told for free), and all three with one record at 10^6 among the rows.
Excess risk is that of the population, ridge included: exact for the linear model, over 2^16 fresh rows
for the logistic one. The standard error of an exponent is that of 200 resamples of the draws of rows,
each with its runs, at each size.

**Time.** CPU seconds of one fit, so that other tenants of the machine do not count; best of several.
The steps are fixed, and few, and the rows many, so that these are what takes the time: a step costs
some 0.3 ms whatever it reads. One thread, since two that share a memory slow each other down.

**Lasso.** `proximal-sgd` on a sparse linear model with heavy noise, against the minimiser without
privacy, at two sizes.
"""

import argparse
import os
import time
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from benchmarks import california
from benchmarks.pictures import picture
from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

DELTA = 1e-6
COLUMNS, RIDGE, RADIUS, EPSILON = 5, 0.5, 10.0, 0.5
SIZES = tuple(2**k for k in range(15, 20))
KEYS = 4  # runs on the same rows, which are slower to draw than to fit
OUTLIER = 1e6
CLIPS = ("moment", "private", "Lipschitz")


def student(degrees):
    return lambda rng, size: rng.standard_t(degrees, size)


def pareto(shape):
    """One-sided, with mean 0: clipping is biased."""
    return lambda rng, size: rng.pareto(shape, size) - 1 / (shape - 1)


def log_normal(rng, size):
    return rng.lognormal(0, 1, size) - np.exp(0.5)


@dataclass(frozen=True)
class Tail:
    name: str
    k: float  # a moment that is finite
    draw: object  # of (rng, size), with mean 0

    @cached_property
    def deviation(self):
        return float(np.std(self.draw(np.random.default_rng(0), 10**6)))


TAILS = (
    Tail("Student t, 2.5 degrees", 2.4, student(2.5)),
    Tail("Student t, 4 degrees", 3.9, student(4)),
    Tail("Pareto, shape 3", 2.9, pareto(3)),
    Tail("log-normal", 4.0, log_normal),
)


@dataclass(frozen=True)
class Problem:
    loss: str
    tail: Tail

    @property
    def planted(self):
        return np.ones(COLUMNS) / np.sqrt(COLUMNS) * (1 if self.loss == "squared" else 3)

    def draw(self, rng, n):
        """Rows of mean square norm 1 and labels, with noise of variance 1 where they are numbers."""
        unit = self.tail.deviation
        if self.loss == "squared":
            x = rng.normal(size=(n, COLUMNS)) / np.sqrt(COLUMNS)
            return x, x @ self.planted + self.tail.draw(rng, n) / unit
        x = self.tail.draw(rng, (n, COLUMNS)) / (unit * np.sqrt(COLUMNS))
        return x, np.where(rng.uniform(size=n) < logistic(x @ self.planted), 1.0, -1.0)

    @cached_property
    def moment(self):
        """r: the k-th root of the k-th moment of a gradient's length at 0."""
        x, y = self.draw(np.random.default_rng(1), 10**6)
        lengths = np.linalg.norm(x, axis=1) * (np.abs(y) if self.loss == "squared" else 0.5)
        return float(np.mean(lengths**self.tail.k) ** (1 / self.tail.k))

    def excess(self):
        """The population's excess risk as a function of w."""
        if self.loss == "squared":
            curvature = 1 / COLUMNS + RIDGE
            best = self.planted / COLUMNS / curvature
            return lambda w: float(curvature / 2 * (w - best) @ (w - best))
        x, _ = self.draw(np.random.default_rng(2), 2**16)
        p = logistic(x @ self.planted)

        def risk(w):
            m = x @ w
            value = np.mean(np.logaddexp(0, m) - p * m) + RIDGE / 2 * w @ w
            return float(value), x.T @ (logistic(m) - p) / len(p) + RIDGE * w

        least = minimize(risk, np.zeros(COLUMNS), jac=True, method="L-BFGS-B", tol=1e-15).fun
        return lambda w: max(risk(w)[0] - least, 1e-12)


def logistic(m):
    with np.errstate(over="ignore"):  # far down the tail it is 0
        return 1 / (1 + np.exp(-m))


def facts(n, columns, epsilon, label):
    return Facts(
        rows=n,
        columns=columns,
        storage="float64",
        label=label,
        account=AccountTerms.for_ceiling(epsilon, DELTA),
    )


def planned(algorithm, loss, n, columns, epsilon, **job):
    spec = {"dataset": "ds_bench", "algorithm": algorithm, "loss": loss, **job}
    privacy = {"epsilon": epsilon, "delta": DELTA}
    label = "binary" if loss == "logistic" else "unbounded"
    job = JobSpec.model_validate({**spec, "privacy": privacy})
    return plan(job, facts(n, columns, epsilon, label))


def fit(made, x, y):
    data = Data(made, x, y, Randomness(os.urandom(32), made.digest()))
    return RUNS[made.algorithm](made, data, Progress())


# --- rates ------------------------------------------------------------------------------------------


def clip_parameters(kind, problem, x, y):
    if kind == "moment":
        return {"moment": problem.tail.k, "moment_bound": problem.moment}
    if kind == "private":
        return {"clip": "private"}
    size = float(np.linalg.norm(x, axis=1).max())
    slope = RADIUS * size + float(np.abs(y).max()) if problem.loss == "squared" else 1.0
    return {"clip": min(size * slope, 1e9)}


def excesses(problem, sizes, runs):
    """Excess risk without an outlier and with one, by kind of clip, size and run."""
    rng, excess = np.random.default_rng(3), problem.excess()
    found = np.empty((2, len(CLIPS), len(sizes), runs, KEYS))

    @cache
    def made(n, **parameters):
        job = {"ridge": RIDGE, "set": {"radius": RADIUS}, "parameters": parameters}
        return planned("clipped-sgd", problem.loss, n, COLUMNS, EPSILON, **job)

    for i, n in enumerate(sizes):
        for run in range(runs):
            x, y = problem.draw(rng, n)
            for outlier in (0, 1):
                if outlier:
                    x[n // 3] = OUTLIER
                    y[n // 3] = OUTLIER if problem.loss == "squared" else -1.0
                for c, kind in enumerate(CLIPS):
                    job = made(n, **clip_parameters(kind, problem, x, y))
                    found[outlier, c, i, run] = [excess(fit(job, x, y)) for _ in range(KEYS)]
    return found


def slope(sizes, values):
    return -float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def exponent(sizes, found):
    """The fitted exponent of 1/n of the mean over draws of rows and runs, and its standard error."""
    rng, draws = np.random.default_rng(4), found.shape[1]

    def of(part):
        return slope(sizes, part.mean(axis=(1, 2)))

    # each size by itself, and the runs on one draw of rows together
    several = rng.integers(draws, size=(200, len(sizes), draws))
    again = [of(np.array([one[i] for one, i in zip(found, s, strict=True)])) for s in several]
    return of(found), float(np.std(again))


def verdict_on(fitted, error, wanted):
    if fitted >= wanted:
        return "steep enough"
    return "within two errors of it" if fitted + 2 * error >= wanted else "NOT STEEP ENOUGH"


def rates(sizes, runs):
    """The table; and what the picture shows."""
    panels, steep = {}, True
    for loss in ("squared", "logistic"):
        for tail in TAILS:
            theory = slope(sizes, (np.log(sizes) / np.square(sizes)) ** (1 - 1 / tail.k))
            print(
                f"clipped-sgd, {loss}, {tail.name}: d = {COLUMNS}, ridge {RIDGE}, epsilon {EPSILON}, "
                f"delta {DELTA:g}; {runs} times {KEYS} runs; the theorem's exponent is {theory:.2f} "
                f"for k = {tail.k:g}"
            )
            found = excesses(Problem(loss, tail), sizes, runs)
            for outlier in (False, True):
                for kind, part in zip(CLIPS, found[int(outlier)], strict=True):
                    fitted, error = exponent(sizes, part)
                    judged = kind == "moment"  # the theorem's clip
                    verdict = verdict_on(fitted, error, theory - 0.1) if judged else ""
                    steep &= not verdict.isupper()
                    mean = part.mean(axis=(1, 2))
                    print(
                        f"    {kind:9}{' and an outlier' if outlier else '':15} n = {sizes[0]} ... "
                        f"{sizes[-1]}: {' '.join(f'{v:.2g}' for v in mean)}; "
                        f"exponent {fitted:.2f} +- {error:.2f} {verdict}".rstrip(),
                        flush=True,
                    )
                    if not outlier:
                        curve = {
                            "label": f"clip: {kind}",
                            "n": list(sizes),
                            "values": mean.tolist(),
                        }
                        dashed = {"exponent": theory} if judged else {}
                        panels.setdefault(f"{loss}, {tail.name}", []).append(curve | dashed)
    return panels, steep


# --- time -------------------------------------------------------------------------------------------


def times(sizes, repeats, columns=32, steps=4):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-0.3, 0.3, (max(sizes), columns)), np.ones(max(sizes))
    y[::2] = -1.0
    print(
        f"CPU seconds of a fit on one thread, {columns} float64 columns, {steps} steps, "
        f"best of {repeats}"
    )
    linear = True
    for algorithm in ("clipped-sgd", "accelerated-clipped-sgd", "proximal-sgd"):
        job = {"ridge": 0.1, "parameters": {"clip": 1.0, "steps": steps}}
        plans = [planned(algorithm, "logistic", n, columns, 1.0, **job) for n in sizes]
        best = np.full(len(sizes), np.inf)
        for _ in range(
            repeats
        ):  # every size in turn, so that a busy minute is not one size's alone
            for i, (n, made) in enumerate(zip(sizes, plans, strict=True)):
                start = time.process_time()
                fit(made, x[:n], y[:n])
                best[i] = min(best[i], time.process_time() - start)
        slope = float(np.polyfit(np.log(sizes), np.log(best), 1)[0])
        linear &= abs(slope - 1) <= 0.05
        print(
            f"    {algorithm:24} n = {sizes[0]} ... {sizes[-1]}: "
            + " ".join(f"{s:.4f}" for s in best)
            + f"; exponent {slope:.3f}: {'linear' if abs(slope - 1) <= 0.05 else 'NOT LINEAR'}",
            flush=True,
        )
    os.sched_setaffinity(0, cores)
    return linear


# --- lasso ------------------------------------------------------------------------------------------


def lasso(n, runs, columns=41, strength=0.15):
    """How many of the support's five features and how many others are not zero."""
    rng = np.random.default_rng(6)
    support = np.arange(1, 6)
    job = {
        "set": "all",
        "regulariser": {"kind": "l1", "strength": strength},
        "parameters": {"clip": "private", "steps": 40},
    }
    print(
        f"proximal-sgd, squared loss, l1 {strength}: {n} rows, {support.size} of {columns - 1} "
        f"features matter, noise Student t with 2.5 degrees; {runs} runs"
    )
    found = {"not private": [], 0.5: [], 1.0: [], 2.0: []}
    for _ in range(runs):
        x = np.c_[np.ones(n), rng.normal(size=(n, columns - 1))] / 2
        y = x[:, support] @ [3.0, -3.0, 2.0, -2.0, 2.0] + rng.standard_t(2.5, n) / 2
        for epsilon, fits in found.items():
            if epsilon == "not private":
                w = without_privacy(x, y, strength)
            else:
                w = fit(planned("proximal-sgd", "squared", n, columns, epsilon, **job), x, y)
            chosen = np.flatnonzero(w[1:]) + 1
            fits.append((np.isin(support, chosen).sum(), (~np.isin(chosen, support)).sum()))
    for epsilon, fits in found.items():
        right, wrong = np.mean(fits, axis=0)
        exact = np.mean([pair == (support.size, 0) for pair in map(tuple, fits)])
        print(
            f"    epsilon {epsilon}: {right:.1f} of {support.size} found, {wrong:.1f} others; "
            f"the support itself in {100 * exact:.0f} % of runs",
            flush=True,
        )


def without_privacy(x, y, strength):
    """The lasso's minimiser by proximal gradient steps."""
    gram, target = x.T @ x / len(y), x.T @ y / len(y)
    eta, w = 1 / np.linalg.eigvalsh(gram)[-1], np.zeros(x.shape[1])
    for _ in range(2000):
        w = w - eta * (gram @ w - target)
        w[1:] = np.sign(w[1:]) * np.maximum(np.abs(w[1:]) - eta * strength, 0)
    return w


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder with California housing")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--largest", type=int, default=19, help="log2 of the most rows, for rates")
    parser.add_argument("--only", choices=("rates", "time", "lasso", "california"))
    parser.add_argument("--plot", type=Path, help="where the rates are drawn, as PNG")
    options = parser.parse_args(arguments)
    fine = True
    if options.only in (None, "rates"):
        sizes = [n for n in SIZES if n <= 2**options.largest]
        panels, fine = rates(sizes, options.runs)
        if options.plot is not None:
            picture(options.plot, "excess risk", panels, columns=len(TAILS))
    if options.only in (None, "time"):
        fine &= times([2 ** (options.largest + k) for k in range(4)], repeats=25)
    if options.only in (None, "lasso"):
        for k in (options.largest - 3, options.largest):
            lasso(2**k, options.runs)
    if options.data is not None and options.only in (None, "california"):
        california.table(options.data, options.runs)
    return fine


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
