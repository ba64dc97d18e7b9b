"""The safetensors format: a length, a JSON header, numbers. The card is in the header's metadata."""

import json
from typing import Any

import numpy as np

from epsilond.encode import Floats
from epsilond.model import Model

HELD = ("coef_", "intercept_", "location", "network")
_NETWORK = ("hidden", "outer", "offset")


def write(model: Model) -> bytes:
    card = model.card
    tensors = {name: card[name] for name in HELD[:3] if card.get(name) is not None}
    tensors |= card.get("network") or {}
    rest = {name: value for name, value in card.items() if name not in HELD}
    header: dict[str, Any] = {"__metadata__": {"epsilond": json.dumps(rest)}}
    body = b""
    for name, value in tensors.items():
        data = np.asarray(value, dtype="<f8")
        ends = [len(body), len(body) + data.nbytes]
        header[name] = {"dtype": "F64", "shape": list(data.shape), "data_offsets": ends}
        body += data.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return len(text).to_bytes(8, "little") + text + body


def read(data: bytes) -> Model:
    """The model of a file that `write` made."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    card = json.loads(header.pop("__metadata__")["epsilond"])
    values = {name: _tensor(data[start:], about).tolist() for name, about in header.items()}
    network = {name: values.pop(name) for name in _NETWORK if name in values}
    return Model({**dict.fromkeys(HELD), **card, **values, "network": network or None})


def _tensor(body: bytes, about: dict[str, Any]) -> Floats:
    first, last = about["data_offsets"]
    return np.frombuffer(body[first:last], dtype="<f8").reshape(about["shape"])
