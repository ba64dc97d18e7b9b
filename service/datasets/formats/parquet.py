"""Apache Parquet: flat columns of numbers, booleans or texts."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from service.datasets import arrow
from service.datasets.read import BLOCK_ROWS, Block, Format
from service.datasets.schema import Schema

_BUFFER_BYTES = 1 << 18


def read(raw: IO[bytes], schema: Schema, _memory_bytes: int) -> Iterator[Block]:
    """A few pages of each column in memory at a time, however large the row groups are."""
    with arrow.refusals("Parquet"):
        file = pq.ParquetFile(arrow.native(raw), buffer_size=_BUFFER_BYTES, pre_buffer=False)
        names = file.schema_arrow.names
    return arrow.blocks(_batches(file), names, schema)


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    with arrow.refusals("Parquet"):
        for batch in file.iter_batches(BLOCK_ROWS, use_threads=False):
            batch.validate(full=True)
            yield batch


FORMAT = Format(
    name="parquet",
    summary="Parquet with flat columns",
    media_types=("application/vnd.apache.parquet",),
    suffixes=(".parquet",),
    read=read,
)
