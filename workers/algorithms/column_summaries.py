"""Runs what service/planning/algorithms/column_summaries.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    released = []
    for counts in plan.counted:
        released.append(data.noisy_counts(counts))
        progress.step()
    return np.concatenate(released)
