"""A dataset's rows, by position: read in blocks, on all processors, larger than memory if need be."""

import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.datasets.store import only
from service.planning.spec import Facts
from workers.arrays import Add, Array, Floats, Sum, read_only
from workers.kernels.simd.gather import gather

BLOCK_BYTES = 8 << 20
GATHERED_BYTES = 2 << 20  # of rows that are drawn: they stay in a cache until they are summed
RESIDENT_BYTES = 256 << 20  # a larger file is dropped from memory block by block, as it is read
KEPT_BYTES = 1 << 30  # of derived rows
DERIVED_TOGETHER = 1 << 14  # rows
THREADED = 1 << 22  # entries from which a second thread pays for waking it

T = TypeVar("T")


class WrongDataError(ValueError):
    """The arrays, or what is asked of them, are not what the Plan was made for."""


def fit_rows(facts: Facts, x: NDArray[np.generic], y: Floats) -> tuple[NDArray[np.generic], Floats]:
    """Of a dataset's arrays the rows that a fit may read: no other can be addressed in these."""
    return _part(facts, x, y, range(facts.rows))


def held_out_rows(
    facts: Facts, x: NDArray[np.generic], y: Floats
) -> tuple[NDArray[np.generic], Floats]:
    """The others, likewise."""
    return _part(facts, x, y, range(facts.rows, facts.rows + facts.held_out))


def _part(
    facts: Facts, x: NDArray[np.generic], y: Floats, rows: range
) -> tuple[NDArray[np.generic], Floats]:
    if len(x) != facts.rows + facts.held_out or len(y) != len(x):
        raise WrongDataError("the arrays have other rows than the Plan's facts say")
    return only(x, rows), only(y, rows)


