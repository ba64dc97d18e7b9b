"""Integer sums by the AVX2 instruction that multiplies pairs of int16 and adds them into int32.

LLVM finds this instruction in no loop that numba writes, so it is spelled out here; where the CPU has
VNNI, LLVM makes one instruction of it and the sum that follows. See the package for the layout of
columns, portable.py for the same sums in plain loops, and docs/kernels.md for why not AVX-512.
"""

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from workers.kernels.simd.builder import I8, I16, I32, I64, Builder

LANES = 16  # columns in a chunk
ROWS = 16  # rows that are added up in int32
TOGETHER = 4  # rows that share the loads of the weights
SIDE = 3  # weights that share the loads of rows: with four rows, twelve sums in sixteen registers
AVAILABLE = bool(
    llvmlite.binding.get_host_cpu_features().get("avx2", False)
    and not (config.CPU_NAME or config.CPU_FEATURES)  # compiling for another CPU than this one
)

_LINE = 64  # bytes that memory gives at once
_SHORTS, _INTS, _LONGS = ir.VectorType(I16, LANES), ir.VectorType(I32, 8), ir.VectorType(I64, 8)
_ZERO, _LOW, _SHIFT = (ir.Constant(_INTS, [value] * 8) for value in (0, 2**16 - 1, 16))
# lanes that interleave two rows of a chunk as the CPU does, and those that put sums back in order
_PAIRED = [
    [i for k in (*range(low, low + 4), *range(low + 8, low + 12)) for i in (k, k + LANES)]
    for low in (0, 4)
]
_ORDERED = [[*range(low, low + 4), *range(low + 8, low + 12)] for low in (0, 4)]
# lanes that pair neighbours of two vectors within 128 bits
_EVEN, _ODD = ([i + odd for i in (0, 2, 8, 10, 4, 6, 12, 14)] for odd in (0, 1))


