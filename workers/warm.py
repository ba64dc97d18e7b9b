"""Compile or load every kernel before the first job, in the process that will run it.

numba's cache is keyed by CPU and cannot be shipped; a worker that starts warm never makes a job pay.
"""

import numpy as np

from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.data import Data
from workers.randomness import Randomness

_ROWS, _COLUMNS = 20, 17


def warm() -> None:
    """One tiny release of every kind: rows of either storage, noise of either kind."""
    for storage, dtype in (("fixed", np.int16), ("float64", np.float64)):
        scales = {"feature_step": 1e-3, "linf_units": 4095, "l2_units": 4095}
        for delta in (1e-6, 0.0):
            facts = Facts.model_validate(
                {
                    "rows": _ROWS,
                    "columns": _COLUMNS,
                    "storage": storage,
                    "label": "binary",
                    "account": AccountTerms.for_ceiling(1.0, delta),
                    **(scales if storage == "fixed" else {}),
                }
            )
            spec = JobSpec.model_validate(
                {
                    "dataset": "warm",
                    "algorithm": "gradient-descent",
                    "loss": "logistic",
                    "privacy": {"epsilon": 1.0},
                    "parameters": {"steps": 1, "clip": 1.0},
                }
            )
            data = Data(
                plan(spec, facts),
                np.zeros((_ROWS, _COLUMNS), dtype=dtype),
                np.ones(_ROWS),
                Randomness(bytes(32), "warm"),
            )
            data.noisy_sum(np.zeros(_COLUMNS), 0, _ROWS)
