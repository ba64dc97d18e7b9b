"""Budgets, shares and the ledger."""

from typing import Literal

from pydantic import BaseModel, Field

from service.api.schemas.common import Name, RequestBody
from service.planning.conversion import EPSILON_MAX


class BudgetRequest(RequestBody):
    epsilon: float = Field(gt=0, le=EPSILON_MAX, description="The ceiling, fixed for ever.")
    delta: float = Field(ge=0, lt=1, description="0 opens a pure account.")
    epsilon_cap: float | None = Field(
        default=None, gt=0, le=EPSILON_MAX, description="Operate below the ceiling; default: at it."
    )


class TopUpRequest(RequestBody):
    epsilon_cap: float = Field(
        gt=0, le=EPSILON_MAX, description="The new cap: above the old one, at most the ceiling."
    )
    reason: Name = Field(description="Why; it stays in the ledger.")


class ReasonRequest(RequestBody):
    reason: Name = Field(description="Why; it stays in the ledger.")


class ShareView(BaseModel):
    """What the caller themself may commit, where the owner bounded it."""

    epsilon_cap: float
    epsilon_committed: float
    epsilon_remaining: float
    units_cap: int
    units_committed: int
    units_remaining: int


class BudgetView(BaseModel):
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
    share: ShareView | None


class EntryView(BaseModel):
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
    units_spent: int = Field(description="Of the account, after this entry; so are those below.")
    units_remaining: int
    epsilon_spent: float
    epsilon_remaining: float
