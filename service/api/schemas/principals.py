"""Principals, keys and sessions."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from service.api.schemas.common import Id, Name, RequestBody


class PrincipalRequest(RequestBody):
    name: Name
    role: Literal["admin", "owner", "analyst", "auditor"]


class KeyRequest(RequestBody):
    principal: Id | None = Field(default=None, description="Default: yourself.")
    expires_days: int | None = Field(default=None, ge=1, le=3650)
    outlives: bool | None = Field(
        default=None,
        description="Administrators only: whether the key outlives the one it is made with. Default: "
        "another principal's does, one's own does not.",
    )


class SessionRequest(RequestBody):
    key: Annotated[str, StringConstraints(max_length=200)] = Field(description="An API key.")


class PrincipalView(BaseModel):
    object: Literal["principal"] = "principal"
    id: str
    name: str
    role: Literal["admin", "owner", "analyst", "auditor"]
    created_at: str


class KeyView(BaseModel):
    object: Literal["key"] = "key"
    id: str
    principal: str
    prefix: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    minted_by: str | None = Field(description="The key that it was made with.")
    outlives: bool = Field(description="Else it ends with the key that it was made with.")


class SessionView(BaseModel):
    object: Literal["session"] = "session"
    id: str
    principal: PrincipalView
    csrf: str = Field(description="Send it as X-CSRF-Token with every POST, PUT and DELETE.")
    created_at: str
    expires_at: str = Field(description="Unless it is used before; at the latest at ends_at.")
    ends_at: str


class NewKeyView(KeyView):
    key: str = Field(description="Shown this once.")
