"""Inner loops with the instruction that multiplies pairs of int16 and adds them into int32.

numba writes scalar code and leaves vectors to LLVM, which finds this instruction in none of them; so
they are spelled out here, for CPUs with AVX2. All arithmetic is on integers and exact: the portable
loops in gradients.py give the same bits, and a test compares them.

Columns come in chunks of 16. The last chunk of a row that is no multiple of 16 wide overlaps the one
before; `places` says in which lane each column counts, and the others hold zeros or are ignored.
"""

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numpy.typing import NDArray

LANES = 16
ROWS = 16
AVAILABLE = bool(
    llvmlite.binding.get_host_cpu_features().get("avx2", False)
    and not (config.CPU_NAME or config.CPU_FEATURES)  # compiling for another CPU than this one
)

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_V16, _V8 = ir.VectorType(_I16, LANES), ir.VectorType(_I32, 8)
_V8L = ir.VectorType(_I64, 8)
_ZERO, _UNDEFINED = ir.Constant(_V8, [0] * 8), ir.Constant(_V8, ir.Undefined)
# lanes that interleave two rows of a chunk as the CPU does, and those that put sums back in order
_PAIRED = [
    [i for k in (*range(low, low + 4), *range(low + 8, low + 12)) for i in (k, k + LANES)]
    for low in (0, 4)
]
_ORDERED = [[*range(low, low + 4), *range(low + 8, low + 12)] for low in (0, 4)]


def places(columns: int) -> NDArray[np.int64]:
    """Where each column stands among the lanes of all chunks: in the first chunk that holds it alone,
    the last columns in the overlapping last chunk."""
    column = np.arange(columns)
    last = columns - columns % LANES
    return np.where(column < last, column, last + LANES - (columns - column))


