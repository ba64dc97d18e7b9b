"""Sums of clipped per-record gradients of linear models, as exact integers.

One pass per call: margin, derivative, clip, quantise, accumulate. What a record adds to the sum is an
integer vector whose norm is at most the Plan's bound *by integer arithmetic*, whatever the floats
did: a NaN, an infinity or a rounding can make a contribution useless but never too large. Sums are
int64 and exact, so they do not depend on the order of rows, blocks or threads. The Plan excludes
overflow; and a wrapped sum would still be a function of the exact one.

error_model="numpy": a division by zero gives an infinity, as IEEE 754 says, and not an exception,
which would depend on the data (and keep the compiler from writing vector code).

Checked here: the bound on every contribution. Caller's duty: for fixed rows, that ||x||_2 (or
||x||_1) is at most the row bound with which the Plan was made; ingestion verified that in integers.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from workers.kernels.losses import (
    averaged32,
    averaged64,
    bent32,
    derivative64,
    exponential32,
    straight32,
)
from workers.kernels.madd import ROWS, _Code, accumulate16, margins16
from workers.kernels.shapes import AVERAGED32, AVERAGED64, BENT, EXPONENTIAL

_f = np.float32
_i = np.int32
_HALF = _f(0.5)
BLOCK = 128

GROUP = 8  # float64 rows that take each step together
LANES = 8  # float64 columns in a vector
_TINY = 1e-290
_SMALL, _LARGE, _SCALE = 2.0**-480, 2.0**480, 2.0**700  # squares: within 2^-960..2^960 in any case
_INT = ir.IntType(64)
_FLOATS, _INTS = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(_INT, LANES)


@njit(cache=True, inline="always", error_model="numpy")
def _units(slope, scale, bound):
    scaled = _f(slope * scale)
    scaled = scaled if scaled == scaled else _f(0.0)  # noqa: PLR0124 - vector code for isnan
    scaled = scaled if scaled < bound else bound
    scaled = scaled if scaled > -bound else _f(-bound)
    units = _i(np.floor(_f(scaled + _HALF)))
    units = units if units < _i(bound) else _i(bound)
    return units if units > _i(-bound) else _i(-bound)


@njit(cache=True, nogil=True, error_model="numpy")
def _quantise(margins, y, margin_step, loss, scale, bound, q):
    """q = the derivatives times `scale`, to the nearest integer, within [-bound, bound].

    A NaN counts as zero, and only values within the bound are ever converted; the clamp of integers is
    what the guarantee rests on. Losses share a loop with their like: see shapes.py.
    """
    code, line = loss.code, loss.line
    if loss.loop == EXPONENTIAL:
        for i in range(q.size):
            slope = exponential32(code, line, _f(_f(margins[i]) * margin_step), y[i])
            q[i] = _units(slope, scale, bound)
    elif loss.loop == AVERAGED64:
        for i in range(q.size):
            slope = _f(averaged64(loss, np.float64(_f(margins[i]) * margin_step), np.float64(y[i])))
            q[i] = _units(slope, scale, bound)
    elif loss.loop == AVERAGED32:
        for i in range(q.size):
            slope = averaged32(code, loss, _f(_f(margins[i]) * margin_step), y[i])
            q[i] = _units(slope, scale, bound)
    elif loss.loop == BENT:
        for i in range(q.size):
            slope = bent32(code, line, _f(_f(margins[i]) * margin_step), y[i])
            q[i] = _units(slope, scale, bound)
    else:
        for i in range(q.size):
            slope = straight32(code, line, _f(_f(margins[i]) * margin_step), y[i])
            q[i] = _units(slope, scale, bound)


@njit(cache=True, nogil=True, error_model="numpy")
def add_fixed(total, x, y, weights, margin_step, loss, scale, bound, fast):
    """total += sum of q x over int16 rows: |q| <= bound <= 2^15 - 1, so ||q x|| <= bound ||x||.

    `weights` are int16 units of margin_step such that no margin leaves int32, since
    ||weights||_2 ||x||_2 < 2^31 (caller's duty; else margins wrap, which no bound rests on). Blocks of
    rows stay in the nearest cache from margin to sum; sixteen products stay within int32. With
    `fast`, `weights` and `total` come in chunks (see madd.py); the loops here are the same thing for
    any CPU, and for the last rows.
    """
    rows, columns = x.shape
    margins, q = np.empty(BLOCK, dtype=np.int32), np.empty(BLOCK, dtype=np.int16)
    partial = np.zeros(total.size, dtype=np.int32)
    chunks = _chunks(columns, total.size, fast)
    plain = weights[chunks]
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        _margins(x, first, weights, plain, fast, margins[:count])
        labels = y[first : first + count]
        _quantise(margins[:count], labels, margin_step, loss, scale, bound, q[:count])
        _accumulate(x, first, q[:count], chunks, fast, partial, total)


@njit(cache=True, nogil=True, error_model="numpy")
def add_fixed_change(
    total, x, y, before, before_step, move, move_step, loss, keep, scale, bound, fast
):
    """The same with q = the nearest integer to scale (l'(m) - keep l'(m')), within [-bound, bound],
    where m' = <before, x> and m = m' + <move, x>.

    Two margins, each of weights with a step of its own: rounding `before` moves both slopes' places
    alike, so their difference is as fine as `move` is, however short that is. Slopes are float64,
    whose differences still have digits when they are small.
    """
    rows, columns = x.shape
    margins, moves = np.empty((2, BLOCK), dtype=np.int32)
    q = np.empty(BLOCK, dtype=np.int16)
    partial = np.zeros(total.size, dtype=np.int32)
    chunks = _chunks(columns, total.size, fast)
    plain_before, plain_move = before[chunks], move[chunks]
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        _margins(x, first, before, plain_before, fast, margins[:count])
        _margins(x, first, move, plain_move, fast, moves[:count])
        for r in range(count):
            there, label = margins[r] * before_step, y[first + r]
            slope = derivative64(loss, there + moves[r] * move_step, label)
            slope -= keep * derivative64(loss, there, label)
            scaled = slope * scale
            scaled = scaled if scaled == scaled else 0.0  # noqa: PLR0124 - a NaN counts as zero
            scaled = scaled if abs(scaled) <= bound else (bound if scaled > 0.0 else -bound)
            q[r] = min(max(np.int64(np.rint(scaled)), -bound), bound)
        _accumulate(x, first, q[:count], chunks, fast, partial, total)


@njit(cache=True, nogil=True)
def _chunks(columns, size, fast):
    """Where each column stands in weights and total."""
    chunks = np.arange(columns)
    for j in range(columns - columns % ROWS if fast else columns, columns):
        chunks[j] = size - (columns - j)
    return chunks


@njit(cache=True, nogil=True, error_model="numpy")
def _margins(x, first, weights, plain, fast, margins):
    """margins[r] = <x[first + r], weights>; `plain` are the weights in the order of columns."""
    count, columns = margins.size, x.shape[1]
    quick = count - count % ROWS if fast else 0
    for r in range(0, quick, ROWS):
        margins16(x, first + r, weights, margins[r : r + ROWS])
    for r in range(quick, count):
        row, margin = x[first + r], _i(0)
        for j in range(columns):
            margin = _i(margin + _i(_i(row[j]) * _i(plain[j])))
        margins[r] = margin


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulate(x, first, q, chunks, fast, partial, total):
    """total += sum of q[r] x[first + r]; `partial` is zero before and after."""
    count, columns = q.size, x.shape[1]
    quick = count - count % ROWS if fast else 0
    for r in range(0, quick, ROWS):
        accumulate16(x, first + r, q[r : r + ROWS], total)
    for low in range(quick, count, ROWS):
        for r in range(low, min(low + ROWS, count)):
            row, multiplier = x[first + r], _i(q[r])
            for j in range(columns):
                partial[j] = _i(partial[j] + _i(multiplier * _i(row[j])))
        for j in range(columns):
            total[chunks[j]] += partial[j]
            partial[j] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def add_float(total, x, y, weights, loss, clip, bound, use_l1, before=None, share=0.0):
    """total += sum of v over float64 rows, v = the gradient clipped to `clip` and written in units of
    clip/bound, rounded towards zero; the norm of v is checked in integers against `bound` <= 2^30.

    A gradient with a non-finite entry counts as zero, and so does a row below 1e-290. Rows whose
    squares could leave float64's range are measured once more, scaled by a power of two, so a record
    at 1e300 is clipped like any other. Else every record takes the same work. With `before`, a
    gradient is that at `weights` less `share` times that at `before`: one vector, clipped as one.

    Fast because a few rows at a time go through each step while they are in the nearest cache, in
    vectors of LANES columns that the two helpers below spell out: LLVM does not reorder sums of floats
    by itself. The order that they fix is the same on every CPU. The columns after the last whole
    vector are copied to `ends`, which has zeros behind them.
    """
    rows, columns = x.shape
    whole = columns - columns % LANES
    w, sums = np.zeros(whole + LANES), np.zeros(whole + LANES, dtype=np.int64)
    w_before = np.zeros(whole + LANES)
    w[:columns], w_before[:columns] = weights, weights if before is None else before
    ends, v = np.zeros((GROUP, LANES)), np.zeros((GROUP, whole + LANES), dtype=np.int64)
    margins, sizes, scales, factors = np.ones((4, GROUP))
    keep = np.zeros(GROUP, dtype=np.int64)  # -1, or 0 for a record that counts as zero
    limit = np.int64(bound if use_l1 else bound * bound)
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        for r in range(count):
            for j in range(whole, columns):
                ends[r, j - whole] = x[first + r, j]
        for r in range(count):
            largest, margin, size = _measure(x, first + r, ends, r, 1.0, w, use_l1)
            scale = 1.0
            if _TINY < largest < _SMALL or _LARGE < largest < np.inf:
                scale = _SCALE if largest < 1.0 else 1.0 / _SCALE
                _, margin, size = _measure(x, first + r, ends, r, scale, w, use_l1)
            keep[r] = -1 if largest > _TINY else 0
            margins[r], sizes[r], scales[r] = margin, size, scale
        for r in range(count):
            slope = derivative64(loss, margins[r] / scales[r], y[first + r])
            if before is not None:
                _, margin, _ = _measure(x, first + r, ends, r, scales[r], w_before, use_l1)
                slope -= share * derivative64(loss, margin / scales[r], y[first + r])
            size = sizes[r] if use_l1 else np.sqrt(sizes[r])  # of x times its scale
            if size * 0.0 + slope * 0.0 != 0.0:  # NaN after an infinity or a NaN
                keep[r] = 0
            # |gradient| = reach * size; reach may overflow to inf, which clips
            reach = abs(slope) / scales[r]
            factor = bound / size if reach * size > clip else reach / clip * bound
            factors[r] = (-factor if slope < 0.0 else factor) * scales[r]
        for r in range(count):
            tries = 0
            while not _convert(x, first + r, ends, r, factors[r], keep[r], limit, use_l1, v):
                # rounding pushed it over: shrink until the integers agree, which once will do
                factors[r] *= 1.0 - 2.0**-30
                tries += 1
                keep[r] = keep[r] if tries < 5 else 0
        v[count:] = 0
        for j in range(v.shape[1]):
            column = np.int64(0)
            for r in range(GROUP):
                column += v[r, j]
            sums[j] += column
    total += sums[:columns]


class _Row(_Code):
    """Loops over one float64 row in vectors, with the few operations that they need."""

    def over(self, x, i, ends, r, use_l1, start, step):
        """The values that step(l1, column, vector, *values) makes of `start`, vector by vector.

        There is a loop for each norm: nothing is decided within."""
        builder = self.builder
        columns = builder.extract_value(x.shape, 1)
        whole = builder.udiv(columns, _INT(LANES))
        begin, end = builder.mul(i, columns), builder.mul(r, _INT(LANES))
        cells = [cgutils.alloca_once_value(builder, value) for value in start]

        def take(l1, column, vector):
            values = step(l1, column, vector, *map(builder.load, cells))
            for cell, value in zip(cells, values, strict=True):
                builder.store(value, cell)

        with builder.if_else(use_l1) as branches:
            for l1, branch in zip((True, False), branches, strict=True):
                with branch:
                    with cgutils.for_range(builder, whole) as loop:
                        column = builder.mul(loop.index, _INT(LANES))
                        place = builder.add(begin, column)
                        take(l1, column, self.load(x, place, _FLOATS, 8))
                    column = builder.mul(whole, _INT(LANES))
                    take(l1, column, self.load(ends, end, _FLOATS, 8))
        return [builder.load(cell) for cell in cells]

    def fold(self, vector, combine):
        """All lanes combined, halves first."""
        width = LANES
        while width > 1:
            width //= 2
            low, high = range(width), range(width, 2 * width)
            vector = combine(self.shuffle(vector, vector, low), self.shuffle(vector, vector, high))
        return self.builder.extract_element(vector, ir.IntType(32)(0))

    def spread(self, value):
        empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        single = self.builder.insert_element(empty, value, ir.IntType(32)(0))
        return self.shuffle(single, single, [0] * LANES)

    def maths(self, name, *arguments):
        return self.call(f"llvm.{name}.v{LANES}f64", _FLOATS, *arguments)

    def larger(self, a, b):
        """The larger, or b if a is a NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def _measure(typing_context, x, i, ends, r, scale, weights, use_l1):
    """Of row i of x times `scale`: (largest |entry|, <row, weights>, sum of squares or of |entries|).

    The largest passes over NaNs, the sums do not. fma is one instruction on any CPU since 2013, and
    the same bits on all."""

    def generate(context, builder, signature, arguments):
        code = _Row(context, builder, signature, arguments)
        x, i, ends, r, scale, weights, use_l1 = code.arrays
        scales = code.spread(scale)

        def step(l1, column, vector, largest, margin, size):
            vector = builder.fmul(vector, scales)
            length = code.maths("fabs", vector)
            margin = code.maths("fma", vector, code.load(weights, column, _FLOATS, 8), margin)
            size = builder.fadd(size, length) if l1 else code.maths("fma", vector, vector, size)
            return code.larger(length, largest), margin, size

        start = [ir.Constant(_FLOATS, [0.0] * LANES)] * 3
        largest, *sums = code.over(x, i, ends, r, use_l1, start, step)
        out = [code.fold(largest, code.larger), *(code.fold(s, builder.fadd) for s in sums)]
        return context.make_tuple(builder, signature.return_type, out)

    if x.layout != "C":
        return None
    n, f = types.int64, types.float64
    return types.UniTuple(f, 3)(x, n, ends, n, f, weights, types.boolean), generate


@intrinsic
def _convert(typing_context, x, i, ends, r, factor, keep, limit, use_l1, v):
    """v[r] = the row i of x times `factor`, rounded towards zero; whether its sum of squares (or of
    absolute values) is at most `limit` <= 2^60.

    A whole number t below 2^31 added to 1.5 * 2^52 + 2^31 leaves t + 2^31 in the low 32 bits. Whatever
    the float was, those 32 bits less 2^31 are an int32, so its square is at most 2^62 and a lane's sum
    passes through [2^61, 2^63) before it could wrap: `seen` keeps the bit. Eight lanes below 2^61 do
    not wrap either. With `keep` = 0 all bits are masked away.
    """

    def generate(context, builder, signature, arguments):
        code = _Row(context, builder, signature, arguments)
        x, i, ends, r, factor, keep, limit, use_l1, v = code.arrays
        factors = code.spread(factor)
        mask = code.spread(builder.and_(keep, _INT(2**32 - 1)))
        bias = code.spread(builder.and_(keep, _INT(2**31)))
        magic = ir.Constant(_FLOATS, [1.5 * 2.0**52 + 2.0**31] * LANES)
        zero, half = (ir.Constant(_INTS, [value] * LANES) for value in (0, 32))
        home = builder.mul(r, builder.extract_value(v.shape, 1))
        later = builder.mul(builder.add(i, _INT(GROUP)), builder.extract_value(x.shape, 1))

        def step(l1, column, vector, size, seen):
            # asks for a row of the next group, whose address may be beyond the end: only a hint
            ahead = builder.gep(x.data, [builder.add(later, column)])
            hint = builder.bitcast(ahead, ir.IntType(8).as_pointer())
            code.call("llvm.prefetch.p0", ir.VoidType(), hint, *map(ir.IntType(32), (0, 3, 1)))
            whole = code.maths("trunc", builder.fmul(vector, factors))
            bits = builder.bitcast(builder.fadd(whole, magic), _INTS)
            units = builder.sub(builder.and_(bits, mask), bias)
            place = builder.gep(v.data, [builder.add(home, column)])
            builder.store(units, builder.bitcast(place, _INTS.as_pointer()), align=8)
            if l1:
                negative = builder.icmp_signed("<", units, zero)
                term = builder.select(negative, builder.neg(units), units)
            else:  # shifted there and back, for LLVM to see that it multiplies int32
                short = builder.ashr(builder.shl(units, half), half)
                term = builder.mul(short, short)
            size = builder.add(size, term)
            return size, builder.or_(seen, size)

        size, seen = code.over(x, i, ends, r, use_l1, [zero, zero], step)
        exact = builder.icmp_unsigned("<", code.fold(seen, builder.or_), _INT(2**61))
        small = builder.icmp_unsigned("<=", code.fold(size, builder.add), limit)
        return builder.and_(exact, small)

    if x.layout != "C":
        return None
    n, f, t = types.int64, types.float64, types.boolean
    return t(x, n, ends, n, f, n, n, t, v), generate
