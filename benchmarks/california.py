"""Mean absolute error in dollars on California housing, privately: the last part of heavy_tails.py.

The folder holds `housing.csv` as https://github.com/ageron/handson-ml2 publishes it (datasets/housing;
from StatLib, Pace and Barry 1997), or the same as `california_housing.csv.gz`. 20,640 rows, of which a
fixed permutation takes four in five to train on.

**A rule instead of tuning.** Counts are per household, as scikit-learn publishes them in
`fetch_california_housing`, and on a log scale. Bounds in california_schema.json are public: the
state's extent, the caps in the documentation (age 52, income 15, value 500,001), a population of 600
to 3,000 in a typical block group (taken five times wider either way), and what homes are like: 1 to
12 rooms, half a bedroom to 3, 1 to 8 people. An encoded row has b = 10 blocks (the intercept and one
per column), each with one entry of at most 1/sqrt(b). Intercept and category always reach it, and if a
number is spread evenly over its interval its mean square is a third of that: so l2 is declared as
sqrt((2 + 8/3)/10) = 0.683, and longer rows are shortened. What is left to an analyst follows too:

- radius. Let every block move the label from one end of [-1, 1] to the other: a weight of 2 sqrt(b) in
  each of b blocks, so radius 2 b.
- clip, for the squared loss: a residual of 1/2, a quarter of the label's range. The Huber loss has its
  default threshold.
- steps: 512, each over all rows.

Everything else is a default. The optimum without privacy is that of the same loss on the same encoded
rows, by an interior point method (absolute) or L-BFGS.
"""

import csv
import gzip
import io
import sys
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.optimize import linprog, minimize

from benchmarks.adult import DELTA, EPSILONS, facts, fit
from service.datasets import encode
from service.datasets.schema import Schema
from service.planning.catalog import plan
from service.planning.losses.huber import Huber
from service.planning.spec import JobSpec

SCHEMA = Schema.model_validate_json((Path(__file__).parent / "california_schema.json").read_text())
ALGORITHM, STEPS, RADIUS = "accelerated-sgd", 512, 2.0 * SCHEMA.blocks
CLIPS = {"absolute": None, "huber": None, "squared": 0.5}
PER_HOUSEHOLD = {
    "rooms_per_household": "total_rooms",
    "bedrooms_per_household": "total_bedrooms",
    "people_per_household": "population",
}


def load(folder):
    """((encoded rows, labels) to train on, the same to test on)."""
    packed = folder / "california_housing.csv.gz"
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else None
    text = (data or (folder / "housing.csv").read_bytes()).decode()
    cells = list(csv.DictReader(io.StringIO(text)))
    columns = {name: np.array([row[name] for row in cells], dtype=object) for name in cells[0]}
    households = columns["households"].astype(float)
    for name, count in PER_HOUSEHOLD.items():
        numbers = np.array([float(cell or "nan") for cell in columns[count]])  # empty: missing
        columns[name] = numbers / households
    x = encode.encode_features(SCHEMA, columns)
    y = encode.encode_label(SCHEMA, columns[SCHEMA.label.name])
    order = np.random.Generator(np.random.PCG64(20240601)).permutation(len(y))
    train, test = np.split(order, [len(y) * 4 // 5])
    return (x[train], y[train]), (x[test], y[test])


def planned(loss, epsilon, rows):
    parameters = {"steps": STEPS, "batch": rows, "clip": CLIPS[loss]}
    spec = {
        "dataset": "ds_california",
        "algorithm": ALGORITHM,
        "loss": loss,
        "set": {"radius": RADIUS},
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "parameters": {name: value for name, value in parameters.items() if value is not None},
    }
    return plan(JobSpec.model_validate(spec), facts(rows, epsilon, SCHEMA))


def without_privacy(loss, x, y):
    if loss == "squared":
        return np.linalg.lstsq(x, y, rcond=1e-9)[0]
    n, d = x.shape
    if loss == "absolute":  # y = x w + u - v with u, v >= 0 of the smallest sum
        equations = sparse.hstack([x, sparse.eye(n), -sparse.eye(n)]).tocsr()
        bounds = [(None, None)] * d + [(0, None)] * (2 * n)
        costs = np.r_[np.zeros(d), np.ones(2 * n)]
        return linprog(costs, A_eq=equations, b_eq=y, bounds=bounds, method="highs-ipm").x[:d]

    def risk(w):
        r, t = x @ w - y, Huber().threshold
        slope = np.clip(r, -t, t)
        return float(np.mean(slope * (r - slope / 2))), x.T @ slope / n

    return minimize(risk, np.zeros(d), jac=True, method="L-BFGS-B", tol=1e-12).x


def dollars(x, y, weights):
    """Mean absolute error, predictions kept within the label's bounds as the client does."""
    half = (SCHEMA.label.upper - SCHEMA.label.lower) / 2
    return float(np.mean(np.abs(np.clip(x @ weights, -1, 1) - y)) * half)


def table(folder, runs):
    (x, y), test = load(folder)
    z = encode.quantise(SCHEMA, x)
    median = np.median(y) * np.eye(x.shape[1])[0] / SCHEMA.constant
    print(
        f"California housing: {len(y):,} rows to train on, {len(test[1]):,} to test on, "
        f"{SCHEMA.width} features; delta {DELTA}, {runs} runs; mean absolute error in dollars\n"
        f"    the median of the labels, not private: {dollars(*test, median):,.0f}"
    )
    for loss in CLIPS:
        best = without_privacy(loss, x, y)
        print(f"    {loss}, not private: {dollars(*test, best):,.0f}")
        for epsilon in EPSILONS:
            made = planned(loss, epsilon, len(y))
            errors = [dollars(*test, fit(made, z, y)) for _ in range(runs)]
            print(
                f"    {loss}, {ALGORITHM}, epsilon {epsilon}: "
                f"{np.mean(errors):,.0f} +- {np.std(errors):,.0f}"
            )
            sys.stdout.flush()
