"""The Plan: what will be released, with which sensitivity and noise, in how many steps, over which
rows, at what cost. Plain data. The ledger charges it, the worker runs it and nothing else, the audit
record contains it; its digest ties the three together. Every field may be published."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.planning.lattice import Lattice
from service.planning.releases import Release
from service.planning.spec import Facts, JobSpec

PLANNER_VERSION = 2  # raise it whenever the same spec and facts may plan differently


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GradientDescentSchedule(_Part):
    """w <- P(w - eta (g/n + ridge w)) over all rows; the mean of the last `averaged` iterates."""

    kind: Literal["gradient_descent"] = "gradient_descent"
    steps: PositiveInt
    step_size: float
    averaged: PositiveInt


class ClippedSgdSchedule(_Part):
    """Batch t is the rows [t * batch, (t + 1) * batch); steps and weights in `sgd_weights`."""

    kind: Literal["clipped_sgd"] = "clipped_sgd"
    steps: PositiveInt
    batch: PositiveInt
    strong_convexity: float
    smoothness: float


class Moreau(_Part):
    """Kernels evaluate the loss's Moreau envelope, this smooth in its margin."""

    kind: Literal["moreau"] = "moreau"
    smoothness: PositiveFloat


class Ball(_Part):
    """Kernels evaluate the loss averaged over a ball of this radius about w."""

    kind: Literal["ball"] = "ball"
    radius: PositiveFloat


Smoothing = Annotated[Moreau | Ball, Field(discriminator="kind")]
Schedule = Annotated[GradientDescentSchedule | ClippedSgdSchedule, Field(discriminator="kind")]


class Guarantee(_Part):
    relation: Literal["replace-one"] = "replace-one"
    epsilon: float
    delta: float
    epsilon_alone: float = Field(description="Tightest epsilon of this job alone, at delta.")


class Price(_Part):
    units: NonNegativeInt = Field(description="Pico-units of the account's kind, rounded up.")
    kind: Literal["renyi", "pure"]
    order: int | None


class Prediction(_Part):
    """From the theorem, order of magnitude only; and an upper bound on all injected noise."""

    theorem: str
    excess_risk: float
    noise_squared: float = Field(description="Expected squared l2 norm of the noise of all steps.")
    paper_noise: float = Field(description="The paper's own sigma for one mean, at this privacy.")
    our_noise: float = Field(description="The calibrated sigma for the same mean.")


class Plan(_Part):
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
    release: Release
    price: Price
    guarantee: Guarantee
    prediction: Prediction
    gradients: PositiveInt = Field(description="Per-record gradients that the run evaluates.")

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


def rounded(value: float) -> float:
    """Six significant digits: a prediction must not differ between two machines' logarithms."""
    return float(f"{value:.6g}")
