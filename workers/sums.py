"""Exact sums over rows: what is computed, before any noise.

Every sum here is of integer vectors, one per record, within the bound of its lattice, by the kernels
that the Plan's model, loss and storage call for. Nothing here is private yet: workers/data.py lets
sums out, by the gate.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from service.planning.draft import Ball
from service.planning.lattice import (
    CONTRIBUTION_UNITS,
    DERIVATIVE_UNITS,
    NETWORK_UNITS,
    ScoreLattice,
    SumLattice,
    row_units_of,
)
from service.planning.plan import Plan
from service.planning.spec import Facts
from workers.arrays import Add, Array, Floats, Sum, integer_weights, read_only
from workers.clip import CLIPS
from workers.kernels.gradients import add_fixed, add_fixed_change, add_float
from workers.kernels.losses import slope_of
from workers.kernels.simd import Layout
from workers.kernels.sizes import row_norms, slopes_at_zero
from workers.losses import VECTOR_KERNELS
from workers.oracles import network_fixed, network_float, zero_order
from workers.rows import BLOCK_BYTES, Rows, WrongDataError

Positions = range | NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """A record's gradient at `at`, or its difference to that at `before`. Zero order: from values of
    the loss `radius` to either side along `directions` [m, d]. First order (no radius): of a network,
    the mean over the points that `directions` lead to."""

    at: Floats
    before: Floats | None = None
    directions: Floats | None = None
    radius: float | None = None


class Sums:
    """Sums on one lattice. Each method names the `Add` of a block, and adds that up over rows."""

    def __init__(self, plan: Plan, rows: Rows, lattice: SumLattice | ScoreLattice) -> None:
        if isinstance(lattice, SumLattice):
            require_consistent(plan.facts, lattice)
        self._plan, self._rows, self.lattice = plan, rows, lattice
        self._fixed = plan.facts.storage == "fixed"

    def gradients(self, weights: Floats, rows: Positions) -> Sum:
        """Of the clipped gradients at `weights`, over a range of rows or over rows at positions that
        are each named once, in order."""
        self._require(weights)
        if self._plan.spec.model.kind != "linear":
            return self._over(rows, self._network(weights[None], None))
        vectors = VECTOR_KERNELS.get(self._plan.spec.loss.kind)
        if vectors is None:
            make = self._gradient_fixed if self._fixed else self._gradient_float
            return self._over(rows, make(weights))
        if isinstance(self._plan.smoothing, Ball):
            raise WrongDataError("no kernel averages a loss without a margin over a ball")
        return self._over(rows, vectors.gradients(self._plan, self._sums, self, weights))

    def changes(
        self, now: Floats, before: Floats, keep: float, bound: float, rows: Positions
    ) -> Sum:
        """Of a record's gradient at `now` less `keep` times that at `before`, clipped as one: its
        slope to `bound` (fixed rows) or its norm. A record moves it as far as any sum on this lattice,
        whatever `bound` is. Linear models only."""
        self._require(now, before)
        if not bound > 0:
            raise WrongDataError("a change of gradients needs a bound above 0")
        if not self._plan.spec.loss.margin:
            raise WrongDataError(
                f"no kernel sums changes of gradients of {self._plan.spec.loss.kind}"
            )
        if self._plan.spec.model.kind != "linear":
            raise WrongDataError("no kernel sums changes of gradients of a network by its slopes")
        make = self._change_fixed if self._fixed else self._change_float
        return self._over(rows, make(now, before, keep, bound))

    def change_step(self, bound: float) -> float:
        """What a unit of `changes` is worth, in gradient units."""
        lattice, facts = self.lattice, self._plan.facts
        if lattice.derivative_units is not None and facts.feature_step is not None:
            return bound / lattice.derivative_units * facts.feature_step
        return bound / self.contribution

    def network_gradients(self, points: Floats, move: Floats | None, rows: Positions) -> Sum:
        """Of the mean of a record's gradients at `points`; or, at points + move less at points."""
        self._require(*points, *(() if move is None else (move,)))
        return self._over(rows, self._network(points, move))

    def central_differences(
        self, at: Floats, before: Floats | None, directions: Floats, radius: float, rows: Positions
    ) -> Sum:
        """Of estimates from values of the loss alone, along `directions` [m, d]."""
        self._require(at, *directions, *(() if before is None else (before,)))
        if self._sums.contribution_units > CONTRIBUTION_UNITS:
            raise WrongDataError("a vector of central differences would leave 32 bits")
        add = zero_order(self._plan, self._sums, at, before, directions, radius)
        return self._over(rows, add)

    def estimated(self, e: Estimate, rows: Positions) -> Sum:
        """The sum of what each record's estimate is."""
        lattice, facts = self._sums, self._plan.facts
        if e.radius is not None:
            if e.directions is None:
                raise WrongDataError("an estimate from values needs directions")
            return self.central_differences(e.at, e.before, e.directions, e.radius, rows)
        if self._plan.spec.model.kind != "linear":
            base = e.at if e.before is None else e.before
            points = base + (np.zeros((1, base.size)) if e.directions is None else e.directions)
            move = None if e.before is None else e.at - e.before
            return self.network_gradients(points, move, rows)
        if e.before is None:
            return self.gradients(e.at, rows)
        per_unit = lattice.contribution_units * lattice.step
        if lattice.derivative_units is not None:
            per_unit = lattice.derivative_units * lattice.step / (facts.feature_step or 1.0)
        return self.changes(e.at, e.before, 1.0, per_unit, rows)

    def shorter(self) -> Sum:
        """How many records have a gradient at 0 that is no longer than each candidate for the clip."""
        facts, loss, l1 = self._plan.facts, self._plan.spec.loss, self._sums.norm == "l1"
        slope, alike = slope_of(self._plan) if loss.margin else None, 0.0
        if slope is None:
            at_zero = VECTOR_KERNELS[loss.kind].slope_at_zero
            if at_zero is None:
                raise WrongDataError(f"gradients of {loss.kind} are no multiples of rows")
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
            places = np.searchsorted(CLIPS, lengths)
            return np.cumsum(np.bincount(places, minlength=CLIPS.size + 1)[: CLIPS.size])

        size = max(1, BLOCK_BYTES // self._rows.row_bytes)
        return np.asarray(np.sum(list(self._rows.blocks(count, size)), axis=0, dtype=np.int64))

    def _require(self, *vectors: Floats) -> None:
        """Kernels trust the sizes of what they are given."""
        for each in vectors:
            if type(each) is not np.ndarray or each.dtype != np.float64:
                raise WrongDataError("weights are plain arrays of float64")
            if each.shape != (self._plan.dimension,):
                raise WrongDataError("there is another number of weights than the Plan has")

    def _over(self, rows: range | NDArray[np.int64], add: Add) -> Sum:
        return self._rows.sum(add, self._plan.dimension, rows)

    @property
    def _sums(self) -> SumLattice:
        if not isinstance(self.lattice, SumLattice):
            raise WrongDataError("the Plan has no lattice for vectors, only for scores")
        return self.lattice

    @property
    def contribution(self) -> int:
        """The bound on a vector of integers that kernels round to, as int32."""
        if self._sums.contribution_units > CONTRIBUTION_UNITS:
            raise WrongDataError("a record's vector would leave 32 bits")
        return self._sums.contribution_units

    @cached_property
    def layout(self) -> tuple[int, float, Layout]:
        """For fixed rows: the bound on a multiplier, multipliers per unit of derivative, and how
        columns are laid out for the kernels."""
        lattice, facts = self.lattice, self._plan.facts
        if lattice.derivative_units is None or facts.feature_step is None:
            raise WrongDataError("the Plan's lattice has no multipliers of rows")
        if lattice.derivative_units > DERIVATIVE_UNITS:
            raise WrongDataError("a multiplier would leave 16 bits")
        return lattice.derivative_units, facts.feature_step / lattice.step, Layout(facts.columns)

    def _gradient_fixed(self, weights: NDArray[np.float64]) -> Add:
        bound, scale, layout = self.layout
        facts, loss = self._plan.facts, slope_of(self._plan)
        units, per_unit = integer_weights(weights, facts.l2_units or 0)
        margin_step = min((facts.feature_step or 0.0) * per_unit, 1e30)  # margins are float32
        f = np.float32
        arguments = layout.pad(units), f(margin_step), loss, f(scale), f(bound), layout.fast

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(layout.size, dtype=np.int64)
            with np.errstate(all="ignore"):  # beyond float32 a label is infinite: no one's concern
                labels = read_only(y.astype(f))
            add_fixed(total, x, labels, *arguments)
            return layout.unpad(total)

        return add

    def _change_fixed(self, now: Floats, before: Floats, keep: float, bound: float) -> Add:
        units_max, _, layout = self.layout
        facts, loss = self._plan.facts, slope_of(self._plan)
        parts: list[Any] = []
        for weights in (before, now - before):
            units, per_unit = integer_weights(weights, facts.l2_units or 0)
            parts += [layout.pad(units), min((facts.feature_step or 0.0) * per_unit, 1e280)]
        arguments = *parts, loss, keep, units_max / bound, units_max, layout.fast

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(layout.size, dtype=np.int64)
            add_fixed_change(total, x, y, *arguments)
            return layout.unpad(total)

        return add

    def _gradient_float(self, weights: NDArray[np.float64]) -> Add:
        lattice, loss = self._sums, slope_of(self._plan)
        bound, use_l1 = self.contribution, lattice.norm == "l1"

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(weights.size, dtype=np.int64)
            add_float(total, x, y, weights, loss, lattice.clip, bound, use_l1)
            return total

        return add

    def _change_float(self, now: Floats, before: Floats, keep: float, bound: float) -> Add:
        loss, units_max, use_l1 = slope_of(self._plan), self.contribution, self._sums.norm == "l1"

        def add(x: Array, y: Array) -> Sum:
            total = np.zeros(now.size, dtype=np.int64)
            add_float(total, x, y, now, loss, bound, units_max, use_l1, before, keep)
            return total

        return add

    def _network(self, points: Floats, move: Floats | None) -> Add:
        lattice, facts = self._sums, self._plan.facts
        if lattice.contribution_units > NETWORK_UNITS:
            raise WrongDataError("entries would leave int32, and their squares int64")
        if facts.storage == "float64":
            return network_float(self._plan, lattice, points, move)
        return network_fixed(self._plan, lattice, self.layout[2], points, move)


def require_consistent(facts: Facts, lattice: SumLattice) -> None:
    """What the meter is told of a sum, contribution_units in a norm, is what kernels see to."""
    if (lattice.noise == "laplace") != (lattice.norm == "l1"):
        raise WrongDataError("Laplace noise hides distances in l1, Gaussian noise those in l2")
    row_units = row_units_of(facts, lattice.norm)
    if lattice.derivative_units is not None and (
        row_units is None or lattice.derivative_units * row_units > lattice.contribution_units
    ):
        raise WrongDataError("a multiplier times a row may be longer than a contribution")


def lattices_of(plan: Plan) -> list[SumLattice]:
    """Those on which the Plan has sums made, its own first: none for points and choices."""
    if not isinstance(plan.lattice, SumLattice):
        return []
    found: list[SumLattice] = [plan.lattice]

    def look(part: Any) -> None:
        if isinstance(part, SumLattice):
            found.append(part)
        elif isinstance(part, BaseModel):
            for name in type(part).model_fields:
                look(getattr(part, name))
        elif isinstance(part, tuple):
            for each in part:
                look(each)

    look(plan.schedule)
    return found
