"""Budgets, shares and the ledger."""

from typing import Literal

from pydantic import BaseModel, Field

from service.api.schemas.common import Name, RequestBody
from service.planning.conversion import EPSILON_MAX, Kind


class BudgetRequest(RequestBody):
    epsilon: float = Field(gt=0, le=EPSILON_MAX, description="The ceiling, fixed for ever.")
    delta: float = Field(ge=0, lt=1, description="0 opens a pure account.")
    kind: Kind | None = Field(
        default=None,
        description="How costs are counted, for ever. renyi (the default with delta > 0): best for "
        "batches drawn at random, Laplace noise and choices. gaussian: best for Gaussian noise over "
        "whole or disjoint rows; no credit for a drawn batch. pure: delta = 0, epsilons add.",
    )
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


class Amounts(BaseModel):
    """Spent, reserved and remaining: in units, and as fractions of the whole. Either add up."""

    units_spent: int
    units_reserved: int
    units_remaining: int
    fraction_spent: float
    fraction_reserved: float
    fraction_remaining: float


class LimitView(Amounts):
    """A limit that applies to the caller's jobs, counted at terms of its own."""

    limit: Literal["ceiling", "cap", "share"] = Field(
        description="The account's ceiling, its owner's cap below it, the caller's own share."
    )
    epsilon: float
    order: int | None = Field(description="The Renyi order at which it counts every job it covers.")
    units: int = Field(description="What it holds, at its own order.")
    epsilon_remaining: float = Field(description="The largest at which one job surely fits it.")
    in_advance: bool = Field(
        description="Whether it was fixed before any job that it covers was admitted: then it is a "
        "guarantee for these jobs together (a share: given what else the analyst has seen of the "
        "data), and else the owner's own caution."
    )
    overdrawn: bool = Field(
        description="Exceeded by jobs that an earlier version admitted; it admits nothing."
    )


class BudgetView(Amounts):
    """An account. Units and fractions of the ceiling add up; epsilons do not, see `words`."""

    object: Literal["budget"] = "budget"
    account: str
    kind: Kind
    order: int | None
    epsilon: float = Field(description="The ceiling, fixed for ever.")
    delta: float
    epsilon_cap: float = Field(description="The owner's cap; the ceiling where there is no other.")
    epsilon_spent: float = Field(
        description="The smallest epsilon that one of several methods proves, at the account's delta, "
        "for all posted jobs together, had they been fixed in advance. What holds without condition, "
        "however jobs were chosen, is the ceiling."
    )
    epsilon_spent_by: str = Field(description="By which method it is proved.")
    epsilon_remaining: float = Field(
        description="The largest epsilon at which one job of the caller's surely fits all limits."
    )
    epsilon_summed: float = Field(
        description="The sum of the posted jobs' own epsilons; their deltas would add up too."
    )
    units_ceiling: int
    limits: list[LimitView] = Field(description="All that apply to the caller's jobs.")
    words: str = Field(description="The same in sentences.")
    entries: int
    frozen: bool


class EntryView(BaseModel):
    object: Literal["entry"] = "entry"
    account: str
    seq: int
    kind: Literal["open", "reserve", "post", "void", "top_up", "freeze", "unfreeze"]
    units: int = Field(description="At the ceiling's terms.")
    epsilon: float | None = Field(
        description="What was asked: of a job its own epsilon, else that of the ceiling or cap."
    )
    resolves: int | None
    principal: str | None
    dataset: str | None
    job: str | None
    reason: str
    created_at: str
    units_spent: int = Field(description="Of the account, after this entry; so are those below.")
    units_reserved: int
    units_remaining: int = Field(description="Of the ceiling.")
    fraction_remaining: float
