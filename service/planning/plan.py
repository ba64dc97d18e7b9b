"""The Plan: what will be released, with which sensitivity and noise, in how many steps, over which
rows, at what cost. Plain data. The ledger charges it, the worker runs it and nothing else, the audit
record contains it; its digest ties the three together. Every field may be published."""

import hashlib
import json
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from service.planning.algorithms import ALGORITHMS
from service.planning.conversion import Kind
from service.planning.draft import Part, Prediction, PrivateClip, Smoothing
from service.planning.expected import Expected
from service.planning.feasible import DefaultSet
from service.planning.lattice import Lattice, MomentLattice
from service.planning.releases import Release
from service.planning.spec import Facts, JobSpec
from service.planning.tables import Counts

if TYPE_CHECKING:
    from service.planning.draft import Schedule
else:
    # the union of all there are, once each: a stored Plan is read by its schedule's kind
    _SCHEDULES = dict.fromkeys(one.schedule for one in ALGORITHMS.values())
    Schedule = Annotated[reduce(or_, _SCHEDULES), Field(discriminator="kind")]

PLANNER_VERSION = 8  # raise it whenever the same spec and facts may plan differently


class Guarantee(Part):
    relation: Literal["replace-one"] = "replace-one"
    epsilon: float
    delta: float
    epsilon_alone: float = Field(description="Tightest epsilon of this job alone, at delta.")


class Price(Part):
    units: NonNegativeInt = Field(description="Pico-units of the account's kind, rounded up.")
    kind: Kind
    order: int | None


class Plan(Part):
    planner: int = PLANNER_VERSION
    algorithm: str
    spec: JobSpec
    facts: Facts
    dimension: PositiveInt = Field(
        description="Weights: one per feature, times classes for softmax."
    )
    smoothing: Smoothing | None
    schedule: Schedule
    lattice: Lattice
    private_clip: PrivateClip | None = None
    release: Release
    price: Price
    guarantee: Guarantee
    prediction: Prediction
    expected: Expected | None = Field(default=None, exclude_if=lambda expected: expected is None)
    gradients: PositiveInt = Field(description="Per-record gradients that the run evaluates.")

    @field_validator("spec")
    @classmethod
    def _names_its_set(cls, spec: JobSpec) -> JobSpec:
        if isinstance(spec.set, DefaultSet):
            raise ValueError("a Plan names its set")
        return spec

    @property
    def moments(self) -> tuple[MomentLattice, ...]:
        """Of the moments that are released, if any are."""
        own = (self.lattice,) if isinstance(self.lattice, MomentLattice) else ()
        return self.schedule.moment_lattices() + own

    @property
    def counted(self) -> tuple[Counts, ...]:
        """Its releases of tables."""
        return self.schedule.counted()

    @property
    def weights_named(self) -> int:
        """Of the models that it is about, all together."""
        spec, facts = self.spec, self.facts
        return len(spec.named) * spec.loss.weights(facts.columns, facts.classes)

    def canonical(self) -> str:
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        return sha256(self.canonical())


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, shortest floats, nothing non-finite."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
