"""Kinds that a job names: losses, feasible sets, regularisers. Each is one class in a file of its own;
the `__init__.py` of their folder has the one list that names them, from which all else is derived."""

from collections.abc import Iterable
from pkgutil import resolve_name
from typing import Annotated, Any, Union

from pydantic import BaseModel, ConfigDict, Field


class Public(BaseModel):
    """What an analyst may ask and everybody may read: plain data that cannot change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Kind(Public):
    """One of several, told apart by its `kind`, which is also the name of its file."""

    kind: str

    @classmethod
    def name(cls) -> str:
        return str(cls.model_fields["kind"].default)


def classes(package: str, entries: Iterable[str]) -> tuple[type[Any], ...]:
    """The classes at `package`, from entries such as "hinge:Hinge" (a module and its class)."""
    return tuple(resolve_name(f"{package}.{entry}") for entry in entries)


def union(options: tuple[type[Any], ...]) -> Any:
    """Any of these classes, and no other. Where types are checked, their base class stands for it."""
    return Annotated[Union[options], Field(discriminator="kind")]  # noqa: UP007 - at run time
