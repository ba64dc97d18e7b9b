"""Two inner loops with the instruction that multiplies pairs of int16 and adds them into int32.

numba writes scalar code and leaves vectors to LLVM, which finds this instruction in neither loop; so
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
_ZERO = ir.Constant(_V8, [0] * 8)


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
        low = [i for k in (0, 1, 2, 3, 8, 9, 10, 11) for i in (k, k + LANES)]
        high = [i for k in (4, 5, 6, 7, 12, 13, 14, 15) for i in (k, k + LANES)]
        undefined = ir.Constant(_V8, ir.Undefined)
        pairs = []
        for r in range(0, ROWS, 2):
            pair = code.load(scalars, _I64(r), _I32, 2)
            single = builder.insert_element(undefined, pair, _I32(0))
            spread = code.shuffle(single, undefined, [0] * 8)
            pairs.append(builder.bitcast(spread, _V16))
        bases = [builder.mul(builder.add(start, _I64(r)), columns) for r in range(ROWS)]
        with cgutils.for_range(builder, builder.udiv(size, _I64(LANES))) as loop:
            lane, offset = code.chunk(loop.index, columns)
            sums = [_ZERO, _ZERO]
            for r, pair in zip(range(0, ROWS, 2), pairs, strict=True):
                a, b = (code.load(rows, builder.add(bases[r + i], offset), _V16, 2) for i in (0, 1))
                for half, lanes in enumerate((low, high)):
                    product = code.madd(code.shuffle(a, b, lanes), pair)
                    sums[half] = builder.add(sums[half], product)
            for half, lanes in enumerate(
                ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
            ):
                place = builder.gep(out.data, [builder.add(lane, _I64(8 * half))])
                target = builder.bitcast(place, _V8L.as_pointer())
                wide = builder.sext(code.shuffle(*sums, lanes), _V8L)
                builder.store(builder.add(builder.load(target, align=8), wide), target, align=8)
        return context.get_dummy_value()

    return types.void(x, first, q, totals), generate
