"""Made-up problems of the lab, by seed: one trouble each, from 300 rows to a million, from 5 columns
to a thousand."""

import zlib
from dataclasses import dataclass

import numpy as np

from service.datasets.schema import (
    BinaryLabel,
    CategoricalColumn,
    NumericColumn,
    NumericLabel,
    Schema,
)

SPREAD = 0.2  # the standard deviation of a column that uses its declared range well
TEST = 20_000  # rows to judge by, besides those to fit on


@dataclass(frozen=True)
class Family:
    part: str  # "fit" or "held"
    kind: str  # of the label: "binary" or "numeric"
    n: int
    numeric: int = 0  # columns
    categories: tuple[int, ...] = ()  # of each categorical column; the k-th is 1/k as frequent
    signal: float = 2.0  # the margins' standard deviation; of a numeric label, R^2
    tails: str = "normal"  # of columns
    noise: str = "normal"  # of a numeric label
    correlation: float = 0.0  # of every two columns, by a factor that they share
    scales: float = 1.0  # how much less of its declared range the last column uses than the first
    useful: float = 1.0  # share of columns that matter
    positive: float = 0.5  # share of positive labels
    label_spread: float = 0.25  # standard deviation of a numeric label, whose range is [-1, 1]
    label_centre: float = 0.0


def _binary(part, n, numeric=0, **more):
    return Family(part, "binary", n, numeric, **more)


def _numeric(part, n, numeric=0, **more):
    return Family(part, "numeric", n, numeric, **{"signal": 0.6, **more})


FAMILIES = {
    "plain": _binary("fit", 10_000, 10),
    "strong": _binary("fit", 5_000, 10, signal=10.0),
    "heavy": _binary("fit", 20_000, 20, tails="lognormal"),
    "correlated": _binary("fit", 30_000, 50, correlation=0.8),
    "imbalanced": _binary("fit", 30_000, 20, positive=0.02),
    "scales": _binary("fit", 20_000, 20, scales=30.0),
    "wide": _binary("fit", 50_000, 300, useful=0.02),
    "rare": _binary("fit", 20_000, 5, categories=(20, 20, 20, 20, 20)),
    "large": _binary("fit", 300_000, 50),
    "few": _binary("fit", 500, 8, signal=3.0),
    "weak": _binary("held", 20_000, 20, signal=0.3),
    "fewer": _binary("held", 300, 5, signal=3.0),
    "student-t": _binary("held", 10_000, 30, tails="t"),
    "nearly-collinear": _binary("held", 20_000, 30, correlation=0.97),
    "one-in-twenty": _binary("held", 50_000, 10, positive=0.05, signal=1.0),
    "narrow": _binary("held", 30_000, 30, scales=100.0),
    "thousand": _binary("held", 20_000, 1000, useful=0.01),
    "rarer": _binary("held", 30_000, 3, categories=(50, 50, 50)),
    "million": _binary("held", 1_000_000, 30, signal=1.5),
    "linear": _numeric("fit", 10_000, 10),
    "linear-narrow-label": _numeric("fit", 20_000, 10, label_spread=0.02),
    "linear-skew": _numeric("fit", 20_000, 20, noise="lognormal", label_spread=0.05),
    "linear-correlated": _numeric("fit", 30_000, 30, correlation=0.9),
    "linear-scales": _numeric("fit", 20_000, 20, scales=30.0),
    "linear-few": _numeric("fit", 1_000, 8),
    "linear-wide": _numeric("fit", 50_000, 200, useful=0.05),
    "linear-rare": _numeric("fit", 30_000, 5, categories=(20, 20, 20)),
    "linear-hundredth": _numeric("fit", 500, 8, label_spread=0.005),
    "linear-exact": _numeric("held", 30_000, 20, signal=0.97),
    "linear-off-centre": _numeric("held", 20_000, 20, label_spread=0.03, label_centre=-0.7),
    "linear-student-t": _numeric("held", 20_000, 20, noise="t", tails="t", label_spread=0.1),
    "linear-collinear": _numeric("held", 10_000, 40, correlation=0.97, signal=0.8),
    "linear-fewer": _numeric("held", 300, 5),
    "linear-wider": _numeric("held", 100_000, 500, useful=0.02),
    "linear-rarer": _numeric("held", 10_000, 5, categories=(50, 10), label_spread=0.1),
    "linear-large": _numeric("held", 500_000, 40),
    "linear-fewer-hundredth": _numeric("held", 400, 6, label_spread=0.005, label_centre=0.4),
    "linear-weak": _numeric("held", 20_000, 30, signal=0.03),
}


def schema(family: Family) -> Schema:
    columns = [NumericColumn(name=f"x{j}", lower=0, upper=1) for j in range(family.numeric)]
    columns += [
        CategoricalColumn(name=f"c{j}", categories=tuple(str(k) for k in range(count)))
        for j, count in enumerate(family.categories)
    ]
    label = BinaryLabel(name="y", positive="1", negative="0")
    if family.kind == "numeric":
        label = NumericLabel(name="y", lower=-1, upper=1)
    return Schema(columns=tuple(columns), label=label)


def draw(name: str) -> dict[str, np.ndarray]:
    """The columns and the label, TEST rows more than the family's n."""
    family, rng = FAMILIES[name], np.random.default_rng(zlib.crc32(name.encode()))
    n = family.n + TEST
    columns, margin = {}, np.zeros(n)
    shared = rng.normal(size=n)
    spreads = SPREAD * np.geomspace(1.0, 1 / family.scales, max(1, family.numeric))
    for j in range(family.numeric):
        t = np.sqrt(family.correlation) * shared
        t += np.sqrt(1 - family.correlation) * _tailed(family.tails, rng, n)
        columns[f"x{j}"] = np.clip(0.5 + spreads[j] * t, 0, 1)
        weight = rng.normal()
        if j < max(1, round(family.useful * family.numeric)):
            margin += weight * (columns[f"x{j}"] - 0.5) / spreads[j]
    for j, count in enumerate(family.categories):
        shares = 1 / np.arange(1, count + 1)
        values = rng.choice(count, n, p=shares / shares.sum())
        columns[f"c{j}"] = values
        margin += 1.5 * rng.normal(size=count)[values]
    margin = (margin - margin.mean()) / margin.std()
    if family.kind == "binary":
        margin = family.signal * margin + _offset(family.signal * margin, family.positive)
        columns["y"] = (rng.uniform(size=n) < 1 / (1 + np.exp(-margin))).astype(int)
    else:
        noise = _tailed(family.noise, rng, n)
        y = np.sqrt(family.signal) * margin + np.sqrt(1 - family.signal) * noise
        columns["y"] = np.clip(family.label_centre + family.label_spread * y, -1, 1)
    return columns


def _tailed(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """Of mean 0 and variance about 1."""
    if kind == "lognormal":
        return (rng.lognormal(size=n) - np.exp(0.5)) / 2.16
    return rng.standard_t(3, n) / np.sqrt(3) if kind == "t" else rng.normal(size=n)


def _offset(margin: np.ndarray, positive: float) -> float:
    low, high = -50.0, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        share = np.mean(1 / (1 + np.exp(-(margin + middle))))
        low, high = (middle, high) if share < positive else (low, middle)
    return low
