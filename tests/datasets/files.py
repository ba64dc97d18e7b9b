"""Small files to ingest."""

import io

import numpy as np

from service.datasets import ingest, store

SCHEMA = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 100, "fill": 50},
        {"name": "city", "kind": "categorical", "categories": ["Bonn", "Köln"]},
        {"name": "note", "kind": "ignored"},
    ],
    "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
}
CSV = "age,city,note,y\n10,Bonn,a,1\n20,Köln,b,0\n30,Rom,c,1\nNA,Bonn,d,0\n"


def npz(**arrays) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def left_behind(tmp_path) -> list[str]:
    return [path.name for path in tmp_path.iterdir() if path.name != "source"]


def content_mac(request, tmp_path) -> str:
    result = ingest.ingest(request)
    store.delete_data(tmp_path / "out")
    return result.content_mac


HEADER = "age,city,note,y\n"
GOOD = "1,Bonn,a,1\n"
