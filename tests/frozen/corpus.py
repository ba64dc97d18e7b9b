"""A frozen corpus: Plans, their digests and the models that they gave at a fixed key.

A stored Plan must parse, price and run for ever as it did when it was made: the ledger charged it and
an audit record names its digest. `corpus.json` holds Plans as text, as a database does. It is only
ever added to: `python -m tests.frozen.corpus` plans and runs the cases that it lacks.

Bits of a model depend on the machine's exponential function and on numba's code generation, so each
set of models names the software that made it; under another the weights agree to a thousandth.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.conversion import Kind
from service.planning.plan import PLANNER_VERSION, Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.execute import software
from workers.progress import Progress
from workers.randomness import Randomness

CORPUS = Path(__file__).parent / "corpus.json.gz"
KEY = bytes(range(32))
ROWS = 240
OF = {"job": "job_1", "digest": "0" * 64}
POLYTOPE = {
    "kind": "polytope",
    "vertices": [[(i * j) % 5 - 2.0 for i in range(18)] for j in range(9)],
}
SMALL = {"kind": "polytope", "vertices": [[0.0, 0.0, 1.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 2.0]]}
L1 = {"kind": "l1_ball", "radius": 2.0}
RELU = {"kind": "relu_network", "width": 3}
O2NC = "online-to-nonconvex"
MIRROR = "proximally-guided-mirror-descent"

# algorithm, label, the rest of the job
EXTRA: list[tuple[str, str, dict[str, Any]]] = [
    *(
        ("gradient-descent", label, {"loss": loss, "parameters": {"steps": 4}})
        for label, losses in {
            "binary": ("hinge", "smoothed_hinge", "geometric_median"),
            "numeric": ("squared", "absolute", "huber", {"kind": "pinball", "quantile": 0.9}),
            "unbounded": ("absolute", "huber"),
            "categorical": ("softmax",),
        }.items()
        for loss in losses
    ),
    *(
        ("gradient-descent", "binary", {"loss": "logistic", "set": s, "parameters": {"steps": 3}})
        for s in ("all", L1, "simplex", "box")
    ),
    ("gradient-descent", "binary", {"loss": "logistic", "parameters": {"steps": 4, "batch": 30}}),
    ("gradient-descent", "binary", {"loss": "hinge", "model": RELU, "parameters": {"steps": 3}}),
    (
        "gradient-descent",
        "numeric",
        {"loss": "huber", "model": RELU, "parameters": {"steps": 3, "batch": 20}},
    ),
    ("accelerated-sgd", "numeric", {"loss": "squared", "ridge": 0.1}),
    (
        "accelerated-sgd",
        "categorical",
        {"loss": "softmax", "parameters": {"steps": 4, "batch": 16}},
    ),
    ("accelerated-sgd", "binary", {"loss": "hinge", "parameters": {"steps": 6, "batch": 16}}),
    ("accelerated-sgd", "binary", {"loss": "geometric_median", "parameters": {"steps": 3}}),
    ("localized-accelerated-sgd", "numeric", {"loss": "absolute"}),
    (
        "clipped-sgd",
        "binary",
        {"loss": "logistic", "ridge": 0.1, "parameters": {"clip": "private"}},
    ),
    ("clipped-sgd", "numeric", {"loss": "squared", "ridge": 0.1, "parameters": {"steps": 5}}),
    ("accelerated-clipped-sgd", "binary", {"loss": "logistic", "parameters": {"clip": "private"}}),
    (
        "accelerated-clipped-sgd",
        "categorical",
        {"loss": "softmax", "parameters": {"moment_bound": 1.0}},
    ),
    ("localized-subgradient", "binary", {"loss": "hinge", "parameters": {"clip": "private"}}),
    ("localized-subgradient", "numeric", {"loss": "absolute", "ridge": 0.1}),
    ("localized-subgradient", "unbounded", {"loss": "squared", "parameters": {"clip": "private"}}),
    (
        "proximal-sgd",
        "binary",
        {
            "loss": "logistic",
            "ridge": 0.1,
            "regulariser": {"kind": "elastic_net", "l1": 0.01, "l2": 0.1},
        },
    ),
    (
        "proximal-sgd",
        "binary",
        {"loss": "logistic", "ridge": 0.1, "parameters": {"clip": "private"}},
    ),
    ("frank-wolfe", "binary", {"loss": "hinge", "set": "simplex", "parameters": {"steps": 5}}),
    (
        "frank-wolfe",
        "numeric",
        {"loss": "squared", "ridge": 0.1, "set": POLYTOPE, "parameters": {"steps": 5}},
    ),
    ("frank-wolfe", "binary", {"loss": "logistic", "set": SMALL, "parameters": {"steps": 5}}),
    ("phased-sgd", "binary", {"loss": "logistic", "set": "all"}),
    ("phased-sgd", "numeric", {"loss": "absolute", "ridge": 0.01}),
    *(
        (
            O2NC,
            label,
            {"loss": loss, "parameters": {"oracle": oracle, "steps": 8, "period": 4}, **more},
        )
        for oracle in (
            "first-order",
            "zero-order",
            "first-order-multi-pass",
            "zero-order-multi-pass",
        )
        for label, loss, more in (
            ("binary", "ramp", {}),
            ("numeric", "trimmed", {}),
            ("binary", "hinge", {"model": RELU}),
        )
    ),
    (
        O2NC,
        "binary",
        {
            "loss": "sigmoid",
            "parameters": {"mechanism": "tree", "steps": 8, "period": 8, "output": "last"},
        },
    ),
    (
        O2NC,
        "numeric",
        {"loss": "phase_retrieval", "parameters": {"mechanism": "root", "steps": 6, "period": 3}},
    ),
    (
        O2NC,
        "numeric",
        {
            "loss": "welsch",
            "parameters": {"steps": 4, "period": 1, "oracle": "first-order-multi-pass"},
        },
    ),
    ("polyhedral-stochastic-frank-wolfe", "binary", {"loss": "savage", "set": "simplex"}),
    (
        "polyhedral-stochastic-frank-wolfe",
        "numeric",
        {"loss": "welsch", "ridge": 0.1, "set": POLYTOPE},
    ),
    ("stochastic-frank-wolfe", "binary", {"loss": "sigmoid", "set": "l2_ball"}),
    (
        "stochastic-frank-wolfe",
        "numeric",
        {"loss": "huber", "ridge": 0.1, "set": {"kind": "lp_ball", "p": 1.2, "radius": 3.0}},
    ),
    (MIRROR, "binary", {"loss": "hinge", "set": "simplex"}),
    (
        MIRROR,
        "numeric",
        {"loss": "phase_retrieval", "parameters": {"start": "random", "output": "last"}},
    ),
    (MIRROR, "binary", {"loss": "logistic", "set": L1}),
    *(
        (
            "output-perturbation",
            "binary",
            {"loss": loss, "ridge": ridge, "parameters": {"solver": solver}},
        )
        for solver in ("gradient-descent", "accelerated", "sgd", "subgradient")
        for loss in ("logistic", "hinge")
        for ridge in (0.0, 0.5)
    ),
    (
        "output-perturbation",
        "binary",
        {"loss": "logistic", "ridge": 0.5, "set": "all", "parameters": {"solver": "accelerated"}},
    ),
    (
        "output-perturbation",
        "binary",
        {"loss": "hinge", "ridge": 5.0, "parameters": {"solver": "subgradient", "steps": 50}},
    ),
    (
        "output-perturbation",
        "numeric",
        {"loss": {"kind": "pinball", "quantile": 0.9}, "ridge": 0.5},
    ),
    ("output-perturbation", "numeric", {"loss": "squared", "set": {"radius": 2.0}}),
    (
        "proximal-sgd",
        "binary",
        {
            "loss": "logistic",
            "ridge": 0.1,
            "regulariser": {"kind": "group_lasso", "strength": 0.01, "groups": [2, 5, 10]},
        },
    ),
    (
        "proximal-sgd",
        "binary",
        {
            "loss": "logistic",
            "ridge": 0.1,
            "regulariser": {"kind": "group_lasso", "strength": 0.01, "groups": [2]},
        },
    ),
    (
        "tilted-output-perturbation",
        "binary",
        {"loss": "logistic", "ridge": 0.1, "set": {"radius": 1.0}, "parameters": {"tilt": 0.02}},
    ),
    (
        "tilted-output-perturbation",
        "numeric",
        {"loss": "squared", "ridge": 0.1, "set": {"radius": 1.0}},
    ),
    (
        "adversarial-output-perturbation",
        "binary",
        {"loss": "hinge", "ridge": 0.1, "parameters": {"norm": "linf", "perturbation": 0.05}},
    ),
    (
        "adversarial-output-perturbation",
        "binary",
        {"loss": "logistic", "ridge": 0.1, "parameters": {"adversary": "penalised"}},
    ),
    (
        "stationarity-certificate",
        "binary",
        {"loss": "logistic", "of": OF, "parameters": {"radius": 0.1, "points": 3}},
    ),
    ("stationarity-certificate", "categorical", {"loss": "softmax", "of": OF}),
]


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, entry in CATALOG.items():
        yield name, "binary", {**entry.example, **({"of": OF} if "of" in entry.example else {})}
    yield from EXTRA


def facts(storage: str, label: str, columns: int, delta: float, kind: Kind | None = None) -> Facts:
    fixed = {"feature_step": 1 / 4095, "linf_units": 4095, "l2_units": 4095}
    return Facts.model_validate(
        {
            "rows": ROWS,
            "columns": columns,
            "storage": storage,
            "label": label,
            "classes": 3 if label == "categorical" else None,
            "account": AccountTerms.for_ceiling(4.0, delta, kind),
            **(fixed if storage == "fixed" else {}),
        }
    )


def plans() -> Iterator[tuple[str, Plan]]:
    """By name; what cannot be planned is left out. Planner 5 made those of all storages and columns;
    those of a later one, named by it, are of either storage's own columns, and the first 17 jobs, one
    of each algorithm, are planned on a gaussian account too, with a limit."""
    for number, (algorithm, label, job) in enumerate(jobs()):
        for storage, columns in (("fixed", 18), ("float64", 3)):
            abouts = {f"{delta:g}": facts(storage, label, columns, delta) for delta in (1e-6, 0.0)}
            if number < len(CATALOG):
                limits = (AccountTerms.for_ceiling(3.0, 1e-6, "gaussian"),)
                about = facts(storage, label, columns, 1e-6, "gaussian")
                abouts["gaussian"] = about.model_copy(update={"limits": limits})
            for account, about in abouts.items():
                asked = {"dataset": "d", "algorithm": algorithm, "privacy": {"epsilon": 2.0}}
                made = _planned(asked | job, about)
                if made is not None:
                    name = f"{algorithm} {number} {storage} {columns} {account}"
                    yield f"{name} {PLANNER_VERSION}", made


def _planned(job: dict[str, Any], about: Facts) -> Plan | None:
    """As it is asked, or with a clip where that is what it lacks."""
    clip = {"parameters": {**job.get("parameters", {}), "clip": 1.0}}
    for asked in (job, job | clip):
        try:
            return plan(JobSpec.model_validate(asked), about)
        except PlanRefused:
            continue
    return None


def rows_for(made: Plan) -> tuple[np.ndarray, np.ndarray]:
    about, rng = made.facts, np.random.default_rng(made.facts.columns)
    shape = (about.rows, about.columns)
    direction = rng.normal(size=about.columns)
    if about.storage == "fixed":
        x = rng.integers(-900, 901, shape).astype(np.int16)
        margins = x @ direction / 900
    else:
        x = rng.standard_t(3, shape)
        margins = x @ direction
    match about.label:
        case "binary":
            y = np.where(margins > 0, 1.0, -1.0)
        case "categorical":
            y = np.digitize(margins, [-1.0, 1.0]).astype(np.float64)
        case "numeric":
            y = np.clip(margins / 3, -1.0, 1.0)
        case _:
            y = margins * rng.standard_t(3, about.rows)
    return x, y


def run(made: Plan) -> list[float]:
    x, y = rows_for(made)
    released = np.linspace(-1.0, 1.0, made.dimension)
    data = Data(made, x, y, Randomness(KEY, made.digest()), released)
    result = RUNS[made.algorithm](made, data, Progress())
    return [float(w) for w in result]


def main() -> None:
    kept = json.loads(gzip.decompress(CORPUS.read_bytes())) if CORPUS.exists() else {}
    for name, made in plans():
        if name not in kept:
            kept[name] = {
                "plan": made.canonical(),
                "digest": made.digest(),
                "weights": run(made),
                "software": software().model_dump(),
            }
    CORPUS.write_bytes(gzip.compress(json.dumps(kept, indent=0).encode(), mtime=0))
    print(f"{len(kept)} Plans")


if __name__ == "__main__":
    main()
