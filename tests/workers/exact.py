"""Sums before noise, for tests that attack their sensitivity."""

import numpy as np

from workers.data import Estimate


def exact_sum(data, weights, start, stop):
    return data._sums.gradients(weights, data._rows.within(start, stop))


def exact_batch(data, weights, positions):
    return data._sums.gradients(weights, positions)


def exact_change(data, now, before, keep, bound, start, stop):
    return data._sums.changes(now, before, keep, bound, data._rows.within(start, stop))


def exact_counts(data):
    return data._sums.shorter()


def exact_estimate(data, at, before, directions, start, stop):
    """As the oracle of the Plan's schedule makes it, on the lattice of gradients or of changes."""
    schedule = data._plan.schedule
    data.use(data._plan.lattice if before is None else schedule.later)
    radius = schedule.radius if schedule.oracle.startswith("zero") else None
    estimate = Estimate(at, before, directions, radius)
    return np.asarray(data._estimated(estimate, data._rows.within(start, stop)))
