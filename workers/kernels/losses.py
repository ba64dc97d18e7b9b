"""Slopes and values of every loss of one margin, for the passes: a choice among the kernels that the
losses bring, by the type of a `Slope` and a code in it. A code is a number and nothing more: what a
kernel is like stands in its `loop`, the type."""

from collections.abc import Iterable
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from service.planning.draft import Ball
from service.planning.loss import SHARP, BaseLoss, Scalar
from service.planning.plan import Plan
from workers.kernels.ball import NO_TABLE, ball_marginal
from workers.kernels.shapes import (
    AVERAGED32,
    AVERAGED64,
    BENT,
    EXPONENTIAL,
    STRAIGHT,
    Kernel,
    Line,
    Slope,
)
from workers.kernels.steps import Pass
from workers.losses import KERNELS, VECTOR_KERNELS


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
    line = averaged.line._replace(curvature=1 / reach)
    return averaged._replace(straight=False, line=line, table=table, means=means)


def vector_pass_of(plan: Plan) -> Pass:
    """A pass of averaged SGD, for a loss whose gradients are no multiple of the row."""
    made = VECTOR_KERNELS[plan.spec.loss.kind].averaged_pass
    if made is None:
        raise TypeError(f"no pass of single steps is known for {plan.spec.loss.kind}")
    return made(plan)


def exact_slope(loss: BaseLoss) -> Slope:
    """That of the loss as it is."""
    return as_slope(KERNELS[loss.kind], loss.scalar())


def as_slope(kernel: Kernel, shape: Scalar) -> Slope:
    return kernel.loop(
        CODES[kernel],
        shape.straight,
        shape.argument == "residual",
        Line(shape.curvature, shape.low, shape.high),
        NO_TABLE,
        NO_TABLE,
    )


# --- the choice among kernels -----------------------------------------------------------------------
# Compiled functions that call one of several by its code, made one inside the other: inlined, they are
# the if-chain that would be written by hand.


@njit(inline="always", error_model="numpy")
def _no_value(code, line, m, y, bend):
    return nan


def _slope_by_code(pairs: list[tuple[int, Any]]) -> Any:
    """The function with this code; the last of them if none has it."""
    (its, first), *others = pairs
    if not others:

        @njit(inline="always", error_model="numpy")
        def last(code, about, m, y):
            return first(about, m, y)

        return last
    rest = _slope_by_code(others)

    @njit(inline="always", error_model="numpy")
    def choose(code, about, m, y):
        if code == its:
            return first(about, m, y)
        return rest(code, about, m, y)

    return choose


def _value_by_code(pairs: list[tuple[int, Any]]) -> Any:
    """The function with this code; NaN if none has it."""
    if not pairs:
        return _no_value
    (its, first), *others = pairs
    rest = _value_by_code(others)

    @njit(inline="always", error_model="numpy")
    def choose(code, line, m, y, bend):
        if code == its:
            return first(line, m, y, bend)
        return rest(code, line, m, y, bend)

    return choose


class Choices(NamedTuple):
    """Functions to inline, for the loop that each is named after: of a code and what kernels take."""

    exponential32: Any
    straight32: Any
    bent32: Any
    averaged32: Any
    convex64: Any  # of the loops EXPONENTIAL and STRAIGHT
    bent64: Any
    averaged64: Any  # of AVERAGED64
    averaged32_64: Any  # of AVERAGED32
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
        averaged32=short(AVERAGED32),
        convex64=long(EXPONENTIAL, STRAIGHT),
        bent64=long(BENT),
        averaged64=long(AVERAGED64),
        averaged32_64=long(AVERAGED32),
        value64=_value_by_code([(c, k.value64) for k, c in codes.items() if k.value64 is not None]),
    )


_CHOICES = choices(CODES)
exponential32, straight32 = _CHOICES.exponential32, _CHOICES.straight32
bent32, averaged32 = _CHOICES.bent32, _CHOICES.averaged32
_convex64, _bent64, _value64 = _CHOICES.convex64, _CHOICES.bent64, _CHOICES.value64
_averaged64, _averaged32_64 = _CHOICES.averaged64, _CHOICES.averaged32_64


@njit(cache=True, error_model="numpy")
def averaged64(slope, m, y):
    return _averaged64(slope.code, slope, m, y)


@njit(cache=True, forceinline=True, error_model="numpy")
def convex64(code, line, m, y):
    return _convex64(code, line, m, y)


@njit(cache=True, error_model="numpy")
def bent64(code, line, m, y):
    return _bent64(code, line, m, y)


def by_loop(stub: Any, inline: str, **implementations: Any) -> None:
    """Compiled code that calls `stub` is given the implementation for the type of its slope, which is
    the argument called `slope`, and compiles no other."""

    @overload(stub, jit_options={"error_model": "numpy"}, inline=inline, strict=False)
    def choose(*arguments: Any) -> Any:
        (slope,) = (one for one in arguments if isinstance(one, types.NamedTuple))
        return implementations[slope.instance_class.__name__]


def _derivative64(slope, m, y):
    """dl/dm."""
    raise NotImplementedError


@njit(cache=True, inline="always", error_model="numpy")
def derivative64(slope, m, y):
    """dl/dm. Inlined, since a call would count references to the tables; numbers are passed for
    nothing, and LLVM inlines what most losses need."""
    return _derivative64(slope, m, y)


def _convex(slope, m, y):
    return convex64(slope.code, slope.line, m, y)


def _bent(slope, m, y):
    return bent64(slope.code, slope.line, m, y)


def _averaged_by_either(slope, m, y):
    return _averaged32_64(slope.code, slope, m, y)


def _averaged(slope, m, y):
    return averaged64(slope, m, y)


by_loop(
    _derivative64,
    "always",
    EXPONENTIAL=_convex,
    STRAIGHT=_convex,
    BENT=_bent,
    AVERAGED32=_averaged_by_either,
    AVERAGED64=_averaged,
)


@njit(cache=True, nogil=True, error_model="numpy")
def slopes_at(slope, margins, y):
    """dl/dm at each margin and label."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = derivative64(slope, margins[i], y[i])
    return out


@njit(cache=True, forceinline=True, error_model="numpy")
def _value(code, line, m, y, bend):
    return _value64(code, line, m, y, bend)


@njit(cache=True, inline="always", error_model="numpy")
def value64(slope, m, y, bend):
    """The loss at a margin where its slope is `bend`, or was clamped to it; the smallest value is 0.
    Of a loss averaged over a ball it is NaN."""
    return _value(slope.code, slope.line, m, y, bend)


@njit(cache=True, inline="always", error_model="numpy")
def value_at(slope, m, y):
    """The loss at a margin. Only a straight slope is needed for its value."""
    bend = convex64(slope.code, slope.line, m, y) if slope.straight else 0.0
    return _value(slope.code, slope.line, m, y, bend)
