"""Compile or load every kernel before the first job, in the process that will run it.

numba's cache is keyed by CPU and cannot be shipped; a worker that starts warm never makes a job pay.
"""

from itertools import product
from typing import Any

import numpy as np

from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import phased_sgd
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

_ROWS, _COLUMNS = 20, 17
_LABELS: dict[str, dict[str, Any]] = {
    "logistic": {"label": "binary"},
    "softmax": {"label": "categorical", "classes": 2},
    "geometric_median": {"label": "binary"},
}


def warm() -> None:
    """One tiny release of every kind: rows of either storage, noise of either kind, and a loss for
    every kernel."""
    for storage, dtype in (("fixed", np.int16), ("float64", np.float64)):
        scales = {"feature_step": 1e-3, "linf_units": 4095, "l2_units": 4095}
        for delta, (loss, label) in product((1e-6, 0.0), _LABELS.items()):
            facts = Facts.model_validate(
                {
                    "rows": _ROWS,
                    "columns": _COLUMNS,
                    "storage": storage,
                    **label,
                    "account": AccountTerms.for_ceiling(1.0, delta),
                    **(scales if storage == "fixed" else {}),
                }
            )
            spec = JobSpec.model_validate(
                {
                    "dataset": "warm",
                    "algorithm": "gradient-descent",
                    "loss": loss,
                    "privacy": {"epsilon": 1.0},
                    "parameters": {"steps": 1, "clip": 1.0},
                }
            )
            planned = plan(spec, facts)
            data = Data(
                planned,
                np.zeros((_ROWS, _COLUMNS), dtype=dtype),
                np.ones(_ROWS),
                Randomness(bytes(32), "warm"),
            )
            data.noisy_sum(np.zeros(planned.dimension), 0, _ROWS)
            if (storage, loss) == ("fixed", "logistic"):
                job = {"algorithm": "phased-sgd", "parameters": {}}
                phased = plan(spec.model_copy(update=job), facts)
                rows = np.zeros((_ROWS, _COLUMNS), dtype=np.int16), np.ones(_ROWS)
                phased_sgd.run(phased, Data(phased, *rows, Randomness(bytes(32), "")), Progress())
