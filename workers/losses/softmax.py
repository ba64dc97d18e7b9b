"""q (x) x with q = softmax(margins) - e_label, one margin per class. Weights and sums are one class
after the other."""

from math import isqrt, sqrt

import numpy as np

from service.planning.lattice import SumLattice
from service.planning.plan import Plan
from service.planning.spec import Facts
from workers.arrays import Add, Array, Floats, Sum, integer_weights, read_only
from workers.kernels.averaged_vectors import softmax_averaged_pass
from workers.kernels.steps import Pass
from workers.kernels.vectors import add_softmax_fixed, add_softmax_float
from workers.vector_losses import Limits, VectorKernel


def _gradients(plan: Plan, lattice: SumLattice, limits: Limits, weights: Floats) -> Add:
    matrix = weights.reshape(plan.facts.classes or 0, plan.facts.columns)
    if plan.facts.storage == "fixed":
        return _fixed(plan.facts, lattice, limits, matrix)
    return _float(lattice, limits, matrix)


def _fixed(facts: Facts, lattice: SumLattice, limits: Limits, matrix: Floats) -> Add:
    bound, scale, layout = limits.layout
    units, worth = integer_weights(matrix, facts.l2_units or 0)
    padded, use_l1 = layout.pad(units), lattice.norm == "l1"
    steps = np.minimum((facts.feature_step or 0.0) * worth, 1e280)
    arguments = padded, read_only(steps), scale, float(bound), use_l1, layout.fast

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros(padded.shape, dtype=np.int64)
        add_softmax_fixed(total, x, y, *arguments)
        return layout.unpad(total).ravel()

    return add


def _float(lattice: SumLattice, limits: Limits, matrix: Floats) -> Add:
    for_slopes = isqrt(limits.contribution)
    for_rows = limits.contribution // for_slopes  # their product is within the bound
    columns = read_only(np.ascontiguousarray(matrix.T))
    arguments = columns, lattice.clip, float(for_slopes), float(for_rows), lattice.norm == "l1"

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros(matrix.shape, dtype=np.int64)
        add_softmax_float(total, x, y, *arguments)
        return total.ravel()

    return add


def _slope_at_zero(facts: Facts) -> float:
    return sqrt(1 - 1 / (facts.classes or 2))  # chances are equal


def _mean_gradient(x: Floats, y: Floats, w: Floats) -> Floats:
    margins = x @ w.reshape(-1, x.shape[1]).T
    chances = np.exp(margins - margins.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(y)), y.astype(int)] -= 1
    return np.asarray((chances.T @ x).ravel() / len(x))


def _averaged_pass(plan: Plan) -> Pass:
    classes, unit = plan.facts.classes or 0, plan.facts.feature_step or 0.0
    return lambda w, total, x, y, order, steps: softmax_averaged_pass(
        w, total, x, y, order, classes, unit, steps
    )


KERNEL = VectorKernel(
    _gradients,
    averaged_pass=_averaged_pass,
    slope_at_zero=_slope_at_zero,
    mean_gradient=_mean_gradient,
)