class Rows:
    def __init__(
        self,
        facts: Facts,
        x: NDArray[np.generic],
        y: Floats,
        anew: Callable[[Array], Array] | None = None,
    ) -> None:
        """`anew` derives each block whenever it is summed over."""
        # unbounded rows, for one, must never meet the kernel that trusts a row's norm
        dtype = np.int16 if facts.storage == "fixed" else np.float64
        if x.shape != (facts.rows, facts.columns) or y.shape != (facts.rows,):
            raise WrongDataError("the arrays have other shapes than the Plan's facts say")
        if x.dtype != dtype or y.dtype != np.float64 or not x.flags.c_contiguous:
            raise WrongDataError("the arrays are stored otherwise than the Plan's facts say")
        self._x, self._y = read_only(x), read_only(y)
        self._files = [a for a in (x, y) if isinstance(a, np.memmap)]
        if sum(a.nbytes for a in self._files) <= RESIDENT_BYTES:
            self._files = []
        self.count, self.row_bytes, self._anew = facts.rows, self._x[0].nbytes, anew
        self._numbers = facts.label != "categorical"  # the labels; classes are not to be clipped

    def derived(self, facts: Facts, block: Callable[[Array], Array]) -> "Rows":
        """The rows that `block` makes of these: kept, or made anew for every sum if they are many."""
        if self._x.nbytes > KEPT_BYTES:
            return Rows(facts, self._x, self._y, block)
        out, first = np.empty(self._x.shape, dtype=self._x.dtype), 0
        for made in self.blocks(lambda x, _: block(x), DERIVED_TOGETHER):
            out[first : first + len(made)] = made
            first += len(made)
        return Rows(facts, out, self._y)

    def relabelled(self, middle: float, half: float) -> "Rows":
        """The same rows with labels clipped to [middle - half, middle + half], which is stretched to
        [-1, 1]: each a function of one label."""
        other = copy(self)
        within = np.clip(np.nan_to_num(self._y), -1.0, 1.0)  # first, or a warning might tell of one
        other._y = read_only(np.clip((within - middle) / half, -1.0, 1.0))
        return other

    def within(self, start: int, stop: int) -> range:
        """The positions [start, stop), which must exist."""
        if not 0 <= start < stop <= self.count:
            raise WrongDataError(f"rows {start} to {stop} were asked for, of {self.count}")
        return range(start, stop)

    def blocks(
        self,
        work: Callable[[Array, Array], T],
        size: int,
        rows: range | None = None,
        *,
        in_turn: bool = False,
        bounded_labels: bool = False,
    ) -> Iterator[T]:
        """What `work` makes of each block of `size` rows (of all, or of a range), in the order of the
        rows, whichever thread did it; `in_turn` for work that goes on where the last block ended.
        `bounded_labels` keeps labels that are numbers within [-1, 1]."""
        rows = range(self.count) if rows is None else rows

        def one(low: int) -> T:
            high = min(low + size, rows.stop)
            y = self._y[low:high]
            if bounded_labels and self._numbers:
                y = read_only(np.clip(y, -1.0, 1.0))
            x = self._x[low:high]
            result = work(x if self._anew is None else read_only(self._anew(x)), y)
            self._forget(low, high)
            return result

        lows = range(rows.start, rows.stop, size)
        alone = in_turn or len(lows) == 1 or thread_count() == 1
        return map(one, lows) if alone else pool().map(one, lows)

    def sum(self, add: Add, size: int, rows: range | NDArray[np.int64]) -> Sum:
        """The sum of what `add` makes of blocks of rows, a vector of `size` integers.

        Integer addition does not mind in which order, and a record's floats do not depend on the block
        that it is in: any number of threads gives the same bits."""
        threads = thread_count() if len(rows) * size >= THREADED else 1
        share = -(-len(rows) // threads)
        parts = [rows[low : low + share] for low in range(0, len(rows), share)]
        others = [pool().submit(self._sum_blocks, add, size, part) for part in parts[1:]]
        total = self._sum_blocks(add, size, parts[0])  # here, while they wake
        for other in others:
            total += other.result()
        return total

    def _sum_blocks(self, add: Add, size: int, rows: range | NDArray[np.int64]) -> Sum:
        """The sum over rows in order, in blocks that need not stay in memory."""
        drawn = not isinstance(rows, range)
        bytes_max = GATHERED_BYTES if drawn else BLOCK_BYTES
        together = max(16, bytes_max // self.row_bytes // 16 * 16)
        total = np.zeros(size, dtype=np.int64)
        gathered = np.empty(
            (min(together, len(rows)) if drawn else 0, *self._x.shape[1:]), self._x.dtype
        )
        for first in range(0, len(rows), together):
            block = rows[first : first + together]
            low, high = int(block[0]), int(block[-1]) + 1
            if isinstance(block, range):
                x, y = self._x[low:high], self._y[low:high]
            else:
                if block.min() < 0 or block.max() >= self.count:
                    raise WrongDataError("a row was asked for that there is not")
                x, y = gathered[: len(block)], np.take(self._y, block)
                gather(self._x, block, x)
            if self._anew is not None:
                x = self._anew(read_only(x))
            part = add(read_only(x), read_only(y))
            if part.shape != total.shape:
                raise WrongDataError("a block's sum has another number of entries")
            total += part
            self._forget(low, high)
        return total

    def _forget(self, low: int, high: int) -> None:
        for file in self._files:
            forget(file, low, high)


class Blocks:
    """The rows of one point, for the function that makes it, and until it has."""

    def __init__(self, rows: Rows, of: range) -> None:
        self._rows, self._of, self._open = rows, rows.within(of.start, of.stop), True

    def __call__(
        self, work: Callable[[Array, Array], T], size: int, *, in_turn: bool = False
    ) -> Iterator[T]:
        """What `work` makes of each block, in order. Labels are kept within [-1, 1] (but for classes),
        beyond which a loss would be less smooth than was planned."""
        self._require_open()
        blocks = self._rows.blocks(work, size, self._of, in_turn=in_turn, bounded_labels=True)
        for result in blocks:
            yield result
            self._require_open()

    def close(self) -> None:
        self._open = False

    def _require_open(self) -> None:
        if not self._open:
            raise WrongDataError("rows are read for a point, and only until it is released")


def forget(array: "np.memmap[Any, Any]", low: int, high: int) -> None:
    """Let the system drop the pages of rows [low, high) of a mapped file that no other rows share."""
    row_bytes = array.nbytes // len(array)
    page = mmap.PAGESIZE
    first = array.offset % mmap.ALLOCATIONGRANULARITY  # a map begins where a page does
    begin = -(-(first + low * row_bytes) // page) * page
    end = (first + high * row_bytes) // page * page
    if end > begin:
        array._mmap.madvise(mmap.MADV_DONTNEED, begin, end - begin)  # type: ignore[attr-defined]


def thread_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """Threads of our own around kernels that release the interpreter's lock: numba's layers either
    abort when entered twice or do not survive a fork."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="epsilond-kernel")
