"""Runs what service/planning/algorithms/model_evaluation.py planned."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.model_evaluation import EvaluationSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule = plan.schedule
    assert isinstance(schedule, EvaluationSchedule)
    models = data.released.reshape(len(plan.spec.named), -1)
    tables: NDArray[np.float64] = cast(Any, data).noisy_scores(schedule.counts, models)
    progress.step()
    return tables
