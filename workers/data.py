"""A dataset as the algorithms see it: noisy sums, noisy points and choices, and nothing else.

What is computed is in sums.py, what may leave and with which noise in gate.py; here the two meet.
Every method that returns something of the rows returns what the gate let out; what a point is made of
is seen by the function that makes it, and its result goes to the gate. A run is not even given this
object, but an `Answers` (transcript.py), which has the same methods and no rows.
"""

from collections.abc import Callable, Sequence
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import (
    POINT_UNITS_MAX,
    CountLattice,
    MomentLattice,
    PointLattice,
    ScoreLattice,
    SumLattice,
)
from service.planning.plan import Plan
from service.planning.releases.metering import Prefix, Running
from service.planning.shared.dual import PerturbedMinimumSchedule
from service.planning.shared.moments import derived
from service.planning.shared.prefixes import Mechanism
from service.planning.tables import Counts
from service.planning.vertices import Corners
from workers import moments
from workers.arrays import Add, Floats, Sum
from workers.clip import CLIPS, clip_ballot
from workers.gate import Ballot, Gate, guarded
from workers.label_range import counted, interval, range_ballot
from workers.moments import Frame
from workers.prefixes import Root, Tree, prefixes
from workers.randomness import Randomness, Stream, Use
from workers.rows import Blocks, Rows, WrongDataError
from workers.running import Exact, carry, nothing
from workers.sums import Estimate, Sums, lattices_of
from workers.tables import add_tables, planned_tables
from workers.vertices import VertexScores

__all__ = ["Blocks", "Data", "Estimate", "Frame"]


