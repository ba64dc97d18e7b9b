"""The same results as madd.py and floats.py, bit for bit, in plain loops for any CPU.

Integer sums are exact, so their order is free. Sums of floats are taken in the order of the vectors:
eight lanes, combined as there.
"""

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from workers.kernels.simd.builder import F64, Builder
from workers.kernels.simd.floats import LANES as FLOAT_LANES
from workers.kernels.simd.floats import TOGETHER
from workers.kernels.simd.madd import ROWS

_i = np.int32
_MAGIC = 1.5 * 2.0**52 + 2.0**31


@njit(cache=True, nogil=True, error_model="numpy")
def margins(x, first, weights, out):
    """out[r] = <x[first + r], weights>, in int32."""
    for r in range(out.size):
        row, margin = x[first + r], _i(0)
        for j in range(row.size):
            margin = _i(margin + _i(_i(row[j]) * _i(weights[j])))
        out[r] = margin


@njit(cache=True, nogil=True, error_model="numpy")
def accumulate(total, x, first, q):
    """total += sum of q[r] x[first + r], in int32 over groups of rows, in int64 over these."""
    columns = x.shape[1]
    partial = np.empty(columns, dtype=np.int32)
    for j in range(columns):
        partial[j] = 0
    for low in range(0, q.size, ROWS):
        for r in range(low, min(low + ROWS, q.size)):
            row, multiplier = x[first + r], _i(q[r])
            for j in range(columns):
                partial[j] = _i(partial[j] + _i(multiplier * _i(row[j])))
        for j in range(columns):
            total[j] += partial[j]
            partial[j] = 0


@intrinsic
def _fma(typing_context, a, b, c):
    """a b + c, rounded once."""

    def generate(context, builder, signature, arguments):
        code = Builder(context, builder, signature, arguments)
        return code.call("llvm.fma.f64", F64, *code.arguments)

    f = types.float64
    return f(f, f, f), generate


@njit(cache=True, nogil=True, error_model="numpy")
def measure(x, i, ends, r, scale, weights, use_l1):
    whole = x.shape[1] - x.shape[1] % FLOAT_LANES
    largest, margin, size = np.zeros((3, FLOAT_LANES))
    for j in range(whole + FLOAT_LANES):
        lane = j % FLOAT_LANES
        entry = (x[i, j] if j < whole else ends[r, lane]) * scale
        length = abs(entry)
        largest[lane] = length if length > largest[lane] else largest[lane]
        margin[lane] = _fma(entry, weights[j], margin[lane])
        size[lane] = size[lane] + length if use_l1 else _fma(entry, entry, size[lane])
    width = FLOAT_LANES // 2
    while width > 0:
        for k in range(width):
            other = largest[k + width]
            largest[k] = largest[k] if largest[k] > other else other
            margin[k] += margin[k + width]
            size[k] += size[k + width]
        width //= 2
    return largest[0], margin[0], size[0]


@njit(cache=True, nogil=True, error_model="numpy")
def convert(x, i, ends, r, factor, mask, limit, use_l1, v):
    whole = x.shape[1] - x.shape[1] % FLOAT_LANES
    low_bits, bias = mask & np.int64(2**32 - 1), mask & np.int64(2**31)
    sizes, seen = np.zeros(FLOAT_LANES, dtype=np.int64), np.int64(0)
    for j in range(whole + FLOAT_LANES):
        lane = j % FLOAT_LANES
        entry = x[i, j] if j < whole else ends[r, lane]
        bits = np.float64(np.trunc(entry * factor) + _MAGIC).view(np.int64)
        units = (bits & low_bits) - bias
        v[r, j] = units
        sizes[lane] += abs(units) if use_l1 else units * units
        seen |= sizes[lane]
    size = np.int64(0)
    for lane in range(FLOAT_LANES):
        size += sizes[lane]
    return 0 <= seen < np.int64(2**61) and 0 <= size <= limit


@njit(cache=True, nogil=True, error_model="numpy")
def float_margins4(x, first, weights, out):
    whole = x.shape[1] - x.shape[1] % FLOAT_LANES
    lanes = np.empty(FLOAT_LANES)
    for r in range(TOGETHER):
        lanes[:] = 0.0
        for j in range(0, whole, FLOAT_LANES):
            for lane in range(FLOAT_LANES):
                lanes[lane] += x[first + r, j + lane] * weights[j + lane]
        total = lanes[0]
        for lane in range(1, FLOAT_LANES):
            total += lanes[lane]
        out[r] = total
