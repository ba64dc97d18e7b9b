"""Jobs, their events and the models they publish."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.api.schemas.common import JOBS_MAX, RequestBody, SpecRequest
from service.api.schemas.quotes import ChoiceView
from service.datasets.schema import Schema
from service.jobs.evaluated import Evaluated
from service.jobs.told import Summary
from service.planning.describe import Description
from service.planning.spec import JobSpec


class JobRequest(SpecRequest):
    """A job to run: its spec, and metadata that comes back with it."""


class ProgressView(BaseModel):
    steps_done: int
    steps_total: int


class JobErrorView(BaseModel):
    code: str
    message: str


class JobView(BaseModel):
    object: Literal["job"] = "job"
    id: str
    dataset: str
    principal: str
    group: str | None = Field(description="Of jobs that were reserved together.")
    state: Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
    spec: JobSpec
    choice: ChoiceView | None = Field(description='Submitted with algorithm "auto": why this one.')
    plan_digest: str
    price_units: int
    progress: ProgressView
    data_opened: bool
    error: JobErrorView | None
    metadata: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None


class GroupRequest(RequestBody):
    jobs: list[JobRequest] = Field(
        min_length=1, max_length=JOBS_MAX, description="Reserved in this order, all or none."
    )


class GroupView(BaseModel):
    """Jobs that were reserved together, in the order of the request."""

    object: Literal["group"] = "group"
    id: str
    data: list[JobView]


class ReleasesView(Description):
    """A job's Plan in words and numbers; the Plan itself is what was charged and signed."""

    object: Literal["releases"] = "releases"
    job: str
    plan_digest: str


class EventView(BaseModel):
    object: Literal["event"] = "event"
    id: int
    type: str
    created_at: str


class CertificateView(BaseModel):
    """How near a model is to a stationary point, from one noisy mean gradient. Noise alone makes
    lengths and gap larger; they are within `noise_norm` and `gap_noise` of the truth with probability
    `confidence`."""

    of: str = Field(description="The job whose model it is about.")
    model_digest: str
    radius: float = Field(description="Above 0: the gradient is a mean over this ball (Goldstein).")
    gradient: list[float] = Field(description="Noisy, with the ridge; one number per weight.")
    gradient_norm: float
    projected_gradient_norm: float | None = Field(description="Null over a polytope.")
    stationarity_gap: float | None = Field(description="Frank-Wolfe's; null over all of R^d.")
    noise: float = Field(description="Standard deviation of the noise in each number.")
    noise_norm: float
    gap_noise: float | None
    confidence: float


class SummariesView(BaseModel):
    """What columns look like: each number with the interval that holds the population's, over the
    drawing of rows and the noise."""

    object: Literal["summaries"] = "summaries"
    job: str
    rows: int
    data: list[Summary]
    guarantee: dict[str, Any]
    plan_digest: str


class EvaluationView(BaseModel):
    """How good models are on the rows that were held out: each number with the interval that holds the
    population's, over the drawing of rows and the noise."""

    object: Literal["evaluation"] = "evaluation"
    job: str
    rows: int = Field(description="That were held out.")
    loss: dict[str, Any]
    data: list[Evaluated] = Field(description="One for each model that the job names.")
    guarantee: dict[str, Any]
    plan_digest: str


class NetworkView(BaseModel):
    hidden: list[list[float]] = Field(
        description="One list per hidden unit: a number per encoded column, the constant first."
    )
    outer: list[float]
    offset: float


class ModelView(BaseModel):
    object: Literal["model", "certificate", "summary", "evaluation"] = "model"
    job: str
    algorithm: str
    loss: dict[str, Any] | None = Field(description="Null where nothing was fitted.")
    coef_: list[float] | list[list[float]] | None = Field(
        description="One number per feature; for softmax one such list per class."
    )
    intercept_: float | list[float] | None = Field(description="For softmax one per class.")
    location: list[float] | None = Field(
        default=None,
        description="Geometric median only: a number per feature, in the columns' own units.",
    )
    certificate: CertificateView | None = Field(
        default=None, description="In the place of a model, of a job that certifies one."
    )
    network: NetworkView | None = Field(
        default=None, description="Networks only: the margin is outer . max(0, hidden x) + offset."
    )
    summaries: list[Summary] | None = Field(
        default=None, description="In the place of a model, of a job that asks for them."
    )
    evaluation: list[Evaluated] | None = Field(
        default=None, description="In the place of a model, of a job that evaluates others'."
    )
    feature_names_in_: list[str]
    classes_: list[str] | None
    encoder: Schema
    guarantee: dict[str, Any]
    plan_digest: str
