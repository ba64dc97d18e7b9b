"""The audit chain."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class RecordView(BaseModel):
    object: Literal["audit_record"] = "audit_record"
    body: dict[str, Any]
    hash: str
    signature: str


class HeadView(BaseModel):
    object: Literal["audit_head"] = "audit_head"
    dataset: str
    length: int
    hash: str | None
    public_key: str


class VerificationView(BaseModel):
    object: Literal["verification"] = "verification"
    dataset: str
    seq: int | None = Field(description="The one record that was verified; null: all of them.")
    records: int
    head: str | None
    verified: bool
    findings: list[str]


class PublicKeyView(BaseModel):
    object: Literal["public_key"] = "public_key"
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
