"""What a job gets that names nothing but its loss: score of the model over the best constant.

    make bench-defaults
    make bench-defaults ARGS="--algorithms gradient-descent --harm 0.15 --reach 10"
    make bench-defaults ARGS="--radius 10"                # an l2 ball in place of the default set

Synthetic tables alone, so that anyone can run it: rows of correlated features that keep to a part of
their declared bounds (some are indicators), labels whose bounds are wider than their residuals, few
rows, many columns, unbounded columns and labels. A score is 1 - loss/(loss of the best constant), on
rows that were not fitted: R^2, for the squared loss. 0 is the constant, and "best" is least squares or
L-BFGS on the same rows, not private. Means over runs at each epsilon, delta 1e-6, with the number of
steps; a Plan that refuses says so. --reach and --harm replace REACH and HARM of
service/planning/shared/reach.py.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

from service.datasets import encode
from service.datasets.schema import Schema
from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.choose import choose, compare
from service.planning.price import AccountTerms
from service.planning.shared import reach
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

EPSILONS, DELTA, TEST = (0.1, 1.0, 8.0), 1e-6, 0.25
LABELS = {
    "numeric": {"name": "y", "kind": "numeric", "lower": -1, "upper": 1},
    "unbounded": {"name": "y", "kind": "unbounded"},
    "binary": {"name": "y", "kind": "binary", "positive": "1", "negative": "-1"},
}


@dataclass(frozen=True)
class Table:
    name: str
    loss: str
    rows: int
    columns: int
    strength: float  # R^2 of the best model, or how far log-odds spread
    centre: float  # of labels, or of log-odds
    spread: float = 0.1  # of labels: their bounds are -1 and 1
    indicators: int = 0
    skewed: bool = False
    bounded: bool = True


TABLES = (
    Table("few columns", "squared", 20_000, 11, 0.93, -0.5, 0.25),
    Table("skewed, far from 0", "squared", 20_000, 26, 0.33, -0.85, 0.06, skewed=True),
    Table("many columns", "squared", 46_000, 117, 0.25, -0.3, 0.15, indicators=60),
    Table("no bounds", "squared", 20_000, 20, 0.7, 0.0, 1.0, bounded=False),
    Table("clear", "logistic", 20_000, 16, 3.0, 0.0),
    Table("rare", "logistic", 46_000, 100, 2.0, -2.0, indicators=60),
    Table("small", "logistic", 2_000, 20, 2.0, 0.5),
    Table("tiny", "logistic", 426, 30, 4.0, 0.5),
    Table("no bounds", "logistic", 20_000, 20, 2.0, 0.5, bounded=False),
)


def drawn(t: Table, seed: int = 1):
    """(features, labels)."""
    rng = np.random.default_rng(seed)
    n, d = round(t.rows / (1 - TEST)), t.columns
    few = max(2, d // 4)
    shared = rng.normal(size=(n, few)) @ rng.normal(size=(few, d)) / np.sqrt(few)
    z = (shared + rng.normal(size=(n, d))) / np.sqrt(2)
    x = np.clip(rng.uniform(0.15, 0.6, d) + rng.uniform(0.05, 0.2, d) * z, 0, 1)
    x[:, : t.indicators] = z[:, : t.indicators] > rng.uniform(0.5, 2, t.indicators)
    signal = (x - x.mean(axis=0)) @ (rng.normal(size=d) * (rng.uniform(size=d) < 0.6))
    signal /= signal.std()
    if not t.bounded:
        x = (x - 0.3) * rng.lognormal(0, 1, d) * 5
    if t.loss == "logistic":
        odds = t.strength * signal + t.centre
        return x, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-odds)), 1.0, -1.0)
    y = np.sqrt(t.strength) * signal + np.sqrt(1 - t.strength) * rng.normal(size=n)
    y = np.exp(0.6 * y) if t.skewed else y
    y = t.centre + t.spread * (y - y.mean()) / y.std()
    return x, np.clip(y, -1, 1) if t.bounded else 10 * y


def schema_of(t: Table) -> Schema:
    kind = {"kind": "numeric", "lower": 0, "upper": 1} if t.bounded else {"kind": "unbounded"}
    label = "binary" if t.loss == "logistic" else "numeric" if t.bounded else "unbounded"
    columns = [{"name": f"x{j}", **kind} for j in range(t.columns)]
    return Schema.model_validate({"columns": columns, "label": LABELS[label]})


def facts_of(schema: Schema, rows: int, epsilon: float) -> Facts:
    scales = {}
    if schema.storage == "fixed":
        scales = {
            "feature_step": encode.feature_step(schema),
            "linf_units": encode.LINF_UNITS,
            "l2_units": encode.l2_units(schema),
        }
    return Facts.model_validate(
        {
            "rows": rows,
            "columns": schema.width,
            "storage": schema.storage,
            "label": schema.label.kind,
            "account": AccountTerms.for_ceiling(epsilon, DELTA),
            **scales,
        }
    )


def losses(kind, margins, y):
    return np.logaddexp(0, -y * margins) if kind == "logistic" else (margins - y) ** 2 / 2


def best(kind, x, y):
    if kind == "squared":
        return np.linalg.lstsq(x, y, rcond=1e-9)[0]

    def risk(w):
        m = x @ w
        return losses(kind, m, y).mean(), x.T @ (-y / (1 + np.exp(np.minimum(y * m, 500)))) / len(y)

    return minimize(risk, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x


def planned(algorithm, t, about, epsilon, radius):
    asked = {"dataset": "ds_bench", "algorithm": algorithm, "loss": t.loss}
    if radius is not None:
        asked["set"] = {"kind": "l2_ball", "radius": radius}
    spec = JobSpec.model_validate({**asked, "privacy": {"epsilon": epsilon}})
    return choose(compare(spec, about, 2**40))[0] if algorithm == "auto" else plan(spec, about)


def cell(algorithm, t, epsilon, rows, score, options):
    _, y, stored, schema = rows
    try:
        made = planned(algorithm, t, facts_of(schema, len(y), epsilon), epsilon, options.radius)
    except PlanRefused:
        return f"{'refused':>16}"
    scores = []
    for seed in range(options.runs):
        order = np.random.default_rng(seed).permutation(len(y))
        data = Data(made, stored[order], y[order], Randomness(os.urandom(32), made.digest()))
        scores.append(score(RUNS[made.algorithm](made, data, Progress())))
    return f"{np.mean(scores):8.3f} ({made.schedule.steps:5})"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithms", default="auto,accelerated-sgd,gradient-descent")
    parser.add_argument("--only", default="", help="part of a table's name or loss")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--radius", type=float, help="of an l2 ball, in place of the default set")
    parser.add_argument("--reach", type=float, default=reach.REACH)
    parser.add_argument("--harm", type=float, default=reach.HARM)
    options = parser.parse_args(arguments)
    reach.REACH, reach.HARM = options.reach, options.harm
    print(f"{'':48}" + "".join(f"{f'epsilon {e:g}':>16}" for e in EPSILONS))
    for t in TABLES:
        if options.only not in f"{t.name} {t.loss}":
            continue
        schema = schema_of(t)
        raw, y = drawn(t)
        x = encode.encode_features(schema, {f"x{j}": raw[:, j] for j in range(t.columns)})
        held = slice(t.rows, None)
        constant = y[: t.rows].mean()
        if t.loss == "logistic":
            constant = 2 * np.arctanh(constant)
        floor = losses(t.loss, np.full(len(y[held]), constant), y[held]).mean()

        def score(w, x=x[held], y=y[held], floor=floor, kind=t.loss):
            return float(1 - losses(kind, x @ w, y).mean() / floor)

        x, y = x[: t.rows], y[: t.rows]
        rows = x, y, encode.quantise(schema, x) if schema.storage == "fixed" else x, schema
        print(f"{t.loss}, {t.name}: {t.rows:,} x {t.columns}, best {score(best(t.loss, x, y)):.3f}")
        show = partial(print, flush=True, file=sys.stdout)
        for algorithm in options.algorithms.split(","):
            cells = [cell(algorithm, t, e, rows, score, options) for e in EPSILONS]
            show(f"    {algorithm:44}" + "".join(cells))


if __name__ == "__main__":
    main()
