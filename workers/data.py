"""A dataset as the algorithms see it: rows by position, and noisy sums over them."""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import (
    CONTRIBUTION_UNITS,
    DERIVATIVE_UNITS,
    NETWORK_UNITS,
    POINT_UNITS_MAX,
    PointLattice,
    ScoreLattice,
    SumLattice,
)
from service.planning.plan import Ball, OnlineToNonconvexSchedule, Plan, PrivateClip
from workers.arrays import Add, Array, Floats, Sum, integer_weights, read_only
from workers.kernels import madd
from workers.kernels.gradients import add_fixed, add_fixed_change, add_float
from workers.kernels.losses import slope_of
from workers.kernels.sizes import row_norms, slopes_at_zero
from workers.losses import VECTOR_KERNELS
from workers.oracles import network_fixed, network_float, zero_order
from workers.prefixes import Root, Tree, prefixes
from workers.randomness import Randomness, Stream, Use
from workers.samplers import choose, rounded_laplace, rounded_normal, sample

BLOCK_BYTES = 8 << 20
RESIDENT_BYTES = 256 << 20  # a larger file is dropped from memory block by block, as it is read
_THREADED = 1 << 22  # entries from which a second thread pays for waking it
_CLIPS = 2.0 ** (np.array(PrivateClip.CHOICES) / 4)

T = TypeVar("T")


class WrongDataError(ValueError):
    """The arrays, or what is asked of them, are not what the Plan was made for."""


def clip_scores(counts: Sum, rank: int) -> Sum:
    """How far each candidate is from being the first with `rank` records below it: heavy_tails.py."""
    fewer = np.concatenate([[0], counts[:-1]])
    return np.asarray(np.maximum(np.maximum(rank - counts, fewer - rank), 0))


