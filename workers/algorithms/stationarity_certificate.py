"""Runs what service/planning/algorithms/stationarity_certificate.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.certificate import CertificateSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.directions import ball
from workers.progress import Progress
from workers.randomness import Use

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    """The noisy mean gradient at the model, without the ridge: service/planning/certificate.py makes
    a certificate of it."""
    schedule = plan.schedule
    assert isinstance(schedule, CertificateSchedule)
    w, n = data.released, plan.facts.rows
    points = [w]
    if schedule.radius > 0:
        stream = data.stream(Use.DIRECTIONS, 0)
        points = list(w + ball(stream, schedule.points, w.size, schedule.radius))
    gradient = data.noisy_sum_at(points, 0, n) / (n * schedule.points)
    progress.step()
    return gradient
