"""Markdown from models: tables of fields with their types, defaults and bounds."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = "<!-- Written by `make docs` from {source}: edit that. -->\n\n"
HEADERS = ("field", "type", "default", "bounds", "meaning")
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "characters ≥ {}",
    "maxLength": "characters ≤ {}",
    "minItems": "items ≥ {}",
    "maxItems": "items ≤ {}",
    "pattern": "matches `{}`",
}

Json = dict[str, Any]


def written(source: str) -> str:
    """The first line of a generated page."""
    return WRITTEN.format(source=source)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def escaped(text: str) -> str:
    """Prose from a docstring: what Markdown would take for a tag or for emphasis is kept as it is.
    Code in backticks and indented formulas need nothing."""

    def prose(line: str) -> str:
        if line.startswith("    "):
            return line
        parts = re.split(r"(`[^`]*`)", line)
        return "".join(
            p if p.startswith("`") else re.sub(r"(<(?=[a-z/!])|\*)", r"\\\1", p) for p in parts
        )

    return "\n".join(map(prose, text.splitlines()))


def code(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def names(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def example(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```\n"


def doc(model: type[BaseModel]) -> str:
    """The model's own docstring, not one that it inherits."""
    return inspect.cleandoc(model.__doc__ or "")


def fields(model: type[BaseModel], heading: str = "###", *, kind: bool = True) -> str:
    """A table of the model's fields, then one for every model that they are made of."""
    schema = model.model_json_schema()
    text = _fields(schema, kind) or "None.\n"
    for name, part in schema.get("$defs", {}).items():
        if "properties" in part:
            about = escaped(part.get("description", ""))
            text += f"\n{heading} {name}\n\n{about}\n\n{_fields(part, kind)}"
    return text


def own_fields(model: type[BaseModel], *, kind: bool = False) -> str:
    """A table of the model's fields alone; empty if it has none."""
    return _fields(model.model_json_schema(), kind)


def parameters(model: type[BaseModel]) -> str:
    """The model's fields but its kind, in one cell: name, default and bounds."""
    properties = model.model_json_schema()["properties"]
    shown = [_parameter(name, about) for name, about in properties.items() if name != "kind"]
    return "; ".join(shown) or "–"


def _parameter(name: str, about: Json) -> str:
    default = f" = {code(about['default'])}" if "default" in about else f", {_type(about)}"
    bounds = _bounds(about)
    return f"`{name}`{default}" + (f" ({bounds})" if bounds else "")


def _fields(schema: Json, kind: bool) -> str:
    """Without the columns in which no field has anything."""
    rows = list(_rows(schema, kind))
    used = [i for i in range(len(HEADERS)) if any(row[i] for row in rows)]
    kept = [[row[i] for i in used] for row in (HEADERS, *rows)]
    return table(kept[0], kept[1:]) if rows else ""


def _rows(schema: Json, kind: bool) -> Iterator[Sequence[str]]:
    required = schema.get("required", [])
    for name, about in schema.get("properties", {}).items():
        if name == "kind" and not kind:
            continue
        default = "required" if name in required else _default(about)
        meaning = escaped(about.get("description", ""))
        yield f"`{name}`", _type(about), default, _bounds(about), meaning


def _default(about: Json) -> str:
    value = about.get("default")
    return "–" if value is None or value == {} else code(value)


def _type(about: Json) -> str:  # noqa: PLR0911 - a case per line
    """What a value may be, in words; null is said by the default."""
    if "$ref" in about:
        return str(about["$ref"]).rsplit("/", 1)[-1]
    if "const" in about:
        return code(about["const"])
    if "enum" in about:
        return ", ".join(map(code, about["enum"]))
    if "discriminator" in about:
        kinds = about["discriminator"]["mapping"]
        return " or ".join(map(code, kinds)) if len(kinds) < 5 else f"one of {len(kinds)} kinds"
    if options := about.get("anyOf") or about.get("oneOf"):
        return " or ".join(_type(one) for one in options if one.get("type") != "null")
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}" if "items" in about else "list"
    if about.get("type") == "object" and isinstance(about.get("additionalProperties"), dict):
        return f"names with {_type(about['additionalProperties'])}"
    return str(about.get("type", "any"))


def _bounds(about: Json) -> str:
    found = [one for part in (about, *about.get("anyOf", [])) for one in _bounds_of(part)]
    return ", ".join(dict.fromkeys(found))


def _bounds_of(about: Json) -> Iterator[str]:
    for key, words in _BOUNDS.items():
        if key in about:
            value = about[key]
            yield words.format(value if isinstance(value, str) else number(value))


def number(value: float) -> str:
    """Short where that is exact: 1e9, 4096, 0.5."""
    short = f"{value:g}"
    return re.sub(r"e\+?(-?)0*", r"e\1", short) if float(short) == value else f"{value:.15g}"
