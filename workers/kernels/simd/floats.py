"""Loops over float64 in vectors of eight, in operations that LLVM has for any CPU.

Spelled out because a sum of floats may not be reordered by the compiler. The order that is fixed here
is the same on every CPU: column j belongs to lane j mod 8, and lanes are combined in the end. fma is
one instruction on any CPU since 2013, and the same bits on all. See portable.py for the same results
in plain loops.
"""

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from workers.kernels.simd.builder import F64, I16, I32, I64, Builder

LANES = 8
TOGETHER = 4  # rows that share the loads of the weights
AHEAD = 8  # rows further on that are asked for early
_FEATURES = llvmlite.binding.get_host_cpu_features()
AVAILABLE = bool(
    (_FEATURES.get("fma", False) or _FEATURES.get("neon", False))  # else one library call per lane
    and not (config.CPU_NAME or config.CPU_FEATURES)  # compiling for another CPU than this one
)

_SHORTS, _INTS, _LONGS, _FLOATS = (ir.VectorType(kind, LANES) for kind in (I16, I32, I64, F64))


class _Row(Builder):
    """Loops over one float64 row, whose columns after the last whole vector stand in `ends`."""

    def over(self, x, i, ends, r, use_l1, start, step):
        """The values that step(l1, column, vector, *values) makes of `start`, vector by vector.

        There is a loop for each norm: nothing is decided within."""
        builder = self.ir
        columns = builder.extract_value(x.shape, 1)
        whole = builder.udiv(columns, I64(LANES))
        begin, end = builder.mul(i, columns), builder.mul(r, I64(LANES))
        cells = [cgutils.alloca_once_value(builder, value) for value in start]

        def take(l1, column, vector):
            values = step(l1, column, vector, *map(builder.load, cells))
            for cell, value in zip(cells, values, strict=True):
                builder.store(value, cell)

        with builder.if_else(use_l1) as branches:
            for l1, branch in zip((True, False), branches, strict=True):
                with branch:
                    with cgutils.for_range(builder, whole) as loop:
                        column = builder.mul(loop.index, I64(LANES))
                        index = builder.add(begin, column)
                        take(l1, column, self.load(x, index, _FLOATS, 8))
                    column = builder.mul(whole, I64(LANES))
                    take(l1, column, self.load(ends, end, _FLOATS, 8))
        return [builder.load(cell) for cell in cells]

    def maths(self, name, *arguments):
        return self.call(f"llvm.{name}.v{LANES}f64", _FLOATS, *arguments)

    def larger(self, a, b):
        """The larger, or b if a is a NaN."""
        return self.ir.select(self.ir.fcmp_ordered(">", a, b), a, b)


@intrinsic
def measure(typing_context, x, i, ends, r, scale, weights, use_l1):
    """Of row i of x times `scale`: (largest |entry|, <row, weights>, sum of squares or of |entries|).

    The largest passes over NaNs, the sums do not."""

    def generate(context, builder, signature, arguments):
        code = _Row(context, builder, signature, arguments)
        x, i, ends, r, scale, weights, use_l1 = code.arguments
        scales = code.spread(scale, LANES)

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
def convert(typing_context, x, i, ends, r, factor, mask, limit, use_l1, v):
    """v[r] = the row i of x times `factor`, rounded towards zero; whether its sum of squares (or of
    absolute values) is at most `limit` <= 2^60.

    A whole number t below 2^31 added to 1.5 * 2^52 + 2^31 leaves t + 2^31 in the low 32 bits. Whatever
    the float was, those 32 bits less 2^31 are an int32, so its square is at most 2^62 and a lane's sum
    passes through [2^61, 2^63) before it could wrap: `seen` keeps the bit. Eight lanes below 2^61 do
    not wrap either. A `mask` of -1 leaves all bits, one of 0 none.
    """

    def generate(context, builder, signature, arguments):
        code = _Row(context, builder, signature, arguments)
        x, i, ends, r, factor, mask, limit, use_l1, v = code.arguments
        factors = code.spread(factor, LANES)
        low_bits = code.spread(builder.and_(mask, I64(2**32 - 1)), LANES)
        bias = code.spread(builder.and_(mask, I64(2**31)), LANES)
        magic = ir.Constant(_FLOATS, [1.5 * 2.0**52 + 2.0**31] * LANES)
        zero, half = (ir.Constant(_LONGS, [value] * LANES) for value in (0, 32))
        home = builder.mul(r, builder.extract_value(v.shape, 1))
        later = builder.mul(builder.add(i, I64(AHEAD)), builder.extract_value(x.shape, 1))

        def step(l1, column, vector, size, seen):
            # asks for a later row, whose address may be beyond the end: only a hint
            ahead = builder.gep(x.data, [builder.add(later, column)])
            hint = builder.bitcast(ahead, ir.IntType(8).as_pointer())
            code.call("llvm.prefetch.p0", ir.VoidType(), hint, *map(I32, (0, 3, 1)))
            whole = code.maths("trunc", builder.fmul(vector, factors))
            bits = builder.bitcast(builder.fadd(whole, magic), _LONGS)
            units = builder.sub(builder.and_(bits, low_bits), bias)
            code.store(units, v, builder.add(home, column), 8)
            if l1:
                negative = builder.icmp_signed("<", units, zero)
                term = builder.select(negative, builder.neg(units), units)
            else:  # shifted there and back, for LLVM to see that it multiplies int32
                short = builder.ashr(builder.shl(units, half), half)
                term = builder.mul(short, short)
            size = builder.add(size, term)
            return size, builder.or_(seen, size)

        size, seen = code.over(x, i, ends, r, use_l1, [zero, zero], step)
        exact = builder.icmp_unsigned("<", code.fold(seen, builder.or_), I64(2**61))
        small = builder.icmp_unsigned("<=", code.fold(size, builder.add), limit)
        return builder.and_(exact, small)

    if x.layout != "C":
        return None
    n, f, t = types.int64, types.float64, types.boolean
    return t(x, n, ends, n, f, n, n, t, v), generate


@intrinsic
def float_margins4(typing_context, x, first, weights, out):
    """out[r] = <x[first + r], weights> over the columns that fill whole vectors, for r < 4.

    Rows are int16. The lanes are added up in order.
    """

    def generate(context, builder, signature, arguments):
        code = Builder(context, builder, signature, arguments)
        rows, start, w, result = code.arguments
        columns = builder.extract_value(rows.shape, 1)
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(TOGETHER)]
        bases = [builder.mul(builder.add(start, I64(r)), columns) for r in range(TOGETHER)]
        with cgutils.for_range(builder, builder.udiv(columns, I64(LANES))) as loop:
            column = builder.mul(loop.index, I64(LANES))
            weight = code.load(w, column, _FLOATS, 8)
            for base, total in zip(bases, sums, strict=True):
                shorts = code.load(rows, builder.add(base, column), _SHORTS, 2)
                values = builder.sitofp(builder.sext(shorts, _INTS), _FLOATS)
                product = builder.fmul(values, weight)
                builder.store(builder.fadd(builder.load(total), product), total)
        for r, total in enumerate(sums):
            lanes = builder.load(total)
            value = builder.extract_element(lanes, I32(0))
            for lane in range(1, LANES):
                value = builder.fadd(value, builder.extract_element(lanes, I32(lane)))
            builder.store(value, builder.gep(result.data, [I64(r)]))
        return context.get_dummy_value()

    return types.void(x, first, weights, out), generate
