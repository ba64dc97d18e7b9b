"""Runs what service/planning/algorithms/online_to_nonconvex.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.online_to_nonconvex import OnlineToNonconvexSchedule
from service.planning.lattice import SumLattice
from service.planning.plan import Plan
from service.planning.vectors import length
from workers.data import Data, Estimate
from workers.directions import ball, frame, start_of, uniforms
from workers.progress import Progress
from workers.randomness import Use

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, first, ridge = plan.schedule, plan.lattice, plan.spec.ridge
    assert isinstance(schedule, OnlineToNonconvexSchedule) and isinstance(first, SumLattice)
    clip = data.settle_clip()
    eta = schedule.step_size / (clip if schedule.step_per_clip else 1.0)
    path = uniforms(data.stream(Use.PATH, 0), schedule.steps)
    blocks = schedule.steps // schedule.block
    chosen = data.drawn(blocks) if schedule.output == "random" else blocks - 1
    x = plan.spec.set.project(start_of(plan, data.stream(Use.PATH, 1)))
    move, total, mean = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    z = before = x
    row = 0
    for t in range(schedule.steps):
        place = plan.spec.set.project(x + move)
        move = place - x  # no longer than it was, since x is in the set
        z, before = x + path[t] * move, z
        x = place
        whole = t % schedule.period == 0
        lattice = first if whole else schedule.later
        estimate = Estimate(
            at=z,
            before=None if whole else before,
            directions=_directions(plan, schedule, data, t),
            radius=schedule.radius if schedule.oracle.startswith("zero") else None,
        )
        if schedule.mechanism is None:
            batch = schedule.rows_of(whole)
            drawn = batch if batch < plan.facts.rows else None
            change = data.noisy_gradient(estimate, lattice, drawn)
            total = change if whole else total + change
        else:
            if whole:
                data.begin_prefixes(schedule.mechanism, schedule.period)
            stop = row + schedule.rows_of(whole)
            total = data.noisy_prefix(estimate, lattice, row, stop)
            row = stop
        move = move - eta * (total + ridge * z)
        move *= min(1.0, schedule.reach / max(length(move), 1e-300))
        if t // schedule.block == chosen:
            mean += z / schedule.block
        progress.step()
    return mean


def _directions(
    plan: Plan, schedule: OnlineToNonconvexSchedule, data: Data, t: int
) -> Floats | None:
    """Fresh for each step, the same for all of its rows and at both of its points."""
    m, d = schedule.directions, plan.dimension
    if schedule.oracle.startswith("zero"):
        return frame(data.stream(Use.DIRECTIONS, t), m, d)
    if plan.spec.model.kind == "linear":
        return None
    return ball(data.stream(Use.DIRECTIONS, t), m, d, schedule.radius)
