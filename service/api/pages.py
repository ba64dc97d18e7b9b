"""Cursor lists: {object: "list", data, has_more, url}, `limit` 1 to 100, `starting_after`."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import BaseModel
from sqlalchemy import BigInteger, ColumnElement, Connection, Row, Select, Table, literal, tuple_

from service.errors import NotFound

T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, Query(max_length=64, description="The last id of the page before.")]

AfterNumber = Annotated[int, Query(ge=0, le=2**62, description="The last seq of the page before.")]


class Page(BaseModel, Generic[T]):
    object: Literal["list"] = "list"
    data: list[T]
    has_more: bool
    url: str


def newest_first(
    connection: Connection, table: Table, query: Select[Any], limit: int, after: str | None
) -> tuple[list[Row[Any]], bool]:
    """A page of rows by (created_ms, id), newest first; one row more is read to know has_more."""
    order = tuple_(table.c.created_ms, table.c.id)
    if after is not None:
        cursor = connection.execute(query.where(table.c.id == after)).first()
        if cursor is None:
            raise NotFound(
                "starting_after names nothing in this list; leave it out to begin at its start."
            )
        query = query.where(order < tuple_(cursor.created_ms, cursor.id))
    query = query.order_by(table.c.created_ms.desc(), table.c.id.desc()).limit(limit + 1)
    rows = list(connection.execute(query))
    return rows[:limit], len(rows) > limit


def by_number(
    connection: Connection, number: ColumnElement[int], query: Select[Any], limit: int, after: int
) -> tuple[list[Row[Any]], bool]:
    """A page of numbered rows in order, after a number, which may be larger than any of theirs."""
    query = query.where(number > literal(after, BigInteger)).order_by(number).limit(limit + 1)
    rows = list(connection.execute(query))
    return rows[:limit], len(rows) > limit


def after_name(
    data: list[dict[str, Any]], name: str, limit: int, after: str | None
) -> tuple[list[dict[str, Any]], bool]:
    """A page of a list that is short enough to be made whole; the cursor is a member's value."""
    start = 0
    if after is not None:
        found = [index for index, item in enumerate(data) if item[name] == after]
        if not found:
            raise NotFound(
                "starting_after names nothing in this list; leave it out to begin at its start."
            )
        start = found[0] + 1
    return data[start : start + limit], len(data) > start + limit
