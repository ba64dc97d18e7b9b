"""The unit vector from x to w, shorter within reach of an envelope's corner."""

import numpy as np

from service.planning.draft import Ball, Moreau
from service.planning.lattice import SumLattice
from service.planning.loss import SHARP
from service.planning.plan import Plan
from workers.arrays import Add, Array, Floats, Sum, read_only
from workers.kernels.averaged_vectors import median_averaged_pass
from workers.kernels.steps import Pass
from workers.kernels.vectors import add_median
from workers.vector_losses import Limits, VectorKernel


def _gradients(plan: Plan, lattice: SumLattice, limits: Limits, weights: Floats) -> Add:
    smoothing = plan.smoothing
    assert not isinstance(smoothing, Ball)
    curvature = SHARP if smoothing is None else smoothing.smoothness
    bound, use_l1 = float(limits.contribution), lattice.norm == "l1"
    step = plan.facts.feature_step or 1.0
    arguments = step, read_only(weights), curvature, lattice.clip, bound, use_l1

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros(weights.size, dtype=np.int64)
        add_median(total, x, *arguments)
        return total

    return add


def _averaged_pass(plan: Plan) -> Pass:
    smoothing, unit = plan.smoothing, plan.facts.feature_step or 0.0
    assert isinstance(smoothing, Moreau)
    return lambda w, total, x, y, order, steps: median_averaged_pass(
        w, total, x, order, smoothing.smoothness, unit, steps
    )


KERNEL = VectorKernel(_gradients, averaged_pass=_averaged_pass)
