"""What an algorithm is to the rest of the service: one `ALGORITHM` per file of `algorithms/`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from service.planning.default_set import with_set
from service.planning.draft import Draft, Schedule
from service.planning.needs import Needs
from service.planning.problem import is_convex
from service.planning.spec import Facts, JobSpec

LAST = 9  # of places


@dataclass(frozen=True)
class Algorithm:
    name: str
    title: str
    paper: str
    algorithm: str  # its number in the paper
    theorem: str
    problem: str
    cost: str
    needs: Needs
    parameters: type[BaseModel]
    schedule: type[Schedule]
    plan: Callable[[JobSpec, Facts, Any], Draft]
    examples: tuple[
        dict[str, Any], ...
    ]  # the rest of a job that it takes; one per kernel of its own
    # its place among those of which nothing is expected, for delta > 0 and for delta = 0
    places: tuple[int, int] = (LAST, LAST)
    constant: bool = False  # its models look at no column
    own_objective: bool = False  # it answers another question than what minimises the mean loss
    either: bool = False  # of a convex loss it predicts the risk, of another one a stationarity

    @property
    def example(self) -> dict[str, Any]:
        """The first one, for a binary label."""
        return self.examples[0]

    @property
    def nonconvex(self) -> bool:
        """It takes losses that are not convex, and predicts a stationarity of them, not a risk."""
        return self.needs.convexity != "convex"

    @property
    def networks(self) -> bool:
        """It takes models that are not linear."""
        return self.needs.models != ("linear",)

    @property
    def certifies(self) -> bool:
        """It is about the model of another job, which `spec.of` names."""
        return self.needs.released_model

    @property
    def summarises(self) -> bool:
        """It tells of columns, and fits no model."""
        return self.needs.summaries

    def answers_another(self, spec: JobSpec) -> bool:
        """Whether the question is not the job's: what minimises the mean loss, or, if that is not
        convex, where it is stationary."""
        if self.summarises:
            return not spec.summaries
        return self.own_objective or (self.nonconvex and not self.either and is_convex(spec))

    def has_theorem(self, spec: JobSpec) -> bool:
        """Whether one is behind what it predicts of such a job, which may then be compared."""
        if self.needs.smooth == "if convex":
            return spec.model.kind == "linear" and spec.loss.smooth
        return spec.model.kind == "linear" or self.nonconvex or not self.networks

    def takes(self, spec: JobSpec, facts: Facts) -> bool:
        named = with_set(self.needs, spec, facts)
        return next(self.needs.misfits(named, facts), None) is None

    def card(self) -> dict[str, Any]:
        return {
            "object": "algorithm",
            "name": self.name,
            "title": self.title,
            "paper": self.paper,
            "algorithm": self.algorithm,
            "theorem": self.theorem,
            "problem": self.problem,
            "needs": self.needs.describe(),
            "takes": self.needs.takes(),
            "cost": self.cost,
            "parameters": self.parameters.model_json_schema(),
            "example": self.example,
        }
