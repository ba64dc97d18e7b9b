"""Slopes and values of every loss of one margin, for the passes: a choice among the kernels that the
losses bring, by a code in `Slope`. A code is a number and nothing more: what a kernel is like stands
in its `loop`."""

from collections.abc import Callable, Iterable
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from service.planning.loss import SHARP, BaseLoss, Scalar
from service.planning.plan import Ball, Plan
from workers.kernels.ball import NO_TABLE, ball_marginal
from workers.kernels.shapes import BENT, EXPONENTIAL, STRAIGHT, TABULATED, Kernel
from workers.losses import KERNELS


class Slope(NamedTuple):
    """A loss as the passes take it. `curvature` is per unit of margin; for a loss averaged over a
    ball it scales the margin to the table's [-1, 1]."""

    code: int
    loop: int
    straight: bool  # a line between two bounds, and not averaged
    residual: bool  # a function of m - y
    curvature: float
    low: float
    high: float
    table: NDArray[np.float64]
    means: NDArray[np.float64]


def codes_of(kernels: Iterable[Kernel]) -> dict[Kernel, int]:
    """A code for every kernel: several losses may share one."""
    both = [part for kernel in kernels for part in (kernel, kernel.averaged) if part is not None]
    return {kernel: code for code, kernel in enumerate(dict.fromkeys(both))}


CODES = codes_of(KERNELS.values())


def slope_of(plan: Plan) -> Slope:
    """The slope that the Plan's kernels evaluate: its loss, smoothed as the Plan says."""
    loss, smoothing = plan.spec.loss, plan.smoothing
    if smoothing is None:
        return exact_slope(loss)
    shape, kernel = loss.scalar(), KERNELS[loss.kind]
    if not isinstance(smoothing, Ball):
        return as_slope(kernel, shape.smoothed(smoothing.smoothness))
    if shape.curvature != SHARP:
        raise ValueError("only a loss with a corner is averaged over a ball")
    width, table, means = ball_marginal(plan.facts.columns + 1)
    reach = smoothing.radius * (plan.facts.l2 or 1.0) * width
    averaged = as_slope(kernel.averaged, shape)
    return averaged._replace(straight=False, curvature=1 / reach, table=table, means=means)


def exact_slope(loss: BaseLoss) -> Slope:
    """That of the loss as it is."""
    return as_slope(KERNELS[loss.kind], loss.scalar())


def as_slope(kernel: Kernel, shape: Scalar) -> Slope:
    return Slope(
        CODES[kernel],
        kernel.loop,
        shape.straight,
        shape.argument == "residual",
        shape.curvature,
        shape.low,
        shape.high,
        NO_TABLE,
        NO_TABLE,
    )


# --- the choice among kernels -----------------------------------------------------------------------
# Compiled functions that call one of several by its code, made one inside the other: inlined, they are
# the if-chain that would be written by hand.


@njit(inline="always", error_model="numpy")
def _no_value(slope, m, y, bend):
    return nan


def slopes_by_code(pairs: list[tuple[int, Any]]) -> Any:
    """The function (slope, m, y) with the slope's code; the last of them if there is none."""
    (code, first), *others = pairs
    if not others:
        return first
    rest = slopes_by_code(others)

    @njit(inline="always", error_model="numpy")
    def choose(slope, m, y):
        if slope.code == code:
            return first(slope, m, y)
        return rest(slope, m, y)

    return choose


def values_by_code(pairs: list[tuple[int, Any]]) -> Any:
    """The function (slope, m, y, bend) with the slope's code; NaN if there is none."""
    if not pairs:
        return _no_value
    (code, first), *others = pairs
    rest = values_by_code(others)

    @njit(inline="always", error_model="numpy")
    def choose(slope, m, y, bend):
        if slope.code == code:
            return first(slope, m, y, bend)
        return rest(slope, m, y, bend)

    return choose


def in_loops(
    codes: dict[Kernel, int], loops: tuple[int, ...], part: Callable[[Kernel], Any]
) -> list[tuple[int, Any]]:
    return [(code, part(kernel)) for kernel, code in codes.items() if kernel.loop in loops]


exponential32 = slopes_by_code(in_loops(CODES, (EXPONENTIAL,), lambda kernel: kernel.slope32))
straight32 = slopes_by_code(in_loops(CODES, (STRAIGHT,), lambda kernel: kernel.slope32))
bent32 = slopes_by_code(in_loops(CODES, (BENT,), lambda kernel: kernel.slope32))
_convex64 = slopes_by_code(in_loops(CODES, (EXPONENTIAL, STRAIGHT), lambda kernel: kernel.slope64))
_bent64 = slopes_by_code(in_loops(CODES, (BENT,), lambda kernel: kernel.slope64))
_tabulated64 = slopes_by_code(in_loops(CODES, (TABULATED,), lambda kernel: kernel.slope64))
_value64 = values_by_code(
    [(code, kernel.value64) for kernel, code in CODES.items() if kernel.value64 is not None]
)


@njit(cache=True, error_model="numpy")
def tabulated64(slope, m, y):
    return _tabulated64(slope, m, y)


@njit(cache=True, error_model="numpy")
def bent64(slope, m, y):
    return _bent64(slope, m, y)


@njit(cache=True, inline="always", error_model="numpy")
def derivative64(slope, m, y):
    """dl/dm. Only what most losses need is inlined."""
    if slope.loop == TABULATED:
        return tabulated64(slope, m, y)
    if slope.loop == BENT:
        return bent64(slope, m, y)
    return _convex64(slope, m, y)


@njit(cache=True, nogil=True, error_model="numpy")
def slopes_at(slope, margins, y):
    """dl/dm at each margin and label."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = derivative64(slope, margins[i], y[i])
    return out


@njit(cache=True, error_model="numpy")
def value64(slope, m, y, bend):
    """The loss at a margin where its slope is `bend`, or was clamped to it; the smallest value is 0.
    Of a loss averaged over a ball it is NaN."""
    return _value64(slope, m, y, bend)


@njit(cache=True, inline="always", error_model="numpy")
def value_at(slope, m, y):
    """The loss at a margin. Only a straight slope is needed for its value."""
    return value64(slope, m, y, derivative64(slope, m, y) if slope.straight else 0.0)
