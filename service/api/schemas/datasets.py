"""Datasets, grants, and what is public about them."""

from typing import Literal

from pydantic import BaseModel, Field

from service.api.schemas.budgets import LimitView
from service.api.schemas.common import Id, Name, RequestBody
from service.datasets.report import Report
from service.datasets.schema import DeclaredSchema, Schema
from service.planning.conversion import EPSILON_MAX


class DatasetRequest(RequestBody):
    name: Name
    declared: DeclaredSchema = Field(alias="schema")
    same_people_as: Id | None = Field(
        default=None,
        description="Another dataset of yours about the same people: both spend from one account.",
    )
    shared_ledger: bool = Field(
        default=False,
        description="Whether analysts see each other's ledger entries and audit records.",
    )


class SharingRequest(RequestBody):
    shared_ledger: bool = Field(description="Whether analysts see all of the ledger and the chain.")


class GrantRequest(RequestBody):
    epsilon_cap: float | None = Field(
        default=None, gt=0, le=EPSILON_MAX, description="The analyst's share of the budget."
    )


class DatasetSummary(BaseModel):
    """A dataset in a list; GET it by id for its schema and features."""

    object: Literal["dataset"] = "dataset"
    id: str
    name: str
    owner: str
    lineage: str | None = Field(description="Owners, administrators and auditors only.")
    state: Literal["empty", "ready", "deleted"]
    rows: int | None
    fit_rows: int | None = Field(description="Those that models are fitted to.")
    held_out_rows: int | None = Field(description="Those that no fit reads.")
    columns: int
    storage: Literal["fixed", "float64"]
    audit_length: int
    audit_head: str | None
    shared_ledger: bool = Field(
        description="Whether analysts see all of its ledger and chain; else what is their own."
    )
    created_at: str
    same_content_as: list[str] | None = Field(
        default=None, description="Administrators only: others' datasets with identical content."
    )


class DatasetView(DatasetSummary):
    schema_: Schema = Field(alias="schema")
    features: list[str]
    losses: list[str] = Field(
        description="That fit its label, those first that need no clip; empty until it has data."
    )


class UploadView(DatasetView):
    report: Report = Field(description="What ingestion did to the rows; exact, for you alone.")


class ReportView(BaseModel):
    object: Literal["report"] = "report"
    dataset: str
    report: Report


class GrantView(BaseModel):
    object: Literal["grant"] = "grant"
    dataset: str
    principal: str
    name: str
    units_committed: int = Field(description="Posted and pending, at the ceiling's terms.")
    fraction_committed: float = Field(description="Of the ceiling.")
    epsilon_cap: float | None = Field(description="Their share, where they have one.")
    share: LimitView | None = Field(description="What their share holds, counted at its own order.")
    created_at: str
