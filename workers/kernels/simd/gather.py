"""Rows at positions, copied together: each is asked for well before it is read, since where it lies no
CPU can guess. LLVM has these operations for any CPU."""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from workers.kernels.simd.builder import I8, I32, I64, Builder

_AHEAD = 24  # rows, of which as many as the CPU can wait for at a time arrive together
_LINE = 64  # bytes that memory gives at once


@intrinsic
def _copy(typing_context, x, source, ahead, out, row):
    """out[row] = x[source], while x[ahead] is asked for."""

    def generate(context, builder, signature, arguments):
        code = Builder(context, builder, signature, arguments)
        x, source, ahead, out, row = code.arguments
        columns = builder.extract_value(x.shape, 1)
        size = builder.mul(columns, builder.extract_value(x.strides, 1))

        def of(array, index):
            where = builder.gep(array.data, [builder.mul(index, columns)])
            return builder.bitcast(where, I8.as_pointer())

        later = of(x, ahead)
        with cgutils.for_range_slice(builder, I64(0), size, I64(_LINE)) as (byte, _):
            code.call(
                "llvm.prefetch.p0", ir.VoidType(), builder.gep(later, [byte]), *map(I32, (0, 3, 1))
            )
        cgutils.raw_memcpy(builder, of(out, row), of(x, source), size, 1)
        return context.get_dummy_value()

    return types.void(x, source, ahead, out, row), generate


@njit(cache=True, nogil=True)
def gather(x, positions, out):
    """out[i] = x[positions[i]], for positions that exist; both are contiguous."""
    for i in range(positions.size):
        _copy(x, positions[i], positions[min(i + _AHEAD, positions.size - 1)], out, i)
