"""Integer sums by the AVX2 instruction that multiplies pairs of int16 and adds them into int32.

LLVM finds this instruction in no loop that numba writes, so it is spelled out here. See the package
for the layout of columns, and portable.py for the same sums in plain loops.
"""

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from workers.kernels.simd.builder import I16, I32, I64, Builder

LANES = 16  # columns in a chunk
ROWS = 16  # rows that are added up in int32
AVAILABLE = bool(
    llvmlite.binding.get_host_cpu_features().get("avx2", False)
    and not (config.CPU_NAME or config.CPU_FEATURES)  # compiling for another CPU than this one
)

_SHORTS, _INTS, _LONGS = ir.VectorType(I16, LANES), ir.VectorType(I32, 8), ir.VectorType(I64, 8)
_ZERO = ir.Constant(_INTS, [0] * 8)
# lanes that interleave two rows of a chunk as the CPU does, and those that put sums back in order
_PAIRED = [
    [i for k in (*range(low, low + 4), *range(low + 8, low + 12)) for i in (k, k + LANES)]
    for low in (0, 4)
]
_ORDERED = [[*range(low, low + 4), *range(low + 8, low + 12)] for low in (0, 4)]


class _Chunks(Builder):
    """Loops over chunks of columns."""

    def madd(self, a, b):
        return self.call("llvm.x86.avx2.pmadd.wd", _INTS, a, b)

    def pair(self, scalars, index):
        """Two consecutive int16, repeated through a vector."""
        both = self.spread(self.load(scalars, index, I32, 2), 8)
        return self.ir.bitcast(both, _SHORTS)

    def chunk(self, index, columns):
        """(first lane of a chunk, first column of a chunk)."""
        lane = self.ir.mul(index, I64(LANES))
        last = self.ir.sub(columns, I64(LANES))
        inside = self.ir.icmp_signed("<", lane, last)
        return lane, self.ir.select(inside, lane, last)


@intrinsic
def margins16(typing_context, x, first, weights, out):
    """out[r] = <x[first + r], weights> for r < 16, in int32; `weights` in chunks, each column once."""

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        rows, start, w, result = code.arguments
        columns = builder.extract_value(rows.shape, 1)
        size = builder.extract_value(w.shape, 0)
        chunks = builder.udiv(size, I64(LANES))
        for group in range(0, ROWS, 4):  # four rows share the loads of the weights
            sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in range(4)]
            bases = [builder.mul(builder.add(start, I64(group + r)), columns) for r in range(4)]
            with cgutils.for_range(builder, chunks) as loop:
                lane, offset = code.chunk(loop.index, columns)
                weight = code.load(w, lane, _SHORTS, 2)
                for base, total in zip(bases, sums, strict=True):
                    values = code.load(rows, builder.add(base, offset), _SHORTS, 2)
                    both = builder.add(builder.load(total), code.madd(values, weight))
                    builder.store(both, total)
            for r, total in enumerate(sums):
                value = code.call("llvm.vector.reduce.add.v8i32", I32, builder.load(total))
                builder.store(value, builder.gep(result.data, [I64(group + r)]))
        return context.get_dummy_value()

    return types.void(x, first, weights, out), generate


@intrinsic
def accumulate16(typing_context, x, first, q, totals):
    """totals += sum over r < 16 of q[r] x[first + r], in chunks; int32 within, int64 across calls.

    |q| < 2^15 and |x| < 2^12: sixteen products stay within int32. Rows are taken in pairs, interleaved
    so that one instruction multiplies both by their q and adds.
    """

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        rows, start, scalars, out = code.arguments
        columns = builder.extract_value(rows.shape, 1)
        size = builder.extract_value(out.shape, 0)
        pairs = [code.pair(scalars, I64(r)) for r in range(0, ROWS, 2)]
        bases = [builder.mul(builder.add(start, I64(r)), columns) for r in range(ROWS)]
        with cgutils.for_range(builder, builder.udiv(size, I64(LANES))) as loop:
            lane, offset = code.chunk(loop.index, columns)
            sums = [_ZERO, _ZERO]
            for r, pair in zip(range(0, ROWS, 2), pairs, strict=True):
                a, b = (
                    code.load(rows, builder.add(bases[r + i], offset), _SHORTS, 2) for i in (0, 1)
                )
                for half, lanes in enumerate(_PAIRED):
                    product = code.madd(code.shuffle(a, b, lanes), pair)
                    sums[half] = builder.add(sums[half], product)
            for half, lanes in enumerate(_ORDERED):
                index = builder.add(lane, I64(8 * half))
                wide = builder.sext(code.shuffle(*sums, lanes), _LONGS)
                code.store(builder.add(code.load(out, index, _LONGS, 8), wide), out, index, 8)
        return context.get_dummy_value()

    return types.void(x, first, q, totals), generate


