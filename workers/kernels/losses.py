"""Slopes and values of every loss of one margin, for the passes: a choice among the kernels that the
losses bring, by a code in `Slope`. A code is a number and nothing more: what a kernel is like stands
in its `loop`."""

from collections.abc import Iterable
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from service.planning.draft import Ball
from service.planning.loss import SHARP, BaseLoss, Scalar
from service.planning.plan import Plan
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


def _slope_by_code(pairs: list[tuple[int, Any]]) -> Any:
    """The function (slope, m, y) that has the slope's code; the last of them if none has."""
    (code, first), *others = pairs
    if not others:
        return first
    rest = _slope_by_code(others)

    @njit(inline="always", error_model="numpy")
    def choose(slope, m, y):
        if slope.code == code:
            return first(slope, m, y)
        return rest(slope, m, y)

    return choose


def _value_by_code(pairs: list[tuple[int, Any]]) -> Any:
    """The function (slope, m, y, bend) that has the slope's code; NaN if none has."""
    if not pairs:
        return _no_value
    (code, first), *others = pairs
    rest = _value_by_code(others)

    @njit(inline="always", error_model="numpy")
    def choose(slope, m, y, bend):
        if slope.code == code:
            return first(slope, m, y, bend)
        return rest(slope, m, y, bend)

    return choose


class Choices(NamedTuple):
    """Functions to inline, for the loop that each is named after."""

    exponential32: Any
    straight32: Any
    bent32: Any
    convex64: Any  # of the loops EXPONENTIAL and STRAIGHT
    bent64: Any
    tabulated64: Any
    value64: Any


def choices(codes: dict[Kernel, int]) -> Choices:
    def short(loop: int) -> Any:
        return _slope_by_code([(c, k.slope32) for k, c in codes.items() if k.loop == loop])

    def long(*loops: int) -> Any:
        return _slope_by_code([(c, k.slope64) for k, c in codes.items() if k.loop in loops])

    return Choices(
        exponential32=short(EXPONENTIAL),
        straight32=short(STRAIGHT),
        bent32=short(BENT),
        convex64=long(EXPONENTIAL, STRAIGHT),
        bent64=long(BENT),
        tabulated64=long(TABULATED),
        value64=_value_by_code([(c, k.value64) for k, c in codes.items() if k.value64 is not None]),
    )


_CHOICES = choices(CODES)
exponential32, straight32, bent32 = _CHOICES.exponential32, _CHOICES.straight32, _CHOICES.bent32
_convex64, _bent64, _tabulated64 = _CHOICES.convex64, _CHOICES.bent64, _CHOICES.tabulated64
_value64 = _CHOICES.value64


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
