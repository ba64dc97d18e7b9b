"""Arrow's own format, as a file (Feather) or a stream: flat columns of numbers, booleans or texts."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from service.datasets import arrow
from service.datasets.read import Block, Format
from service.datasets.schema import Schema

_FILE = b"ARROW1"


def read(raw: IO[bytes], schema: Schema, _memory_bytes: int) -> Iterator[Block]:
    """One batch of the file in memory at a time."""
    with arrow.refusals("Arrow"):
        magic = raw.read(len(_FILE))
        raw.seek(0)
        source = arrow.native(raw)
        opened = pa.ipc.open_file(source) if magic == _FILE else pa.ipc.open_stream(source)
        names = opened.schema.names
    return arrow.blocks(_batches(opened), names, schema)


def _batches(
    opened: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    with arrow.refusals("Arrow"):
        if isinstance(opened, pa.ipc.RecordBatchFileReader):
            batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
        else:
            batches = iter(opened)
        for batch in batches:
            batch.validate(full=True)  # offsets that point elsewhere are not followed
            yield batch


FORMAT = Format(
    name="arrow_ipc",
    summary="Arrow IPC, as a file (Feather) or a stream",
    media_types=("application/vnd.apache.arrow.file", "application/vnd.apache.arrow.stream"),
    suffixes=(".arrow", ".feather", ".arrows"),
    read=read,
)