@intrinsic
def accumulate_all(typing_context, x, rows, q, totals, pairs):
    """totals[h] += sum over r < rows of q[h, r] x[r], in chunks; `rows` is a multiple of 16.

    As accumulate16, but all h share a chunk's interleaved rows, which wait in `pairs` [rows, LANES].
    The low and the high 16 bits of each sum of sixteen products are added up apart, which stays within
    int32 for 2^15 of them, so int64 is needed once per call.
    """

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        x, rows, q, totals, pairs = code.arguments
        columns, stride = (builder.extract_value(array.shape, 1) for array in (x, q))
        units, size = (builder.extract_value(totals.shape, axis) for axis in (0, 1))
        parts = [cgutils.alloca_once(builder, _INTS) for _ in range(4)]  # low, low, high, high
        low_bits, shift = (ir.Constant(_INTS, [value] * 8) for value in (2**16 - 1, 16))
        with cgutils.for_range(builder, builder.udiv(size, I64(LANES))) as chunk:
            lane, offset = code.chunk(chunk.index, columns)
            with cgutils.for_range_slice(builder, I64(0), rows, I64(2)) as (row, _):
                index = builder.add(builder.mul(row, columns), offset)
                a, b = (code.load(x, at, _SHORTS, 2) for at in (index, builder.add(index, columns)))
                for half, lanes in enumerate(_PAIRED):
                    index = builder.mul(builder.add(row, I64(half)), I64(LANES))
                    code.store(code.shuffle(a, b, lanes), pairs, index, 2)
            with cgutils.for_range(builder, units) as unit:
                for part in parts:
                    builder.store(_ZERO, part)
                start = builder.mul(unit.index, stride)
                with cgutils.for_range_slice(builder, I64(0), rows, I64(ROWS)) as (first, _):
                    sums = [_ZERO, _ZERO]
                    for r in range(0, ROWS, 2):
                        row = builder.add(first, I64(r))
                        pair = code.pair(q, builder.add(start, row))
                        for half in (0, 1):
                            index = builder.mul(builder.add(row, I64(half)), I64(LANES))
                            product = code.madd(code.load(pairs, index, _SHORTS, 2), pair)
                            sums[half] = builder.add(sums[half], product)
                    bits = [builder.and_(total, low_bits) for total in sums]
                    bits += [builder.ashr(total, shift) for total in sums]
                    for part, more in zip(parts, bits, strict=True):
                        builder.store(builder.add(builder.load(part), more), part)
                low, high = (list(map(builder.load, halves)) for halves in (parts[:2], parts[2:]))
                home = builder.add(builder.mul(unit.index, size), lane)
                for half, lanes in enumerate(_ORDERED):
                    index = builder.add(home, I64(8 * half))
                    wide = builder.sext(code.shuffle(*high, lanes), _LONGS)
                    wide = builder.shl(wide, ir.Constant(_LONGS, [16] * 8))
                    wide = builder.add(wide, builder.sext(code.shuffle(*low, lanes), _LONGS))
                    wide = builder.add(wide, code.load(totals, index, _LONGS, 8))
                    code.store(wide, totals, index, 8)
        return context.get_dummy_value()

    return types.void(x, rows, q, totals, pairs), generate
