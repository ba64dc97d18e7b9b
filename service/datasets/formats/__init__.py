"""The formats in which owners may send their data: a file here and a line in MODULES for each.

What ingestion reads, what the API accepts, refuses and documents, and what the client and the command
line guess from a file's name all follow from this list.
"""

from importlib import import_module
from pathlib import Path

from service.datasets.read import Format

MODULES = (
    "csv",
    "parquet",
    "arrow_ipc",
    "npz",
)
FORMATS: tuple[Format, ...] = tuple(
    import_module(f"{__name__}.{module}").FORMAT for module in MODULES
)

BY_NAME = {format_.name: format_ for format_ in FORMATS}
BY_MEDIA_TYPE = {media: format_ for format_ in FORMATS for media in format_.media_types}
BY_SUFFIX = {suffix: format_ for format_ in FORMATS for suffix in format_.suffixes}

SUMMARY = "; or ".join(format_.summary for format_ in FORMATS)
SUFFIXES = " or ".join(BY_SUFFIX)


class UnknownFormatError(ValueError):
    """A file whose name promises no format that is read."""


def guess(path: Path) -> Format:
    """The format that the file's name promises."""
    for suffix, format_ in BY_SUFFIX.items():
        if path.name.lower().endswith(suffix):
            return format_
    raise UnknownFormatError(f"{path.name}: the name of a data file ends in {SUFFIXES}")
