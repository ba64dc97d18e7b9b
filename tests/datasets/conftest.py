"""A request to ingest a small file."""

import pytest

from service.datasets.ingest import IngestRequest
from service.datasets.schema import Schema
from tests.datasets.files import SCHEMA


@pytest.fixture
def request_for(tmp_path):
    def make(content, schema=SCHEMA, **fields):
        source = tmp_path / "source"
        source.write_bytes(content.encode() if isinstance(content, str) else content)
        defaults = {
            "source": source,
            "format": "csv" if isinstance(content, str) else "npz",
            "schema": Schema.model_validate(schema),
            "out_dir": tmp_path / "out",
            "content_key": "ab" * 32,
            "shuffle_key": "cd" * 32,
            "max_rows": 10**6,
            "cpu_seconds": 60,
            "memory_bytes": 2 << 30,
        }
        return IngestRequest(**(defaults | fields))

    return make