class Data:
    """The rows, and the one door through which anything leaves them: sums and points plus noise.

    Each release takes the next number, which addresses its noise, so no draw is ever used twice
    within a job.
    """

    def __init__(
        self,
        plan: Plan,
        x: NDArray[np.generic],
        y: NDArray[np.float64],
        randomness: Randomness,
        released: Floats | None = None,
    ) -> None:
        """`released` are the weights of the model that the Plan names, if it does."""
        facts = plan.facts
        # unbounded rows, for one, must never meet the kernel that trusts a row's norm
        dtype = np.int16 if facts.storage == "fixed" else np.float64
        if x.shape != (facts.rows, facts.columns) or y.shape != (facts.rows,):
            raise WrongDataError
        if x.dtype != dtype or y.dtype != np.float64 or not x.flags.c_contiguous:
            raise WrongDataError
        self._plan, self._randomness = plan, randomness
        self._x, self._y = read_only(x), read_only(y)
        self._files = [a for a in (x, y) if isinstance(a, np.memmap)]
        if sum(a.nbytes for a in self._files) <= RESIDENT_BYTES:
            self._files = []
        self._priced = plan.release.singles()
        self._prefixes: Root | Tree | None = None
        self._period_start, self._read = 0, 0  # rows below `_read` are in a sum of prefixes already
        self._releases, self._released_weights = 0, released
        self._lattice, self._clip = plan.lattice, 1.0 if plan.private_clip is None else None

    def settle_clip(self) -> float:
        """The clip in units of the lattice's: chosen here if the Plan says so, before any sum, and 1
        otherwise."""
        asked = self._plan.private_clip
        if asked is not None and self._clip is None:
            rows = range(self._plan.facts.rows)
            chosen = self._chosen(clip_scores(self.exact_counts(), asked.rank), asked.scale, rows)
            self._clip = float(_CLIPS[chosen])
            self.use(self._sums)
        return self._clip or 1.0

    def use(self, lattice: SumLattice) -> None:
        """From here on sums are made on this lattice of the Plan, in units of the clip."""
        clip, step = lattice.clip * (self._clip or 1.0), lattice.step * (self._clip or 1.0)
        self._lattice = lattice.model_copy(update={"clip": clip, "step": step})
        self.__dict__.pop("layout", None)

    def exact_counts(self) -> Sum:
        """How many records have a gradient at 0 that is no longer than each candidate for the clip:
        before noise, for the choice above and for tests that attack its sensitivity."""
        facts, loss, l1 = self._plan.facts, self._plan.spec.loss, self._sums.norm == "l1"
        slope, alike = slope_of(self._plan) if loss.margin else None, 0.0
        if slope is None:
            at_zero = VECTOR_KERNELS[loss.kind].slope_at_zero
            if at_zero is None:
                raise WrongDataError
            alike = at_zero(facts)

        def count(x: Array, y: Array) -> Sum:
            sizes, norms = np.full((2, len(y)), alike)
            if slope is not None:
                slopes_at_zero(sizes, y, slope)
            if facts.l2 is not None:
                norms[:] = facts.l2  # what rows are taken to be where slopes are clipped
            else:
                row_norms(norms, x, l1)
            with np.errstate(all="ignore"):  # a warning would tell of one record
                lengths = np.nan_to_num(sizes * norms)
            places = np.searchsorted(_CLIPS, lengths)
            return np.cumsum(np.bincount(places, minlength=_CLIPS.size + 1)[: _CLIPS.size])

        size = max(1, BLOCK_BYTES // self._x[0].nbytes)
        return np.asarray(np.sum(list(self.blocks(count, size)), axis=0, dtype=np.int64))

    @property
    def released(self) -> Floats:
        if self._released_weights is None or self._released_weights.size != self._plan.dimension:
            raise WrongDataError
        return self._released_weights

    def noisy_sum(self, weights: Floats, start: int, stop: int) -> Floats:
        """The sum of the clipped gradients of rows [start, stop) at `weights`, plus noise."""
        return self.noisy_sum_at([weights], start, stop)

    def noisy_sum_at(self, points: Sequence[Floats], start: int, stop: int) -> Floats:
        """The same, added up over several points before the noise."""
        sums = (self.exact_sum(weights, start, stop) for weights in points)
        if len(points) != self._sums.points:
            raise WrongDataError
        exact = np.asarray(np.sum(list(sums), axis=0, dtype=np.int64))
        return self._released(exact, self._sums.step, range(start, stop))

    def noisy_batch(self, weights: Floats, batch: int, start: int, stop: int) -> Floats:
        """The same over `batch` rows drawn uniformly without replacement from [start, stop), fresh for
        this release and secret: their positions are known here and nowhere else."""
        if not (0 <= start < stop <= self._plan.facts.rows and 0 < batch <= stop - start):
            raise WrongDataError
        stream = self._randomness.stream(Use.SAMPLING, self._releases)
        exact = self.exact_batch(weights, start + sample(stream, batch, stop - start))
        return self._released(exact, self._sums.step, range(start, stop), batch)

    def noisy_change(
        self, now: Floats, before: Floats, keep: float, bound: float, start: int, stop: int
    ) -> Floats:
        """`exact_change` plus noise. `bound` may follow from earlier releases: the lattice's units are
        worth as much of it as they are of the Plan's clip, so its noise is in proportion."""
        exact = self.exact_change(now, before, keep, bound, start, stop)
        return self._released(exact, self.change_step(bound), range(start, stop))

    def change_step(self, bound: float) -> float:
        """What a unit of `exact_change` is worth, in gradient units."""
        lattice, facts = self._lattice, self._plan.facts
        if isinstance(lattice, PointLattice):
            raise WrongDataError
        if lattice.derivative_units is not None and facts.feature_step is not None:
            return bound / lattice.derivative_units * facts.feature_step
        return bound / self.contribution

    def noisy_gradient(
        self, at: Floats, before: Floats | None, directions: Floats | None
    ) -> Floats:
        """`exact_leaf` over all rows plus noise, as a mean."""
        rows = range(self._plan.facts.rows)
        exact = self.exact_leaf(at, before, directions, rows.start, rows.stop)
        return self._released(exact, self._sums.step / len(rows), rows)

    def noisy_prefix(
        self, at: Floats, before: Floats | None, directions: Floats | None, start: int, stop: int
    ) -> Floats:
        """The sum since the last whole gradient of the means that `exact_leaf` has over fresh rows,
        here [start, stop): what the rows of the prefixes' matrix that are due now, plus noise, say of
        it. No row enters twice."""
        schedule = self._schedule
        if schedule.mechanism is None or start < self._read:
            raise WrongDataError
        if before is None:
            dimension = self._plan.dimension
            self._prefixes = prefixes(schedule.mechanism, schedule.period, dimension)
            self._period_start = start
        if self._prefixes is None or stop - start != schedule.rows_of(before is None):
            raise WrongDataError
        self._read = stop
        due = self._prefixes.due(self.exact_leaf(at, before, directions, start, stop))
        unit = self._sums.step / (stop - start)
        rows = range(self._period_start, stop)
        return self._prefixes.estimate([self._released(row, unit, rows) for row in due])

    def exact_leaf(
        self,
        at: Floats,
        before: Floats | None,
        directions: Floats | None,
        start: int,
        stop: int,
    ) -> Sum:
        """The sum over rows [start, stop) of a record's gradient at `at`, or of its difference to that
        at `before`, as the Plan's oracle estimates it: before noise, on the lattice of the one or of
        the other. `directions` [m, d] are those of zero order, or the perturbations of a network."""
        schedule, plan = self._schedule, self._plan
        if not 0 <= start < stop <= plan.facts.rows or isinstance(plan.lattice, ScoreLattice):
            raise WrongDataError
        lattice = plan.lattice if before is None else schedule.later
        if not isinstance(lattice, SumLattice):
            raise WrongDataError
        self.use(lattice)
        if schedule.oracle.startswith("zero"):
            if directions is None or lattice.contribution_units > CONTRIBUTION_UNITS:
                raise WrongDataError
            add = zero_order(plan, lattice, at, before, directions, schedule.radius)
            return self._sum_of(add, range(start, stop))
        if plan.spec.model.kind != "linear":
            base = at if before is None else before
            points = base + (np.zeros((1, base.size)) if directions is None else directions)
            move = None if before is None else at - before
            return self._sum_of(self._network(points, move), range(start, stop))
        if before is None:
            return self.exact_sum(at, start, stop)
        per_unit = lattice.contribution_units * lattice.step
        if lattice.derivative_units is not None:
            per_unit = lattice.derivative_units * lattice.step / (plan.facts.feature_step or 1.0)
        return self.exact_change(at, before, 1.0, per_unit, start, stop)

    def stream(self, use: Use, index: int) -> Stream:
        """For draws that depend on no data and that no privacy rests on."""
        if use not in (Use.DIRECTIONS, Use.PATH):
            raise WrongDataError
        return self._randomness.stream(use, index)

    @property
    def _schedule(self) -> OnlineToNonconvexSchedule:
        if not isinstance(self._plan.schedule, OnlineToNonconvexSchedule):
            raise WrongDataError
        return self._plan.schedule

    def noisy_point(self, point: Floats, sensitivity: float, start: int, stop: int) -> Floats:
        """A point computed from rows [start, stop), which a replaced record moves by at most
        `sensitivity` in l2, rounded to the lattice on which that was paid for, plus noise.

        The clip and the zero for a NaN keep the conversion to integers defined; a point that obeys
        its plan meets neither.
        """
        lattice = self._plan.lattice
        if not isinstance(lattice, PointLattice):
            raise WrongDataError
        step = lattice.step(sensitivity, self._plan.dimension)
        units = np.clip(np.nan_to_num(point / step), -POINT_UNITS_MAX, POINT_UNITS_MAX)
        return self._released(np.rint(units).astype(np.int64), step, range(start, stop))

    def selected(self, weights: Floats, scores: Callable[[Sum], Sum]) -> int:
        """A candidate chosen by its score, a function of the exact sum of all rows' gradients at
        `weights`. The Plan's docstring says why no two scores move apart by more than was priced."""
        rows = range(self._plan.facts.rows)
        lattice = self._plan.lattice
        if not isinstance(lattice, ScoreLattice):
            raise WrongDataError
        exact = self.exact_sum(weights, rows.start, rows.stop)
        return self._chosen(scores(exact), lattice.scale, rows)

    def chosen(self, scores: Sum, scale: int, rows: range) -> int:
        """A candidate chosen by scores, made from exact sums over `rows` as the Plan's docstring says,
        at a scale of the Plan."""
        if not isinstance(self._plan.lattice, ScoreLattice):
            raise WrongDataError
        return self._chosen(scores, scale, rows)

    def drawn(self, count: int) -> int:
        """A number below `count`, uniform and independent of the rows: which iterate is the output."""
        return int(sample(self._randomness.stream(Use.OUTPUT, 0), 1, count)[0])

    def _chosen(self, scores: Sum, scale: int, rows: Sequence[int]) -> int:
        """Every choice goes through here; `rows` are those that `scores` depend on."""
        if all(scale != priced.scale for priced in self._priced):
            raise WrongDataError
        stream = self._randomness.stream(Use.NOISE, self._next_release())
        return choose(stream, scores, scale)

    def blocks(
        self,
        work: Callable[[Array, Array], T],
        size: int,
        *,
        in_turn: bool = False,
        rows: range | None = None,
    ) -> Iterator[T]:
        """What `work` makes of each block of `size` rows (of all, or of a range), in the order of the
        rows, whichever thread did it; `in_turn` for work that goes on where the last block ended. It
        is without noise: for what leaves by `noisy_point` or by a choice. For points, labels are kept
        within [-1, 1], beyond which a loss would be less smooth than was planned."""
        bounded = isinstance(self._plan.lattice, PointLattice)
        first, end = (0, self._plan.facts.rows) if rows is None else (rows.start, rows.stop)

        def one(low: int) -> T:
            high = min(low + size, end)
            y = self._y[low:high]
            result = work(self._x[low:high], read_only(np.clip(y, -1.0, 1.0)) if bounded else y)
            for file in self._files:
                forget(file, low, high)
            return result

        lows = range(first, end, size)
        alone = in_turn or len(lows) == 1 or thread_count() == 1
        return map(one, lows) if alone else pool().map(one, lows)

    def _released(
        self, exact: Sum, step: float, rows: Sequence[int], batch: int | None = None
    ) -> Floats:
        """Every noisy vector goes through here; `rows` are those that `exact` depends on, given what
        was released before, or of which it depends on a secret `batch`."""
        lattice = self._lattice
        if isinstance(lattice, ScoreLattice) or self._clip is None:
            raise WrongDataError
        drawn = None if batch is None else (batch, len(rows))
        if not {one._replace(drawn=drawn) for one in lattice.release().singles()} <= self._priced:
            raise WrongDataError
        sampler = rounded_normal if lattice.noise == "gaussian" else rounded_laplace
        stream = self._randomness.stream(Use.NOISE, self._next_release())
        noise = sampler(stream, exact.size, lattice.bits)
        return (exact + noise).astype(np.float64) * step

    def _next_release(self) -> int:
        """The number of the next release, if it was paid for."""
        if self._releases >= self._plan.release.count():
            raise WrongDataError
        self._releases += 1
        return self._releases - 1

    @property
    def _sums(self) -> SumLattice:
        if not isinstance(self._lattice, SumLattice):
            raise WrongDataError
        return self._lattice

    def exact_sum(self, weights: NDArray[np.float64], start: int, stop: int) -> Sum:
        """The sum before noise: for the line above, and for tests that attack its sensitivity."""
        if not 0 <= start < stop <= self._plan.facts.rows:
            raise WrongDataError
        return self._exact(weights, range(start, stop))

    def exact_batch(self, weights: Floats, positions: NDArray[np.int64]) -> Sum:
        """The sum over the rows at these positions, each named once, in order."""
        return self._exact(weights, positions)

    def exact_change(
        self, now: Floats, before: Floats, keep: float, bound: float, start: int, stop: int
    ) -> Sum:
        """The sum over rows [start, stop) of a record's gradient at `now` less `keep` times that at
        `before`, clipped as one: its slope to `bound` (fixed rows) or its norm. A record moves it as
        far as any sum on this lattice, whatever `bound` is. Linear models only."""
        if not 0 <= start < stop <= self._plan.facts.rows or not bound > 0:
            raise WrongDataError
        if not self._plan.spec.loss.margin:
            raise WrongDataError
        if self._plan.spec.model.kind != "linear":
            raise WrongDataError
        fixed = self._plan.facts.storage == "fixed"
        make = self._fixed_change if fixed else self._float_change
        return self._sum_of(make(now, before, keep, bound), range(start, stop))

    def _exact(self, weights: Floats, rows: range | NDArray[np.int64]) -> Sum:
        fixed = self._plan.facts.storage == "fixed"
        if self._plan.spec.model.kind != "linear":
            return self._sum_of(self._network(weights[None], None), rows)
        vectors = VECTOR_KERNELS.get(self._plan.spec.loss.kind)
        if vectors is None:
            return self._sum_of(self._fixed(weights) if fixed else self._float(weights), rows)
        if isinstance(self._plan.smoothing, Ball):
            raise WrongDataError
        return self._sum_of(vectors.gradients(self._plan, self._sums, self, weights), rows)

    def _sum_of(self, add: Add, rows: range | NDArray[np.int64]) -> Sum:
        """Integer addition does not mind in which order, and a record's floats do not depend on the
        block that it is in: any number of threads gives the same bits."""
        threads = thread_count() if len(rows) * self._plan.dimension >= _THREADED else 1
        share = -(-len(rows) // threads)
        parts = [rows[low : low + share] for low in range(0, len(rows), share)]
        others = [pool().submit(self._sum_blocks, add, part) for part in parts[1:]]
        total = self._sum_blocks(add, parts[0])  # here, while they wake
        for other in others:
            total += other.result()
        return total

    def _sum_blocks(self, add: Add, rows: range | NDArray[np.int64]) -> Sum:
        """The sum over rows in order, in blocks that need not stay in memory."""
        size = max(16, BLOCK_BYTES // self._x[0].nbytes // 16 * 16)
        total = np.zeros(self._plan.dimension, dtype=np.int64)
        for first in range(0, len(rows), size):
            block = rows[first : first + size]
            low, high = int(block[0]), int(block[-1]) + 1
            if isinstance(block, range):
                x, y = self._x[low:high], self._y[low:high]
            else:
                x, y = (np.take(array, block, axis=0) for array in (self._x, self._y))
            total += add(read_only(x), read_only(y))
            for file in self._files:
                forget(file, low, high)
        return total

    def _fixed(self, weights: NDArray[np.float64]) -> Add:
        bound, scale, places, fast = self.layout
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
            with np.errstate(all="ignore"):  # beyond float32 a label is infinite: no one's concern
                labels = read_only(y.astype(f))
            add_fixed(total, x, labels, *arguments)
            return total[places]

        return add

    def _fixed_change(self, now: Floats, before: Floats, keep: float, bound: float) -> Add:
        units_max, _, places, fast = self.layout
        facts, loss = self._plan.facts, slope_of(self._plan)
        size = now.size + (-now.size % madd.LANES if fast else 0)
        parts: list[Any] = []
        for weights in (before, now - before):
            units, per_unit = integer_weights(weights, facts.l2_units or 0)
            padded = np.zeros(size, dtype=np.int16)
            padded[places] = units
            parts += [read_only(padded), min((facts.feature_step or 0.0) * per_unit, 1e280)]
        arguments = *parts, loss, keep, units_max / bound, units_max, fast

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(size, dtype=np.int64)
            add_fixed_change(total, x, y, *arguments)
            return total[places]

        return add

    @cached_property
    def layout(self) -> tuple[int, float, NDArray[np.int64], bool]:
        """For fixed rows: the bound on a multiplier, multipliers per unit of derivative, where each
        column stands, and whether that is in the chunks of the vector kernel."""
        lattice, facts = self._lattice, self._plan.facts
        if isinstance(lattice, PointLattice) or lattice.derivative_units is None:
            raise WrongDataError
        if facts.feature_step is None:
            raise WrongDataError
        if lattice.derivative_units > DERIVATIVE_UNITS:  # multipliers are int16
            raise WrongDataError
        columns, fast = facts.columns, madd.AVAILABLE and facts.columns >= madd.LANES
        places = madd.places(columns) if fast else np.arange(columns)
        return lattice.derivative_units, facts.feature_step / lattice.step, places, fast

    def _float(self, weights: NDArray[np.float64]) -> Add:
        lattice, loss = self._sums, slope_of(self._plan)
        bound, use_l1 = self.contribution, lattice.norm == "l1"

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(weights.size, dtype=np.int64)
            add_float(total, x, y, weights, loss, lattice.clip, bound, use_l1)
            return total

        return add

    def _float_change(self, now: Floats, before: Floats, keep: float, bound: float) -> Add:
        loss, units_max, use_l1 = slope_of(self._plan), self.contribution, self._sums.norm == "l1"

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(now.size, dtype=np.int64)
            add_float(total, x, y, now, loss, bound, units_max, use_l1, before, keep)
            return total

        return add

    def _network(self, points: Floats, move: Floats | None) -> Add:
        lattice, facts = self._sums, self._plan.facts
        if lattice.contribution_units > NETWORK_UNITS:
            raise WrongDataError  # entries would leave int32, and their squares int64
        if facts.storage == "float64":
            return network_float(self._plan, lattice, points, move)
        _, _, places, fast = self.layout
        return network_fixed(self._plan, lattice, places, fast, points, move)

    @property
    def contribution(self) -> int:
        """The bound on a vector of integers that kernels round to, as int32."""
        if self._sums.contribution_units > CONTRIBUTION_UNITS:
            raise WrongDataError
        return self._sums.contribution_units


def forget(array: "np.memmap[Any, Any]", low: int, high: int) -> None:
    """Let the system drop the pages of rows [low, high) of a mapped file that no other rows share."""
    row_bytes = array.nbytes // len(array)
    page = mmap.PAGESIZE
    begin = -(-(array.offset + low * row_bytes) // page) * page
    end = (array.offset + high * row_bytes) // page * page
    if end > begin:
        array._mmap.madvise(mmap.MADV_DONTNEED, begin, end - begin)  # type: ignore[attr-defined]


def thread_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """Threads of our own around kernels that release the interpreter's lock: numba's layers either
    abort when entered twice or do not survive a fork."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="epsilond-kernel")