class Data:
    def __init__(
        self,
        plan: Plan,
        x: NDArray[np.generic],
        y: NDArray[np.float64],
        randomness: Randomness,
        released: Floats | None = None,
    ) -> None:
        """`released` are the weights of the model that the Plan names, if it does."""
        self._plan, self._released, self._lock = plan, released, RLock()
        self._rows, self._gate = Rows(plan.facts, x, y), Gate(plan, randomness)
        self._clip = 1.0 if plan.private_clip is None else None
        self._lattices = lattices_of(plan)
        self._prefixes: Root | Tree | None = None
        self._running: Exact = nothing(plan.dimension)
        self._series, self._number, self._hull = 0, 0, range(0)  # of the sums that are carried on
        self._points = list(plan.schedule.released_points(plan.facts.rows))
        stored = plan.schedule.derived_constant() is None
        self._of_sums = (plan, self._rows) if stored else None
        if stored and isinstance(plan.lattice, SumLattice | ScoreLattice):
            self._sums = self._on(plan.lattice)
        if isinstance(plan.lattice, ScoreLattice):
            self._vertices = VertexScores(plan, plan.lattice.derivative_units)

    @property
    def released(self) -> Floats:
        if self._released is None or self._released.size != self._plan.weights_named:
            raise WrongDataError("the Plan is about a model that was not given, or another one")
        return self._released

    # --- Sums ---

    @guarded
    def settle_clip(self) -> float:
        """The clip in units of the lattice's: chosen here if the Plan says so, before any sum, and 1
        otherwise."""
        asked = self._plan.private_clip
        if asked is not None and self._clip is None:
            ballot = clip_ballot(self._sums.shorter(), asked)
            chosen = self._choice(ballot, asked.scale, range(self._rows.count))
            self._clip = float(CLIPS[chosen])
            self.use(self._lattices[0])
        return self._clip or 1.0

    @guarded
    def set_clip(self, factor: float) -> None:
        """From here on the clip is `factor` times the Plan's, for a Plan that leaves this to what was
        released before. A sum is made of integers below the same bound whatever they are worth."""
        if not self._plan.schedule.settles_clip() or self._plan.private_clip is not None:
            raise WrongDataError("the Plan's clip is settled, or chosen from the data")
        if not CLIPS[0] <= factor <= CLIPS[-1]:
            raise WrongDataError("a clip is worth some number of the Plan's, above 0")
        self._clip = float(factor)
        self.use(self._lattices[0])

    @guarded
    def use(self, lattice: SumLattice) -> None:
        """From here on sums are made on this lattice of the Plan, in units of the clip."""
        if self._clip is None:
            raise WrongDataError("the Plan has its clip chosen, and no sum comes before that")
        if lattice not in self._lattices:
            raise WrongDataError("sums are made on the lattices of the Plan, and this is another")
        lattice = self._lattices[self._lattices.index(lattice)]  # what is equal may be another
        worth = {"clip": lattice.clip * self._clip, "step": lattice.step * self._clip}
        self._sums = self._on(lattice.model_copy(update=worth))

    def noisy_sum(self, weights: Floats, start: int, stop: int) -> Floats:
        """The sum of the clipped gradients of rows [start, stop) at `weights`, plus noise."""
        return self.noisy_sum_at([weights], start, stop)

    @guarded
    def noisy_sum_at(self, points: Sequence[Floats], start: int, stop: int) -> Floats:
        """The same, added up over several points before the noise."""
        rows, lattice, points = self._rows.within(start, stop), self._sum_lattice, list(points)
        if len(points) != lattice.points:
            raise WrongDataError(f"sums at {len(points)} points, and {lattice.points} were priced")
        exact = sum(self._sums.gradients(weights, rows) for weights in points)
        return self._vector(np.asarray(exact), lattice.step, rows)

    @guarded
    def noisy_batch(self, weights: Floats, batch: int, start: int, stop: int) -> Floats:
        """The same over `batch` rows drawn uniformly without replacement from [start, stop), fresh for
        this release and secret: their positions are known here and nowhere else."""
        rows, lattice = self._rows.within(start, stop), self._sum_lattice
        exact = self._sums.gradients(weights, self._gate.drawn_batch(batch, rows))
        return self._vector(exact, lattice.step, rows, batch=batch)

    @guarded
    def noisy_change(
        self, now: Floats, before: Floats, keep: float, bound: float, start: int, stop: int
    ) -> Floats:
        """The sum over [start, stop) of gradients at `now` less `keep` times those at `before`, plus
        noise. `bound` may follow from earlier releases: units and noise are in proportion to it."""
        rows, sums = self._rows.within(start, stop), self._sums_of_vectors
        exact = sums.changes(now, before, keep, bound, rows)
        return self._vector(exact, sums.change_step(bound), rows)

    @guarded
    def noisy_gradient(
        self, estimate: Estimate, lattice: SumLattice, batch: int | None = None
    ) -> Floats:
        """The mean of the estimate over all rows, or over so many as noisy_batch draws, plus noise."""
        rows = range(self._rows.count)
        self.use(lattice)
        read = rows if batch is None else self._gate.drawn_batch(batch, rows)
        step = self._sum_lattice.step / len(read)
        return self._vector(self._estimated(estimate, read), step, rows, batch=batch)

    def begin_prefixes(self, mechanism: Mechanism, length: int) -> None:
        self._prefixes = prefixes(mechanism, length, self._plan.dimension)
        self._begin_series()

    @guarded
    def noisy_prefix(
        self, estimate: Estimate, lattice: SumLattice, start: int, stop: int
    ) -> Floats:
        """The sum, since the prefixes began, of the means that estimates have over fresh rows, here
        [start, stop): what the rows of the matrix that are due now, plus noise, say of it."""
        if self._prefixes is None:
            raise WrongDataError("prefix sums were not begun")
        fresh = self._carried_on(start, stop)
        self.use(lattice)
        due = self._prefixes.due(self._estimated(estimate, fresh))
        step = self._sum_lattice.step / len(fresh)
        noisy = [
            self._vector(row, step, self._hull, prefix=Prefix(self._series, self._number, fresh, w))
            for w, row in due
        ]
        return self._prefixes.estimate(noisy)

    # --- Moments, and rows in coordinates that follow from them ---

    @guarded
    def choose_label_range(self) -> Floats:
        """Middle and half length of the interval that labels are clipped to from here on, and which is
        [-1, 1] to all that follows: chosen from the data."""
        asked = self._plan.schedule.label_range()
        if asked is None or self._plan.facts.label_bound != 1 or hasattr(self, "_sums"):
            raise WrongDataError("the Plan has no range of labels to choose, or sums came first")
        ballot = range_ballot(counted(self._rows), asked)
        middle, half = interval(self._choice(ballot, asked.scale, range(self._rows.count)))
        self._rows = self._rows.relabelled(middle, half)
        return np.array([middle, half])

    @guarded
    def noisy_label_sum(self) -> Floats:
        """The sum over all rows of y, plus noise."""
        lattice = moments.lattice_of(self._plan, 0)
        return self._moments(moments.label_sum(lattice), lattice) / lattice.label_units

    @guarded
    def noisy_means(self) -> Floats:
        """The sums over all rows of x without the constant, y, |x|^2 and y^2, plus noise."""
        lattice = moments.lattice_of(self._plan, 1)
        exact = moments.first_moments(self._plan.facts, lattice)
        return self._moments(exact, lattice) * moments.mean_units(self._plan.facts, lattice)

    @guarded
    def noisy_moments(self, frame: Frame) -> Floats:
        """The sum over all rows of z z', plus noise, z the row in this frame and its label as the last
        entry: a symmetric matrix in units of x and y."""
        lattice = moments.lattice_of(self._plan, 2)
        exact = moments.second_moments(self._plan.facts, lattice, frame)
        return moments.matrix(self._moments(exact, lattice), lattice, frame)

    @guarded
    def derive(self, centre: Floats, a: Floats, radius: float) -> Floats:
        """From here on sums are over the rows a (x - centre)/radius behind a constant, no longer than
        the Plan says: which rows these are may follow from earlier releases. `a` as it was rounded."""
        plan, constant = self._plan, self._plan.schedule.derived_constant()
        if constant is None:
            raise WrongDataError("sums of this Plan are over rows as they are stored")
        block, rounded = moments.derivation(plan.facts, constant, centre, a, radius)
        facts = derived(plan.facts, constant)
        self._of_sums = plan.model_copy(update={"facts": facts}), self._rows.derived(facts, block)
        self.use(self._lattices[0])
        return rounded

    @guarded
    def noisy_counts(self, counts: Counts, ranges: Floats | None = None) -> Floats:
        """The Plan's tables of this release plus noise, with the ranges of those that have none."""
        counts = planned_tables(self._plan, counts)
        rows, lattice = self._rows.within(counts.start, counts.stop), counts.lattice
        add = add_tables(self._plan.facts, counts, ranges)
        exact = self._rows.sum(add, sum(lattice.sizes), rows)
        units = self._vector(exact, 1.0, rows, lattice=lattice)
        return np.asarray(units / np.repeat(lattice.weights, lattice.sizes))

    # --- Points ---

    @guarded
    def noisy_point(self, make: Callable[[Blocks], Floats]) -> Floats:
        """The next point of the Plan, made by `make` from that point's rows. A replaced record of them
        moves it by at most its sensitivity in l2; it is rounded to the lattice on which that was paid
        for, plus noise. Whatever else `make` may write down, what is published is computed by a run in
        which it is not called (transcript.py).

        The clip and the zero for a NaN keep the conversion to integers defined; a point that obeys
        its plan meets neither.
        """
        if isinstance(self._plan.schedule, PerturbedMinimumSchedule):
            raise WrongDataError("the Plan's point is a minimiser with a linear term")
        return self._point(make)

    @guarded
    def noisy_minimum(self, make: Callable[[Blocks, Floats], Floats]) -> Floats:
        """The Plan's point, made by `make` from all rows and its objective's linear term, which nobody
        else sees. A replaced record moves its distance from the exact minimiser by its sensitivity."""
        schedule = self._plan.schedule
        if not isinstance(schedule, PerturbedMinimumSchedule):
            raise WrongDataError("the Plan's objective has no linear term")
        units = self._gate.linear_term(schedule.term, range(self._rows.count))
        term = units.astype(np.float64) * schedule.term_step
        return self._point(lambda blocks: make(blocks, term))

    def _point(self, make: Callable[[Blocks], Floats]) -> Floats:
        lattice = self._plan.lattice
        if not isinstance(lattice, PointLattice) or not self._points:
            raise WrongDataError("the Plan has no point, or no other one")
        rows, sensitivity = self._points.pop(0)
        blocks = Blocks(self._rows, rows)
        try:
            point = make(blocks)
        finally:
            blocks.close()
        step = lattice.step(sensitivity, self._plan.dimension)
        units = np.nan_to_num(np.array(point, dtype=np.float64, subok=False) / step)
        exact = np.rint(np.clip(units, -POINT_UNITS_MAX, POINT_UNITS_MAX)).astype(np.int64)
        return self._vector(exact, step, rows)

    # --- Choices ---

    @property
    def corners(self) -> Corners:
        """The vertices that are chosen among."""
        return self._vertices.corners

    @guarded
    def choose(self, weights: Floats, pull: Floats) -> int:
        """A vertex, by its score <vertex, exact sum of all rows' gradients at `weights` + pull>."""
        rows, lattice = range(self._rows.count), self._score_lattice
        exact = self._sums.gradients(weights, rows)
        ballot = self._vertices.ballot(exact, pull, self._gate.number)
        return self._choice(ballot, lattice.scale, rows)

    def begin_running_sum(self) -> None:
        self._running = nothing(self._plan.dimension)
        self._begin_series()

    @guarded
    def choose_by_running_sum(
        self,
        pull: Floats,
        change: tuple[Floats, Floats, float, float],
        *,
        kept: int,
        gain: int,
        scale: int,
        start: int,
        stop: int,
    ) -> int:
        """A vertex, by its score <vertex, d + pull> for the running sum d = (kept d + gain h)/2^32
        since it was begun; h is the sum over fresh rows, here [start, stop), of gradients' changes
        (now, before, keep, bound)."""
        fresh = self._carried_on(start, stop)
        exact = self._sums.changes(*change, fresh)
        running = carry(self._running, exact, kept, gain)
        number = self._gate.number
        ballot = self._vertices.running_ballot(running, exact, pull, number, kept=kept, gain=gain)
        how = Running(self._series, self._number, fresh, kept, ballot.slack)
        chosen = self._choice(ballot, scale, self._hull, how)
        self._running = running
        return chosen

    # --- Draws that depend on no row ---

    def drawn(self, count: int) -> int:
        return self._gate.drawn(count)

    def stream(self, use: Use, index: int) -> Stream:
        return self._gate.stream(use, index)

    def close(self) -> None:
        """At the end of a run, before anything of it is published."""
        self._gate.close()

    def _begin_series(self) -> None:
        self._series, self._number = self._series + 1, 0

    def _carried_on(self, start: int, stop: int) -> range:
        """The rows of a sum that joins those of its series: behind all that any of them has read."""
        fresh = self._rows.within(start, stop)
        if start < self._hull.stop:
            raise WrongDataError("a row enters one sum of those that are carried on")
        self._number += 1
        self._hull = fresh if self._number == 1 else range(self._hull.start, stop)
        return fresh

    def _on(self, lattice: SumLattice | ScoreLattice) -> Sums:
        if self._of_sums is None:
            raise WrongDataError("sums of this Plan are over derived rows, and there are none yet")
        return Sums(*self._of_sums, lattice)

    def _moments(self, add: Add, lattice: MomentLattice) -> Floats:
        rows = range(self._rows.count)
        exact = self._rows.sum(add, lattice.entries(self._plan.facts.columns), rows)
        return self._vector(exact, lattice.step, rows, lattice=lattice)

    @property
    def _sums_of_vectors(self) -> Sums:
        if not isinstance(self._plan.lattice, SumLattice) or self._of_sums is None:
            raise WrongDataError("there is no lattice for sums, or none of rows as they are now")
        return self._sums

    @property
    def _sum_lattice(self) -> SumLattice:
        lattice = self._sums_of_vectors.lattice
        assert isinstance(lattice, SumLattice)
        return lattice

    @property
    def _score_lattice(self) -> ScoreLattice:
        if not isinstance(self._plan.lattice, ScoreLattice):
            raise WrongDataError("the Plan has no lattice for scores")
        return self._plan.lattice

    def _vector(
        self,
        exact: Sum,
        step: float,
        rows: range,
        *,
        lattice: MomentLattice | CountLattice | None = None,
        batch: int | None = None,
        prefix: Prefix | None = None,
    ) -> Floats:
        """Every noisy vector goes through here, and each of its units is worth `step`."""
        if self._clip is None:
            raise WrongDataError("the Plan has its clip chosen, and no sum comes before that")
        of_plan = self._plan.lattice
        made_on = lattice or (of_plan if isinstance(of_plan, PointLattice) else self._sum_lattice)
        noisy = self._gate.vector(exact, made_on, rows, batch=batch, prefix=prefix)
        return noisy.astype(np.float64) * step

    def _choice(
        self, ballot: Ballot, scale: int, rows: range, running: Running | None = None
    ) -> int:
        """Every choice goes through here."""
        return self._gate.choice(ballot, scale, rows, running)

    def _estimated(self, estimate: Estimate, rows: range | NDArray[np.int64]) -> Sum:
        return self._sums.estimated(estimate, rows)
