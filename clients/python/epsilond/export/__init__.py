"""A model as a file that others read. Every one predicts what its card predicts; none is a pickle.

    export.write(model, "onnx")  # bytes

onnx         predictions in ONNX Runtime and the like, from raw columns (onnx.py)
sql          a SELECT with the predictions, for the database where the rows are (sql.py)
skops        a fitted estimator (estimator.py); needs epsilond-client[skops]
safetensors  the weights, with the card beside them (safetensors.py)
markdown     a model card for people; html is the same as a page (document.py)
json         the card as the service published it
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from epsilond.export import document, estimator, onnx, safetensors, sql
from epsilond.model import Model


@dataclass(frozen=True)
class Exporter:
    suffix: str
    write: Callable[[Model], bytes]


EXPORTERS = {
    "onnx": Exporter(".onnx", onnx.write),
    "sql": Exporter(".sql", lambda model: sql.select(model).encode()),
    "skops": Exporter(".skops", estimator.write),
    "safetensors": Exporter(".safetensors", safetensors.write),
    "markdown": Exporter(".md", lambda model: document.markdown(model).encode()),
    "html": Exporter(".html", lambda model: document.html(model).encode()),
    "json": Exporter(".json", lambda model: json.dumps(model.card, indent=1).encode()),
}


def write(model: Model, format_: str) -> bytes:
    """The model in this format; a TypeError says what the format cannot hold."""
    if format_ not in EXPORTERS:
        raise ValueError(f"no format {format_!r}; there are {', '.join(EXPORTERS)}")
    return EXPORTERS[format_].write(model)


__all__ = ["EXPORTERS", "Exporter", "write"]
