"""The shapes that requests and responses have; field names are what clients program against."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service.datasets.schema import Schema
from service.planning.conversion import EPSILON_MAX
from service.planning.plan import Plan
from service.planning.spec import JobSpec

Name = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$"
    ),
]
Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=40)],
        Annotated[str, StringConstraints(max_length=500)],
    ],
    Field(max_length=16),
]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class DatasetRequest(_In):
    name: Name
    declared: Schema = Field(alias="schema")
    same_people_as: Id | None = Field(
        default=None,
        description="Another dataset of yours about the same people: both spend from one account.",
    )


class BudgetRequest(_In):
    epsilon: float = Field(gt=0, le=EPSILON_MAX, description="The ceiling, fixed for ever.")
    delta: float = Field(ge=0, lt=1, description="0 opens a pure account.")
    epsilon_cap: float | None = Field(
        default=None, gt=0, le=EPSILON_MAX, description="Operate below the ceiling; default: at it."
    )


class SessionRequest(_In):
    key: Annotated[str, StringConstraints(max_length=200)] = Field(description="An API key.")


class TopUpRequest(_In):
    epsilon_cap: float = Field(
        gt=0, le=EPSILON_MAX, description="The new cap: above the old one, at most the ceiling."
    )
    reason: Name = Field(description="Why; it stays in the ledger.")


class ReasonRequest(_In):
    reason: Name = Field(description="Why; it stays in the ledger.")


class GrantRequest(_In):
    epsilon_cap: float | None = Field(
        default=None, gt=0, le=EPSILON_MAX, description="The analyst's share of the budget."
    )


class JobRequest(JobSpec):
    metadata: Metadata = Field(default_factory=dict)

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.model_dump(exclude={"metadata"}))


class PrincipalRequest(_In):
    name: Name
    role: Literal["admin", "owner", "analyst", "auditor"]


class KeyRequest(_In):
    principal: Id | None = Field(default=None, description="Default: yourself.")
    expires_days: int | None = Field(default=None, ge=1, le=3650)


class DatasetSummary(BaseModel):
    """A dataset in a list; GET it by id for its schema and features."""

    object: Literal["dataset"] = "dataset"
    id: str
    name: str
    owner: str
    lineage: str | None = Field(description="Owners, administrators and auditors only.")
    state: Literal["empty", "ready", "deleted"]
    rows: int | None
    columns: int
    storage: Literal["fixed", "float64"]
    audit_length: int
    audit_head: str | None
    created_at: str
    same_content_as: list[str] | None = Field(
        default=None, description="Administrators only: others' datasets with identical content."
    )


class DatasetShape(DatasetSummary):
    schema_: Schema = Field(alias="schema")
    features: list[str]


class ShareShape(BaseModel):
    """What the caller themself may commit, where the owner bounded it."""

    epsilon_cap: float
    epsilon_remaining: float
    units_cap: int
    units_committed: int
    units_remaining: int


class BudgetShape(BaseModel):
    object: Literal["budget"] = "budget"
    account: str
    kind: Literal["renyi", "pure"]
    order: int | None
    epsilon: float
    delta: float
    epsilon_cap: float
    epsilon_spent: float
    epsilon_reserved: float
    epsilon_remaining: float
    units_ceiling: int
    units_cap: int
    units_spent: int
    units_reserved: int
    units_remaining: int
    entries: int
    frozen: bool
    epsilon_summed: float = Field(
        description="What adding up the epsilons of the charges would read; epsilon_spent is the "
        "ledger's bound for them together."
    )
    share: ShareShape | None


class GrantShape(BaseModel):
    object: Literal["grant"] = "grant"
    dataset: str
    principal: str
    name: str
    units_cap: int | None
    units_committed: int
    epsilon_cap: float | None
    epsilon_committed: float
    created_at: str


class EntryShape(BaseModel):
    object: Literal["entry"] = "entry"
    account: str
    seq: int
    kind: Literal["open", "reserve", "post", "void", "top_up", "freeze", "unfreeze"]
    units: int
    epsilon: float = Field(description="The units, read as an epsilon at the account's delta.")
    resolves: int | None
    principal: str | None
    dataset: str | None
    job: str | None
    reason: str
    created_at: str


class CandidateShape(BaseModel):
    """One algorithm on one spec: what it predicts, or why it declines (then all else is null)."""

    algorithm: str
    title: str
    refusal: str | None
    excess_risk: float | None
    noise: float | None = Field(description="Of one mean: the Plan's prediction.our_noise.")
    gradients: int | None
    steps: int | None
    price_units: int | None
    epsilon_alone: float | None


class ChoiceShape(BaseModel):
    """Why `auto` took this algorithm, and what else there was, best first."""

    algorithm: str
    reason: str
    runners_up: list[CandidateShape]


class ComparisonShape(BaseModel):
    object: Literal["comparison"] = "comparison"
    dataset: str
    choice: ChoiceShape | None = Field(description="What `auto` would take; null: none can.")
    data: list[CandidateShape] = Field(description="The whole catalog, best first.")


class NoiseRequest(JobSpec):
    """A spec and the noise wanted instead of its epsilon."""

    noise: float = Field(gt=0, description="The most for one mean: prediction.our_noise.")

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.model_dump(exclude={"noise"}))


class QuoteShape(BaseModel):
    object: Literal["quote"] = "quote"
    epsilon: float
    fits: bool
    refusal: str | None = Field(description="Why a job like this would be refused now.")
    largest_epsilon: float = Field(description="The largest that fits the budget and your share.")
    jobs_that_fit: int = Field(description="How many jobs like this one still fit.")
    steps: int = Field(description="That progress will count.")
    choice: ChoiceShape | None = Field(description='With algorithm "auto": why this one.')
    plan: Plan
    plan_digest: str
    budget: BudgetShape


class ProgressShape(BaseModel):
    steps_done: int
    steps_total: int


class JobErrorShape(BaseModel):
    code: str
    message: str


class JobShape(BaseModel):
    object: Literal["job"] = "job"
    id: str
    dataset: str
    principal: str
    state: Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
    spec: JobSpec
    choice: ChoiceShape | None = Field(description='Submitted with algorithm "auto": why this one.')
    plan_digest: str
    price_units: int
    progress: ProgressShape
    data_opened: bool
    error: JobErrorShape | None
    metadata: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None


class EventShape(BaseModel):
    object: Literal["event"] = "event"
    id: int
    type: str
    created_at: str


class CertificateShape(BaseModel):
    """How near a model is to a stationary point, from one noisy mean gradient. Noise alone makes
    lengths and gap larger; they are within `noise_norm` and `gap_noise` of the truth with probability
    `confidence`."""

    of: str = Field(description="The job whose model it is about.")
    model_digest: str
    radius: float = Field(description="Above 0: the gradient is a mean over this ball (Goldstein).")
    gradient: list[float] = Field(description="Noisy, with the ridge; one number per weight.")
    gradient_norm: float
    projected_gradient_norm: float | None = Field(description="Null over a polytope or an lp ball.")
    stationarity_gap: float | None = Field(description="Frank-Wolfe's; null over all of R^d.")
    noise: float = Field(description="Standard deviation of the noise in each number.")
    noise_norm: float
    gap_noise: float | None
    confidence: float


class NetworkShape(BaseModel):
    hidden: list[list[float]] = Field(
        description="One list per hidden unit: a number per encoded column, the constant first."
    )
    outer: list[float]
    offset: float


class ModelShape(BaseModel):
    object: Literal["model", "certificate"] = "model"
    job: str
    algorithm: str
    loss: dict[str, Any]
    coef_: list[float] | list[list[float]] | None = Field(
        description="One number per feature; for softmax one such list per class."
    )
    intercept_: float | list[float] | None = Field(description="For softmax one per class.")
    location: list[float] | None = Field(
        default=None,
        description="Geometric median only: a number per feature, in the columns' own units.",
    )
    certificate: CertificateShape | None = Field(
        default=None, description="In the place of a model, of a job that certifies one."
    )
    network: NetworkShape | None = Field(
        default=None, description="Networks only: the margin is outer . max(0, hidden x) + offset."
    )
    feature_names_in_: list[str]
    classes_: list[str] | None
    encoder: Schema
    guarantee: dict[str, Any]
    plan_digest: str


class RecordShape(BaseModel):
    object: Literal["audit_record"] = "audit_record"
    body: dict[str, Any]
    hash: str
    signature: str


class HeadShape(BaseModel):
    object: Literal["audit_head"] = "audit_head"
    dataset: str
    length: int
    hash: str | None
    public_key: str


class VerificationShape(BaseModel):
    object: Literal["verification"] = "verification"
    dataset: str
    seq: int | None = Field(description="The one record that was verified; null: all of them.")
    records: int
    head: str | None
    verified: bool
    findings: list[str]


class LeaseShape(BaseModel):
    """A job that a worker holds."""

    job: str
    dataset: str
    state: Literal["running", "cancelling"]
    attempt: int
    progress: ProgressShape
    seconds_since_start: int
    seconds_left: int = Field(description="Of the lease; below 0 it is about to be taken back.")


class FailureShape(BaseModel):
    job: str
    dataset: str
    error: JobErrorShape | None
    attempts: int
    finished_at: str


class ProcessShape(BaseModel):
    id: str
    role: Literal["api", "worker"]
    host: str
    pid: int
    started_at: str
    seconds_since_seen: int


class OperationsShape(BaseModel):
    object: Literal["operations"] = "operations"
    engine: Literal["embedded", "celery"]
    jobs: dict[str, int] = Field(description="How many are queued, running, cancelling.")
    oldest_queued_seconds: int | None
    overdue_hints: int = Field(description="Queued jobs whose next hint to a worker is due.")
    ended_last_day: dict[str, int]
    leases: list[LeaseShape] = Field(description="Oldest first, at most 100.")
    failures: list[FailureShape] = Field(description="Newest first, at most 20.")
    processes: list[ProcessShape] = Field(description="Seen within the last minute.")
    streams: int = Field(description="Open event streams and waiting requests of this process.")


class PublicKeyShape(BaseModel):
    object: Literal["public_key"] = "public_key"
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str


class AlgorithmShape(BaseModel):
    object: Literal["algorithm"] = "algorithm"
    name: str
    title: str
    paper: str
    algorithm: str
    theorem: str
    problem: str
    needs: list[str]
    takes: dict[str, Any] = Field(description="The names that a job may use, and what of its data.")
    cost: str
    parameters: dict[str, Any]
    example: dict[str, Any] = Field(description="The rest of a job that it takes.")


class PrincipalShape(BaseModel):
    object: Literal["principal"] = "principal"
    id: str
    name: str
    role: Literal["admin", "owner", "analyst", "auditor"]
    created_at: str


class KeyShape(BaseModel):
    object: Literal["key"] = "key"
    id: str
    principal: str
    prefix: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class SessionShape(BaseModel):
    object: Literal["session"] = "session"
    id: str
    principal: PrincipalShape
    csrf: str = Field(description="Send it as X-CSRF-Token with every POST, PUT and DELETE.")
    created_at: str
    expires_at: str = Field(description="Unless it is used before; at the latest at ends_at.")
    ends_at: str


class NewKeyShape(KeyShape):
    key: str = Field(description="Shown this once.")


class HealthShape(BaseModel):
    status: Literal["ok"] = "ok"
