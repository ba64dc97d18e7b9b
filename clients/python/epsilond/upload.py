"""Tables on their way to the service: a schema's draft, checks before anything is declared, a file."""

import csv
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilond.cells import text_of
from epsilond.encode import JSON
from epsilond.http import media_type
from epsilond.tables import Columns, columns_of

OPEN = "give it from what is generally known; what was read off the rows is a release without noise"


class UploadError(ValueError):
    """What can be seen here to be wrong with an upload; nothing was declared or sent."""


def draft_schema(table: Any, label: str) -> JSON:
    """A schema with this table's columns, numeric or categorical by their types and nothing else of
    them. Bounds and categories are None or empty, and yours to give: not from the rows."""
    columns = _named(table)
    if label not in columns:
        raise UploadError(f"the table has no column {label!r}; it has {', '.join(columns)[:200]}")
    drafts = [_drafted(name, values) for name, values in columns.items() if name != label]
    kind = columns[label].dtype.kind
    if kind in "iuf":
        drafted = _drafted(label, columns[label])
    else:
        known = ("true", "false") if kind == "b" else (None, None)
        drafted = {"name": label, "kind": "binary", "positive": known[0], "negative": known[1]}
    return {"columns": drafts, "label": drafted}


def _drafted(name: str, values: NDArray[Any]) -> JSON:
    if values.dtype.kind in "iuf":
        return {"name": name, "kind": "numeric", "lower": None, "upper": None}
    known = ["true", "false"] if values.dtype.kind == "b" else []
    return {"name": name, "kind": "categorical", "categories": known}


def _named(table: Any) -> Columns:
    columns = columns_of(table)
    if columns is None:
        raise TypeError("give a file, a DataFrame, an Arrow table or a mapping of columns")
    return columns


def refuse_open(schema: Mapping[str, Any]) -> None:
    """Refuses what a draft leaves to be given, all of it at once."""
    wanted = {
        "numeric": ("lower", "upper"),
        "binary": ("positive", "negative"),
        "categorical": ("categories",),
    }
    found = [
        f"{declared['name']}.{field}"
        for declared in (*schema["columns"], schema["label"])
        for field in wanted.get(declared.get("kind", ""), ())
        if declared.get(field, declared.get("classes")) in (None, [], ())
    ]
    if found:
        raise UploadError(f"the schema leaves open {', '.join(found[:20])}; {OPEN}")


def refuse_names(columns: Columns, schema: Mapping[str, Any]) -> None:
    """The table has exactly the declared columns, ignored ones optionally."""
    declared = {column["name"]: column.get("kind") for column in schema["columns"]}
    declared[schema["label"]["name"]] = "label"
    needed = {name for name, kind in declared.items() if kind != "ignored"}
    if more := sorted(columns.keys() - declared.keys()):
        raise UploadError(
            f"the schema does not name {', '.join(more[:20])}; declare them "
            '{"name": ..., "kind": "ignored"}, or leave them out of the table'
        )
    if less := sorted(needed - columns.keys()):
        raise UploadError(f"the table lacks {', '.join(less[:20])}")


def matches(declared: Any, given: Any) -> bool:
    """Whether a schema as the service keeps it is the one given: defaults may be left out of that, and
    categories given as numbers."""
    if isinstance(given, Mapping):
        rest = {k: v for k, v in declared.items() if k not in given}
        return (
            given.keys() <= declared.keys()
            and all(matches(declared[name], value) for name, value in given.items())
            and rest.pop("holdout", 0.2) == 0.2
            and all(value in (None, False, 1.0, "value") for value in rest.values())
        )
    if isinstance(given, (list, tuple)):
        return len(declared) == len(given) and all(map(matches, declared, given))
    if isinstance(declared, str):
        return declared == text_of(given)
    return bool(declared == given)


@contextmanager
def in_a_file(
    data: Any, schema: Mapping[str, Any] | None, media: str | None
) -> Iterator[tuple[Path, str]]:
    """The data as a file that the service reads, after all checks that can be made here."""
    if schema is not None:
        refuse_open(schema)
    if isinstance(data, (str, PathLike)):
        path = Path(data)
        with path.open("rb"):  # that it is there, before anything is declared
            yield path, media or media_type(path)
        return
    columns = _named(data)
    if schema is not None:
        refuse_names(columns, schema)
    with tempfile.TemporaryDirectory(prefix="epsilond-") as folder:
        path = Path(folder) / ("rows.npz" if _numeric(columns) else "rows.csv")
        _write(columns, path)
        yield path, media_type(path)


def _numeric(columns: Columns) -> bool:
    return all(values.dtype.kind in "biuf" for values in columns.values())


def _write(columns: Columns, path: Path) -> None:
    """Numbers as they are, in an archive; a table with texts as CSV, numbers at full length."""
    if len({len(values) for values in columns.values()}) > 1:
        raise UploadError("the columns differ in length")
    if path.suffix == ".npz":
        np.savez(path, **columns)  # type: ignore[arg-type]
        return
    cells = [list(map(_spelled, values.tolist())) for values in columns.values()]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*cells, strict=True))


def _spelled(cell: object) -> str:
    return cell if isinstance(cell, str) else text_of(cell)
