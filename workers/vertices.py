"""Scores of a set's vertices, from an exact sum or a running one, and how far a record moves them."""

from functools import cached_property

import numpy as np

from service.planning.plan import Plan
from service.planning.releases import Recursive
from service.planning.shared.vertices import SLACK, VERTEX_BITS, fixed_point, scores, shape
from service.planning.vertices import Corners, public_part
from workers.arrays import Floats, Sum
from workers.gate import Ballot
from workers.running import PLACES, Exact, carry, nearest, nothing


class VertexScores:
    """In the units of the Plan. `pull` is the ridge's part, public, in units of the sum."""

    def __init__(self, plan: Plan, slope: int) -> None:
        """No slope is larger than `slope` units."""
        self._plan, self._slope, self._unit = plan, slope, plan.schedule.vertex_unit()
        self.corners: Corners = plan.spec.set.corners(plan.dimension, self._unit)

    @cached_property
    def _sensitivity(self) -> int:
        """Of the difference of two scores by a sum over all rows."""
        return scores(self._plan.spec, self._plan.facts, self._unit).sensitivity

    @cached_property
    def _pairs(self) -> int:
        """How far a row sets two vertices apart, for running sums."""
        return shape(self._plan.spec, self._plan.facts, self._unit)[0].pairs

    @cached_property
    def _listed(self) -> tuple[Exact, Floats] | None:
        """Vertices that are given by their entries, less the first: in fixed point, and as floats."""
        listed = self._plan.spec.set.listed
        if listed is None:
            return None
        fixed = np.array(fixed_point(listed, self._unit), dtype=object)
        return fixed, (np.array(listed) - np.array(listed[0])) / self._unit

    def ballot(self, exact: Sum, pull: Floats, number: int) -> Ballot:
        """By a sum over all rows."""

        def by(total: Sum) -> Sum:
            return self.corners.scores(pull, total)

        return Ballot(exact, by, by, self._ends(number), self._sensitivity)

    def running_ballot(
        self, running: Exact, exact: Sum, pull: Floats, number: int, *, kept: int, gain: int
    ) -> Ballot:
        """By a running sum, to which a batch has just added gain/2^32 times its `exact`."""
        return Ballot(
            exact=exact,
            scores=lambda _: self._of_running(pull, running),
            probe=lambda h: self._of_running(pull, carry(nothing(h.size), h, kept, gain)),
            ends=self._ends(number),
            sensitivity=-(-2 * self._slope * self._pairs * gain // Recursive.KEPT_ONE),
            slack=SLACK,
        )

    def _of_running(self, pull: Floats, total: Exact) -> Sum:
        if self._listed is None:
            return self.corners.scores(pull, nearest(total))
        fixed, relative = self._listed
        found = nearest(fixed @ total, PLACES + VERTEX_BITS)
        return found + public_part((relative * pull).sum(axis=1))

    def _ends(self, number: int) -> tuple[Sum, Sum]:
        """What a record adds to a sum at either end of its slope, for a row that nobody has."""
        facts = self._plan.facts
        row = self.corners.far_row(number, facts.linf_units or 0, facts.l2_units or 0)
        return self._slope * row, -self._slope * row
