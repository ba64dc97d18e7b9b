"""Which solver computes a minimiser: by default the one with the least predicted error.

Whole gradients are taken as often as 20 of a million rows cost, but at most 2,000 times and at least
20 times: beyond that averaged SGD is nearly as good, or better, in far fewer gradients."""

from dataclasses import dataclass, replace
from typing import Protocol

from service.errors import PlanRefused
from service.planning.draft import Draft
from service.planning.lattice import Target
from service.planning.problem import Problem
from service.planning.shared import averaged, minimiser
from service.planning.shared.averaged import BLOCKS
from service.planning.shared.minimiser import FURTHER, Asked
from service.planning.shared.point import Posed, release_point


class Pose(Protocol):
    def __call__(self, within: float, *, block: int | None = None, further: float = 1.0) -> Posed:
        """The objective, corners rounded off as far as noise asks and until beta is `within`. Its
        error is of means over blocks of so many rows, or all, at points within `further` radii."""


@dataclass(frozen=True)
class Solvers:
    """For an objective. `noise` is the expected norm, but for the solver's part, `k` that over the
    sensitivity; `price` is the bias that rounded corners have, times beta."""

    goal: Target
    p: Problem
    pose: Pose
    noise: float
    k: float
    price: float
    steps: int | None
    most: int = minimiser.STEPS_BY_DEFAULT

    def draft(self, asked: Asked | None, *solvers: Asked) -> Draft:
        """By the one that was asked for, or else by the best of these."""
        return self._by(asked) if asked else self._least_risk(solvers)

    def _least_risk(self, solvers: tuple[Asked, ...]) -> Draft:
        """The draft that expects the least error, or nearly that in fewer gradients; of those within
        the default's passes, as descent always is."""
        made: list[Draft] = []
        refused: list[PlanRefused] = []
        few = self
        if "averaged-passes" in solvers:
            few = replace(self, most=minimiser.passes_by_default(self.p.n))
        for solver in solvers:
            try:
                made.append(few._by(solver))
            except PlanRefused as refusal:
                refused.append(refusal)
        quick = [one for one in made if one.schedule.steps <= (self.steps or few.most)]
        if not quick:
            raise refused[0]
        least = min(one.prediction.excess_risk for one in quick)
        fine = [one for one in quick if one.prediction.excess_risk <= averaged.NEARLY * least]
        return min(fine, key=lambda one: one.gradients)

    def _by(self, solver: Asked) -> Draft:
        match solver:
            case "averaged-passes":
                return self._average()
            case "accelerated":
                return self._accelerate()
            case _:
                return self._descend()

    def _descend(self) -> Draft:
        o = self.pose(0.0).objective
        within = minimiser.reachable(o.strong, o.radius, self.noise, self.steps or self.most)
        posed = self.pose(within)
        solution = minimiser.descent(posed.objective, self.steps, self.noise, self.most)
        return release_point(self.goal, self.p, posed, minimiser.DESCENT, solution)

    def _average(self) -> Draft:
        first = self.pose(0.0, block=1)
        blocks = BLOCKS if first.joint is None else (1,)
        o = first.joint or first.objective
        pace = averaged.pace(o, self.steps, self.k, self.price, blocks)
        posed = self.pose(pace.smoothness, block=pace.block)
        solution = averaged.averaged_sgd(posed.joint or posed.objective, pace)
        return release_point(self.goal, self.p, posed, "averaged-passes", solution)

    def _accelerate(self) -> Draft:
        o = self.pose(0.0).objective
        within = minimiser.reachable_by_acceleration(o, self.steps or self.most)
        posed = self.pose(within, further=FURTHER)
        solution = minimiser.accelerated(posed.objective, self.steps)
        return release_point(self.goal, self.p, posed, "projected-accelerated", solution)