class _Code:
    """The few vector operations that the loops need."""

    def __init__(self, context, builder, signature, arguments):
        self.builder = builder
        self._module = builder.module
        self.arrays = [
            context.make_array(kind)(context, builder, value)
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]

    def call(self, name, result, *arguments):
        kind = ir.FunctionType(result, [a.type for a in arguments])
        function = cgutils.get_or_insert_function(self._module, kind, name)
        return self.builder.call(function, arguments)

    def madd(self, a, b):
        return self.call("llvm.x86.avx2.pmadd.wd", _V8, a, b)

    def load(self, array, index, kind, align):
        place = self.builder.gep(array.data, [index])
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()), align=align)

    def store(self, value, array, index, align):
        place = self.builder.gep(array.data, [index])
        self.builder.store(value, self.builder.bitcast(place, value.type.as_pointer()), align=align)

    def spread(self, pair):
        """A pair of int16 in every lane of a vector."""
        single = self.builder.insert_element(_UNDEFINED, pair, _I32(0))
        return self.builder.bitcast(self.shuffle(single, _UNDEFINED, [0] * 8), _V16)

    def shuffle(self, a, b, lanes):
        mask = ir.Constant(ir.VectorType(_I32, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(a, b, mask)

    def chunk(self, index, columns):
        """(first lane of a chunk, first column of a chunk)."""
        lane = self.builder.mul(index, _I64(LANES))
        last = self.builder.sub(columns, _I64(LANES))
        inside = self.builder.icmp_signed("<", lane, last)
        return lane, self.builder.select(inside, lane, last)


@intrinsic
def margins16(typing_context, x, first, weights, out):
    """out[r] = <x[first + r], weights> for r < 16, in int32; `weights` in chunks, each column once."""

    def generate(context, builder, signature, arguments):
        if not AVAILABLE:
            return context.get_dummy_value()
        code = _Code(context, builder, signature, arguments)
        rows, start, w, result = code.arrays
        columns = builder.extract_value(rows.shape, 1)
        size = builder.extract_value(w.shape, 0)
        chunks = builder.udiv(size, _I64(LANES))
        for group in range(0, ROWS, 4):  # four rows share the loads of the weights
            sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in range(4)]
            bases = [builder.mul(builder.add(start, _I64(group + r)), columns) for r in range(4)]
            with cgutils.for_range(builder, chunks) as loop:
                lane, offset = code.chunk(loop.index, columns)
                weight = code.load(w, lane, _V16, 2)
                for base, total in zip(bases, sums, strict=True):
                    values = code.load(rows, builder.add(base, offset), _V16, 2)
                    both = builder.add(builder.load(total), code.madd(values, weight))
                    builder.store(both, total)
            for r, total in enumerate(sums):
                value = code.call("llvm.vector.reduce.add.v8i32", _I32, builder.load(total))
                builder.store(value, builder.gep(result.data, [_I64(group + r)]))
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
        code = _Code(context, builder, signature, arguments)
        rows, start, scalars, out = code.arrays
        columns = builder.extract_value(rows.shape, 1)
        size = builder.extract_value(out.shape, 0)
        pairs = [code.spread(code.load(scalars, _I64(r), _I32, 2)) for r in range(0, ROWS, 2)]
        bases = [builder.mul(builder.add(start, _I64(r)), columns) for r in range(ROWS)]
        with cgutils.for_range(builder, builder.udiv(size, _I64(LANES))) as loop:
            lane, offset = code.chunk(loop.index, columns)
            sums = [_ZERO, _ZERO]
            for r, pair in zip(range(0, ROWS, 2), pairs, strict=True):
                a, b = (code.load(rows, builder.add(bases[r + i], offset), _V16, 2) for i in (0, 1))
                for half, lanes in enumerate(_PAIRED):
                    product = code.madd(code.shuffle(a, b, lanes), pair)
                    sums[half] = builder.add(sums[half], product)
            for half, lanes in enumerate(_ORDERED):
                place = builder.add(lane, _I64(8 * half))
                wide = builder.sext(code.shuffle(*sums, lanes), _V8L)
                code.store(builder.add(code.load(out, place, _V8L, 8), wide), out, place, 8)
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
        code = _Code(context, builder, signature, arguments)
        x, rows, q, totals, pairs = code.arrays
        columns, stride = (builder.extract_value(array.shape, 1) for array in (x, q))
        units, size = (builder.extract_value(totals.shape, axis) for axis in (0, 1))
        parts = [cgutils.alloca_once(builder, _V8) for _ in range(4)]  # low, low, high, high
        low_bits, shift = (ir.Constant(_V8, [value] * 8) for value in (2**16 - 1, 16))
        with cgutils.for_range(builder, builder.udiv(size, _I64(LANES))) as chunk:
            lane, offset = code.chunk(chunk.index, columns)
            with cgutils.for_range_slice(builder, _I64(0), rows, _I64(2)) as (row, _):
                place = builder.add(builder.mul(row, columns), offset)
                a, b = (code.load(x, at, _V16, 2) for at in (place, builder.add(place, columns)))
                for half, lanes in enumerate(_PAIRED):
                    place = builder.mul(builder.add(row, _I64(half)), _I64(LANES))
                    code.store(code.shuffle(a, b, lanes), pairs, place, 2)
            with cgutils.for_range(builder, units) as unit:
                for part in parts:
                    builder.store(_ZERO, part)
                start = builder.mul(unit.index, stride)
                with cgutils.for_range_slice(builder, _I64(0), rows, _I64(ROWS)) as (first, _):
                    sums = [_ZERO, _ZERO]
                    for r in range(0, ROWS, 2):
                        row = builder.add(first, _I64(r))
                        pair = code.spread(code.load(q, builder.add(start, row), _I32, 2))
                        for half in (0, 1):
                            place = builder.mul(builder.add(row, _I64(half)), _I64(LANES))
                            product = code.madd(code.load(pairs, place, _V16, 2), pair)
                            sums[half] = builder.add(sums[half], product)
                    bits = [builder.and_(total, low_bits) for total in sums]
                    bits += [builder.ashr(total, shift) for total in sums]
                    for part, more in zip(parts, bits, strict=True):
                        builder.store(builder.add(builder.load(part), more), part)
                low, high = (list(map(builder.load, halves)) for halves in (parts[:2], parts[2:]))
                home = builder.add(builder.mul(unit.index, size), lane)
                for half, lanes in enumerate(_ORDERED):
                    place = builder.add(home, _I64(8 * half))
                    wide = builder.sext(code.shuffle(*high, lanes), _V8L)
                    wide = builder.shl(wide, ir.Constant(_V8L, [16] * 8))
                    wide = builder.add(wide, builder.sext(code.shuffle(*low, lanes), _V8L))
                    wide = builder.add(wide, code.load(totals, place, _V8L, 8))
                    code.store(wide, totals, place, 8)
        return context.get_dummy_value()

    return types.void(x, rows, q, totals, pairs), generate
