"""A dataset as the algorithms see it: rows by position, and noisy sums over them."""

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import (
    DERIVATIVE_UNITS,
    POINT_UNITS_MAX,
    PointLattice,
    SumLattice,
)
from service.planning.plan import Plan
from workers.kernels import madd
from workers.kernels.gradients import add_fixed, add_float
from workers.kernels.losses import slope_of
from workers.randomness import Randomness, Use
from workers.samplers import rounded_laplace, rounded_normal

BLOCK_BYTES = 8 << 20
RESIDENT_BYTES = 256 << 20  # a larger file is dropped from memory block by block, as it is read
_THREADED = 1 << 18  # entries from which a second thread pays for itself

Array = NDArray[Any]
Floats = NDArray[np.float64]
Sum = NDArray[np.int64]
Add = Callable[[Array, Array], Sum]  # the sum over a block of rows


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written: what a memory map gives, so kernels compile for it alone."""
    view = array.view()
    view.flags.writeable = False
    return view


class WrongDataError(ValueError):
    """The arrays are not those that the Plan was made for."""


class Data:
    """The rows, and the one door through which anything leaves them: sums and points plus noise.

    Each release takes the next number, which addresses its noise, so no draw is ever used twice
    within a job.
    """

    def __init__(
        self, plan: Plan, x: NDArray[np.generic], y: NDArray[np.float64], randomness: Randomness
    ) -> None:
        facts = plan.facts
        # unbounded rows, for one, must never meet the kernel that trusts a row's norm
        dtype = np.int16 if facts.storage == "fixed" else np.float64
        if x.shape != (facts.rows, facts.columns) or y.shape != (facts.rows,) or x.dtype != dtype:
            raise WrongDataError
        self._plan, self._randomness = plan, randomness
        self._x, self._y = read_only(x), read_only(y)
        self._files = [a for a in (x, y) if isinstance(a, np.memmap)]
        if sum(a.nbytes for a in self._files) <= RESIDENT_BYTES:
            self._files = []
        self._releases = 0

    def noisy_sum(self, weights: Floats, start: int, stop: int) -> Floats:
        """The sum of the clipped gradients of rows [start, stop) at `weights`, plus noise."""
        exact = self.exact_sum(weights, start, stop)
        return self._released(exact, self._sums.step, range(start, stop))

    def noisy_point(self, point: Floats, step: float, start: int, stop: int) -> Floats:
        """A point computed from rows [start, stop), rounded to multiples of `step`, plus noise.

        The clip and the zero for a NaN keep the conversion to integers defined; a point that obeys
        its plan meets neither.
        """
        if not isinstance(self._plan.lattice, PointLattice):
            raise WrongDataError
        units = np.clip(np.nan_to_num(point / step), -POINT_UNITS_MAX, POINT_UNITS_MAX)
        return self._released(np.rint(units).astype(np.int64), step, range(start, stop))

    def _released(self, exact: Sum, step: float, rows: Sequence[int]) -> Floats:
        """Everything that leaves goes through here; `rows` are those that `exact` depends on, given
        what was released before. Only tests look at them."""
        lattice = self._plan.lattice
        stream = self._randomness.stream(Use.NOISE, self._releases)
        self._releases += 1
        sampler = rounded_normal if lattice.noise == "gaussian" else rounded_laplace
        noise = sampler(stream, exact.size, lattice.bits)
        return (exact + noise).astype(np.float64) * step

    @property
    def _sums(self) -> SumLattice:
        if not isinstance(self._plan.lattice, SumLattice):
            raise WrongDataError
        return self._plan.lattice

    def exact_sum(self, weights: NDArray[np.float64], start: int, stop: int) -> Sum:
        """The sum before noise: for the line above, and for tests that attack its sensitivity.

        Integer addition does not mind in which order, so any number of threads gives the same bits.
        """
        add = self._fixed(weights) if self._plan.facts.storage == "fixed" else self._float(weights)
        threads = thread_count() if (stop - start) * weights.size >= _THREADED else 1
        share = -(-(stop - start) // threads)
        parts = [range(low, min(low + share, stop)) for low in range(start, stop, share)]
        if len(parts) == 1:
            return self._sum_blocks(add, parts[0])
        totals = pool().map(lambda rows: self._sum_blocks(add, rows), parts)
        return np.asarray(np.sum(list(totals), axis=0, dtype=np.int64))

    def _sum_blocks(self, add: Add, rows: range) -> Sum:
        """The sum over a range of rows, in blocks that need not stay in memory."""
        size = max(16, BLOCK_BYTES // self._x[0].nbytes // 16 * 16)
        total = np.zeros(self._plan.facts.columns, dtype=np.int64)
        for low in range(rows.start, rows.stop, size):
            high = min(low + size, rows.stop)
            total += add(self._x[low:high], self._y[low:high])
            for file in self._files:
                forget(file, low, high)
        return total

    def _fixed(self, weights: NDArray[np.float64]) -> Add:
        bound, scale, places, fast = self._layout
        facts, loss = self._plan.facts, slope_of(self._plan)
        units, per_unit = integer_weights(weights, facts.l2_units or 0)
        margin_step = min((facts.feature_step or 0.0) * per_unit, 1e30)  # margins are float32
        size = weights.size + (-weights.size % madd.LANES if fast else 0)
        padded = np.zeros(size, dtype=np.int16)
        padded[places] = units
        padded.flags.writeable = False
        f = np.float32
        arguments = padded, f(margin_step), loss, f(scale), f(bound), fast

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(size, dtype=np.int64)
            add_fixed(total, x, read_only(y.astype(f)), *arguments)
            return total[places]

        return add

    @cached_property
    def _layout(self) -> tuple[int, float, NDArray[np.int64], bool]:
        """For fixed rows: the bound on a multiplier, multipliers per unit of derivative, where each
        column stands, and whether that is in the chunks of the vector kernel."""
        lattice, facts = self._sums, self._plan.facts
        if facts.feature_step is None or lattice.derivative_units is None:
            raise WrongDataError
        if lattice.derivative_units > DERIVATIVE_UNITS:  # multipliers are int16
            raise WrongDataError
        columns, fast = facts.columns, madd.AVAILABLE and facts.columns >= madd.LANES
        places = madd.places(columns) if fast else np.arange(columns)
        return lattice.derivative_units, facts.feature_step / lattice.step, places, fast

    def _float(self, weights: NDArray[np.float64]) -> Add:
        lattice, loss = self._sums, slope_of(self._plan)
        bound, use_l1 = lattice.contribution_units, lattice.norm == "l1"

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(weights.size, dtype=np.int64)
            add_float(total, x, y, weights, loss, lattice.clip, bound, use_l1)
            return total

        return add


def forget(array: "np.memmap[Any, Any]", low: int, high: int) -> None:
    """Let the system drop the pages of rows [low, high) of a mapped file that no other rows share."""
    row_bytes = array.nbytes // len(array)
    page = mmap.PAGESIZE
    begin = -(-(array.offset + low * row_bytes) // page) * page
    end = (array.offset + high * row_bytes) // page * page
    if end > begin:
        array._mmap.madvise(mmap.MADV_DONTNEED, begin, end - begin)  # type: ignore[attr-defined]


def integer_weights(weights: NDArray[np.float64], l2_units: int) -> tuple[NDArray[Any], float]:
    """The weights as integers of at most 15 bits, and what one unit is worth.

    Scaled so that ||units||_2 l2_units < 2^31: by Cauchy and Schwarz no margin, nor any part of one,
    leaves int32. Gradients are thus evaluated at weights rounded to about 2^-15 of the largest; the
    weights are a function of earlier releases, so rounding them is nobody's privacy.
    """
    largest = float(np.abs(weights).max())
    if not 0.0 < largest < inf:  # all zero, or no numbers at all: they count as zero
        return np.zeros(weights.size), 1.0
    scaled = weights / largest
    room = (2**31 - 1) / l2_units - sqrt(weights.size)  # rounding adds at most sqrt(d)/2
    units_max = min(2**15 - 1, room / sqrt(float(scaled @ scaled)))
    return np.rint(scaled * units_max), largest / units_max


def thread_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """Threads of our own around kernels that release the interpreter's lock: numba's layers either
    abort when entered twice or do not survive a fork."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="epsilond-kernel")
