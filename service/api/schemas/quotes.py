"""Quotes and comparisons."""

from typing import Literal

from pydantic import BaseModel, Field

from service.api.schemas.budgets import BudgetView, LimitView
from service.api.schemas.common import JOBS_MAX, RequestBody
from service.planning.describe import Description
from service.planning.expected import Expected
from service.planning.plan import Plan
from service.planning.spec import JobSpec


class NoiseRequest(JobSpec):
    """A spec and the noise wanted instead of its epsilon."""

    noise: float = Field(gt=0, description="The most for one mean: prediction.our_noise.")

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.model_dump(exclude={"noise"}))


class CandidateView(BaseModel):
    """One algorithm on one spec: what it predicts, or why it declines (then all else is null)."""

    algorithm: str
    title: str
    refusal: str | None
    excess_risk: float | None = Field(description="The theorem's bound.")
    expected: Expected | None = Field(description="What such jobs were seen to do, if it is known.")
    noise: float | None = Field(description="Of one mean: the Plan's prediction.our_noise.")
    gradients: int | None
    steps: int | None
    price_units: int | None
    epsilon_alone: float | None


class ChoiceView(BaseModel):
    """Why `auto` took this algorithm, and what else there was, best first."""

    algorithm: str
    reason: str
    runners_up: list[CandidateView]


class ComparisonView(BaseModel):
    object: Literal["comparison"] = "comparison"
    dataset: str
    choice: ChoiceView | None = Field(description="What `auto` would take; null: none can.")
    data: list[CandidateView] = Field(description="The whole catalog, best first.")


class QuoteView(Description):
    """The Plan and its price, the Plan in words and numbers, and whether it fits."""

    object: Literal["quote"] = "quote"
    epsilon: float
    fits: bool
    refusal: str | None = Field(description="Why a job like this would be refused now.")
    largest_epsilon: float = Field(description="The largest that fits the budget and your share.")
    jobs_that_fit: int = Field(description="How many jobs like this one still fit.")
    steps: int = Field(description="That progress will count.")
    advice: str | None = Field(
        description="What would help, where noise will probably leave a model no better than a "
        "constant. From public facts."
    )
    choice: ChoiceView | None = Field(description='With algorithm "auto": why this one.')
    plan: Plan
    plan_digest: str
    budget: BudgetView


class BatchRequest(RequestBody):
    jobs: list[JobSpec] = Field(
        min_length=1, max_length=JOBS_MAX, description="Priced in this order, one after the other."
    )


class BatchRow(BaseModel):
    """One job of a batch; null where it cannot be planned."""

    index: int
    dataset: str
    algorithm: str
    epsilon: float
    fits: bool = Field(description="After those before it that fit.")
    refusal: str | None
    price_units: int | None
    fraction: float | None = Field(description="Of the ceiling.")
    plan_digest: str | None


class AccountAfter(BaseModel):
    account: str
    limits: list[LimitView] = Field(description="As they would be with all that fit reserved.")


class BatchView(BaseModel):
    object: Literal["batch"] = "batch"
    all_fit: bool
    fitting: int
    data: list[BatchRow]
    after: list[AccountAfter]
