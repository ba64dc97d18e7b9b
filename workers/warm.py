"""Compile or load every kernel, in the process that will run it: those of most jobs before the first
one, the others while there is none to run. A job that comes before its kernels compiles them itself,
under a lease that is renewed meanwhile.

numba's cache is keyed by CPU and cannot be shipped.
"""

import gc
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

_OFTEN = "logistic"
_ROWS, _COLUMNS = 20, 17
_SCALES = {"feature_step": 1e-3, "linf_units": 4095, "l2_units": 4095}


def warm() -> None:
    """All at once."""
    for _ in warming():
        pass


def warming() -> Iterator[None]:
    """One tiny job of every kind, each when it is asked for: each algorithm's examples, rows of either
    storage, noise of either kind; what is asked most often first."""
    jobs = [(name, example) for name, entry in CATALOG.items() for example in entry.examples]
    # what does best is what `auto` mostly takes
    jobs.sort(key=lambda job: (CATALOG[job[0]].places[0], job[1].get("loss") != _OFTEN))
    for storage, delta, (name, job) in product(("fixed", "float64"), (1e-6, 0.0), jobs):
        few = {"steps": 2, "clip": 1.0, "batch": 10}
        fields = CATALOG[name].parameters.model_fields
        parameters = {key: value for key, value in few.items() if key in fields}
        parameters |= job.get("parameters", {})
        _run(name, {**job, "parameters": parameters}, storage, delta)
        yield


def _run(name: str, job: dict[str, Any], storage: str, delta: float) -> None:
    categorical = job.get("loss") == "softmax"
    facts = Facts.model_validate(
        {
            "rows": _ROWS,
            "columns": _COLUMNS,
            "storage": storage,
            "label": "categorical" if categorical else "binary",
            "classes": 2 if categorical else None,
            "account": AccountTerms.for_ceiling(1.0, delta),
            **(_SCALES if storage == "fixed" else {}),
        }
    )
    asked = {"dataset": "warm", "algorithm": name, "privacy": {"epsilon": 1.0}}
    try:
        made = plan(JobSpec.model_validate(asked | job), facts)
    except PlanRefused:  # an algorithm that rests on bounded rows
        return
    x = np.zeros((_ROWS, _COLUMNS), dtype=np.int16 if storage == "fixed" else np.float64)
    randomness, released = Randomness(bytes(32), "warm"), np.zeros(made.dimension)
    data = Data(made, x, np.ones(_ROWS), randomness, released)
    gc.disable()  # a compiler makes more objects than it is worth looking through
    try:
        RUNS[name](made, data, Progress())
    finally:
        gc.enable()
