"""Runs what service/planning/algorithms/column_summaries.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.estimates import SummarySchedule, ranges_for
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule = plan.schedule
    assert isinstance(schedule, SummarySchedule)
    first, *later = schedule.counts
    released = [data.noisy_counts(first)]
    progress.step()
    for counts in later:
        released.append(data.noisy_counts(counts, ranges_for(schedule, released[0])))
        progress.step()
    return np.concatenate(released)
