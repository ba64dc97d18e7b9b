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


class GrantShape(BaseModel):
    object: Literal["grant"] = "grant"
    dataset: str
    principal: str
    name: str
    units_cap: int | None
    units_committed: int
    created_at: str


class EntryShape(BaseModel):
    object: Literal["entry"] = "entry"
    account: str
    seq: int
    kind: Literal["open", "reserve", "post", "void"]
    units: int
    resolves: int | None
    principal: str | None
    dataset: str | None
    job: str | None
    reason: str
    created_at: str


class QuoteShape(BaseModel):
    object: Literal["quote"] = "quote"
    fits: bool
    largest_epsilon: float
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


class ModelShape(BaseModel):
    object: Literal["model"] = "model"
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
    cost: str
    parameters: dict[str, Any]


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


class NewKeyShape(KeyShape):
    key: str = Field(description="Shown this once.")


class HealthShape(BaseModel):
    status: Literal["ok"] = "ok"