class _Chunks(Builder):
    """Loops over chunks of columns."""

    def madd(self, a: Any, b: Any) -> Any:
        return self.call("llvm.x86.avx2.pmadd.wd", _INTS, a, b)

    def pair(self, scalars: Any, index: Any) -> Any:
        """Two consecutive int16, repeated through a vector."""
        both = self.spread(self.load(scalars, index, I32, 2), 8)
        return self.ir.bitcast(both, _SHORTS)

    def four(self, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Each of four vectors added up: <4 x i32>."""

        def halved(a: Any, b: Any) -> Any:
            return self.ir.add(self.shuffle(a, b, _EVEN), self.shuffle(a, b, _ODD))

        both = halved(halved(a, b), halved(c, d))
        halves = (self.shuffle(both, both, range(low, low + 4)) for low in (0, 4))
        return self.ir.add(*halves)

    def ahead(self, array: Any, index: Any) -> None:
        """Ask for a line of memory that is read later, whose address may be beyond the end."""
        where = self.ir.bitcast(self.ir.gep(array.data, [index]), I8.as_pointer())
        self.call("llvm.prefetch.p0", ir.VoidType(), where, *map(I32, (0, 2, 1)))

    def narrow(self, sums: list[Any], parts: list[Any]) -> None:
        """Add the low and the high 16 bits of sums to what `parts` hold: low, low, high, high."""
        bits = [self.ir.and_(total, _LOW) for total in sums]
        bits += [self.ir.ashr(total, _SHIFT) for total in sums]
        for part, more in zip(parts, bits, strict=True):
            self.ir.store(self.ir.add(self.ir.load(part), more), part)

    def widen(self, parts: list[Any], totals: Any, lane: Any) -> None:
        """totals += what the parts hold, in order and in int64."""
        low, high = ([self.ir.load(part) for part in some] for some in (parts[:2], parts[2:]))
        for half, lanes in enumerate(_ORDERED):
            index = self.ir.add(lane, I64(8 * half))
            wide = self.ir.sext(self.shuffle(*high, lanes), _LONGS)
            wide = self.ir.shl(wide, ir.Constant(_LONGS, [16] * 8))
            wide = self.ir.add(wide, self.ir.sext(self.shuffle(*low, lanes), _LONGS))
            self.store(self.ir.add(wide, self.load(totals, index, _LONGS, 8)), totals, index, 8)


@intrinsic
def margins(typing_context, x, first, count, weights, out):
    """out[r] = <x[first + r], weights> for r < count, a multiple of four, in int32; `weights` in
    chunks, zero beyond the last column."""

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        rows, start, count, w, result = code.arguments
        columns = builder.extract_value(rows.shape, 1)
        size = builder.extract_value(w.shape, 0)
        with cgutils.for_range_slice(builder, I64(0), count, I64(TOGETHER)) as (group, _):
            base = builder.mul(builder.add(start, group), columns)
            bases = [builder.add(base, builder.mul(columns, I64(r))) for r in range(TOGETHER)]
            cells = [cgutils.alloca_once(builder, _INTS) for _ in range(TOGETHER)]
            for cell in cells:
                builder.store(_ZERO, cell)
            with cgutils.for_range_slice(builder, I64(0), size, I64(LANES)) as (lane, _):
                weight = code.load(w, lane, _SHORTS, 2)
                for base, cell in zip(bases, cells, strict=True):
                    values = code.load(rows, builder.add(base, lane), _SHORTS, 2)
                    product = code.madd(values, weight)
                    builder.store(builder.add(builder.load(cell), product), cell)
            code.store(code.four(*(builder.load(cell) for cell in cells)), result, group, 4)
        return context.get_dummy_value()

    return types.void(x, first, count, weights, out), generate


@intrinsic
def margins_each(typing_context, x, first, count, weights, low, out):
    """out[h, r] = <x[first + r], weights[low + h]> for h < SIDE and r < count, as `margins`."""

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        rows, start, count, w, low, result = code.arguments
        columns = builder.extract_value(rows.shape, 1)
        size, stride = (builder.extract_value(array.shape, 1) for array in (w, result))
        sides = [builder.mul(builder.add(low, I64(h)), size) for h in range(SIDE)]
        with cgutils.for_range_slice(builder, I64(0), count, I64(TOGETHER)) as (group, _):
            base = builder.mul(builder.add(start, group), columns)
            bases = [builder.add(base, builder.mul(columns, I64(r))) for r in range(TOGETHER)]
            cells = [[cgutils.alloca_once(builder, _INTS) for _ in bases] for _ in sides]
            for cell in (cell for side in cells for cell in side):
                builder.store(_ZERO, cell)
            with cgutils.for_range_slice(builder, I64(0), size, I64(LANES)) as (lane, _):
                loaded = [code.load(w, builder.add(side, lane), _SHORTS, 2) for side in sides]
                for r, base in enumerate(bases):
                    values = code.load(rows, builder.add(base, lane), _SHORTS, 2)
                    for weight, side in zip(loaded, cells, strict=True):
                        product = code.madd(values, weight)
                        builder.store(builder.add(builder.load(side[r]), product), side[r])
            for h, side in enumerate(cells):
                index = builder.add(builder.mul(stride, I64(h)), group)
                code.store(code.four(*(builder.load(cell) for cell in side)), result, index, 4)
        return context.get_dummy_value()

    return types.void(x, first, count, weights, low, out), generate


@intrinsic
def accumulate(typing_context, x, first, count, q, totals):
    """totals += sum over r < count of q[r] x[first + r], in chunks; `count` is a multiple of 16,
    at most 2^15.

    |q| < 2^15 and |x| < 2^12: sixteen products stay within int32. Rows are taken in pairs,
    interleaved so that one instruction multiplies both by their q and adds. The low and the high
    16 bits of sums of sixteen are added up apart. Meanwhile as many rows further on are asked for.
    """

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        rows, start, count, scalars, out = code.arguments
        columns = builder.extract_value(rows.shape, 1)
        size = builder.extract_value(out.shape, 0)
        parts = [cgutils.alloca_once(builder, _INTS) for _ in range(4)]
        origin = builder.mul(start, columns)
        later = builder.mul(builder.add(start, count), columns)
        line = _LINE // 2
        asked = cgutils.alloca_once_value(builder, later)
        with cgutils.for_range_slice(builder, I64(0), size, I64(LANES)) as (lane, _):
            for part in parts:
                builder.store(_ZERO, part)
            home = builder.add(origin, lane)
            with cgutils.for_range_slice(builder, I64(0), count, I64(ROWS)) as (group, _):
                index = builder.add(home, builder.mul(group, columns))
                ask = builder.load(asked)
                sums = [_ZERO, _ZERO]
                for r in range(0, ROWS, 2):
                    both = []
                    for _ in range(2):
                        both.append(code.load(rows, index, _SHORTS, 2))
                        index = builder.add(index, columns)
                    pair = code.pair(scalars, builder.add(group, I64(r)))
                    for half, order in enumerate(_PAIRED):
                        product = code.madd(code.shuffle(*both, order), pair)
                        sums[half] = builder.add(sums[half], product)
                    for _ in range(LANES * 4 // _LINE):
                        code.ahead(rows, ask)
                        ask = builder.add(ask, I64(line))
                builder.store(ask, asked)
                code.narrow(sums, parts)
            code.widen(parts, out, lane)
        return context.get_dummy_value()

    return types.void(x, first, count, q, totals), generate


@intrinsic
def accumulate_all(typing_context, x, count, q, totals, pairs):
    """totals[h] += sum over r < count of q[h, r] x[r], in chunks; `count` is a multiple of 16, at
    most 2^15.

    As `accumulate`, but all h share a chunk's interleaved rows, which wait in `pairs`,
    count times LANES.
    """

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Chunks(context, builder, signature, arguments)
        x, rows, q, totals, pairs = code.arguments
        columns, stride = (builder.extract_value(array.shape, 1) for array in (x, q))
        units, size = (builder.extract_value(totals.shape, axis) for axis in (0, 1))
        parts = [cgutils.alloca_once(builder, _INTS) for _ in range(4)]
        with cgutils.for_range_slice(builder, I64(0), size, I64(LANES)) as (lane, _):
            with cgutils.for_range_slice(builder, I64(0), rows, I64(2)) as (row, _):
                index = builder.add(builder.mul(row, columns), lane)
                both = [code.load(x, at, _SHORTS, 2) for at in (index, builder.add(index, columns))]
                for half, order in enumerate(_PAIRED):
                    index = builder.mul(builder.add(row, I64(half)), I64(LANES))
                    code.store(code.shuffle(*both, order), pairs, index, 2)
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
                    code.narrow(sums, parts)
                home = builder.add(builder.mul(unit.index, size), lane)
                code.widen(parts, totals, home)
        return context.get_dummy_value()

    return types.void(x, count, q, totals, pairs), generate
