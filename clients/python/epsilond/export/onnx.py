"""A model in ONNX, from raw columns to predictions, in double precision. Opset 17 and ai.onnx.ml 2.

An input per column, [rows, 1]: doubles, NaN where a cell is missing; strings for categories, "" or NA
where it is missing. A category is matched by its declared text: 2 as "2", not as "2.0". Where a column
has no fill, a missing cell makes margin and value NaN. Outputs: `margin`; `label` and, of logistic and
softmax models, `probability` in the order of the card's classes; or `value` of a regression.
"""

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilond.cells import MISSING
from epsilond.encode import JSON, OTHER, Encoder
from epsilond.export.protobuf import Value, message
from epsilond.export.weights import linear, predicting
from epsilond.model import Model

IR_VERSION, OPSET, OPSET_ML = 8, 17, 2
DOUBLE, INT64, STRING = 11, 7, 8
_INT, _TENSOR, _INTS, _STRINGS = 2, 4, 7, 8


def write(model: Model) -> bytes:
    return _Graph(predicting(model)).model()


class _Graph:
    def __init__(self, model: Model) -> None:
        self.source = model
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []

    def model(self) -> bytes:
        self._results(self._margins(self._encoded(self.source.encoder)))
        graph = message(
            *((1, node) for node in self.nodes),
            (2, self.source.card["job"]),
            *((5, constant) for constant in self.constants),
            *((11, one) for one in self.inputs),
            *((12, one) for one in self.outputs),
        )
        opsets = (("", OPSET), ("ai.onnx.ml", OPSET_ML))
        held = ("coef_", "intercept_", "network")
        card = {k: v for k, v in self.source.card.items() if k not in held}
        return message(
            (1, IR_VERSION),
            (2, "epsilond"),
            (7, graph),
            *((8, message((1, domain), (2, version))) for domain, version in opsets),
            (14, message((1, "epsilond"), (2, json.dumps(card)))),
        )

    # its parts

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The name of what the operation makes."""
        name = f"{kind} {len(self.nodes)}"
        self.nodes.append(
            message(
                *((1, one) for one in inputs),
                (2, name),
                (4, kind),
                *((5, _attribute(k, v)) for k, v in attributes.items()),
                (7, domain),
            )
        )
        return name

    def constant(self, value: Any) -> str:
        name = f"constant {len(self.constants)}"
        self.constants.append(_tensor(np.asarray(value), name))
        return name

    def input(self, name: str, kind: int) -> str:
        self.inputs.append(_typed(name, kind, 1))
        return name

    def output(self, name: str, made: str, kind: int, width: int | None) -> None:
        self.nodes.append(message((1, made), (2, name), (4, "Identity")))
        self.outputs.append(_typed(name, kind, width))

    # from columns to margins

    def _encoded(self, encoder: Encoder) -> str:
        parts = [self._column(column) for column in encoder.columns]
        shape = self.node("Shape", encoder.names[0])
        ones = self.node("ConstantOfShape", shape, value=np.array([1.0]))
        x = self.node("Concat", ones, *parts, axis=1)
        if not encoder.fixed:
            return x
        x = self.node("Div", x, self.constant(math.sqrt(encoder.blocks)))
        if encoder.clips:
            x = self._clip(x, -encoder.linf, encoder.linf)
            norm = self.node("ReduceL2", x, axes=[1], keepdims=1)
            share = self.node("Div", self.constant(encoder.l2), norm)
            x = self.node("Mul", x, self.node("Min", share, self.constant(1.0)))
        return x

    def _column(self, column: JSON) -> str:
        if column["kind"] == "categorical":
            return self._indicators(column)
        x = self.input(column["name"], DOUBLE)
        if column.get("fill") is not None:
            filled = self.constant(float(column["fill"]))
            x = self.node("Where", self.node("IsNaN", x), filled, x)
        if column["kind"] == "unbounded":
            return self.node("Div", x, self.constant(float(column["scale"])))
        lower, upper = float(column["lower"]), float(column["upper"])
        x = self._clip(x, lower, upper)
        if column["log1p"]:
            x = self.node("Log", self.node("Add", x, self.constant(1.0)))
            lower, upper = math.log1p(lower), math.log1p(upper)
        x = self.node("Sub", x, self.constant(lower))
        return self._clip(self.node("Div", x, self.constant(upper - lower)), 0.0, 1.0)

    def _indicators(self, column: JSON) -> str:
        values = [*column["categories"], OTHER]
        codes = {value: i for i, value in enumerate(values)}
        fill, missing = column.get("fill"), len(values)  # the row of NaN
        absent = missing if fill is None else codes[fill]
        spelled = sorted({s for w in MISSING for s in (w, w.upper(), w.capitalize(), "NaN")})
        codes = {**dict.fromkeys(spelled, absent), **codes}
        found = self.node(
            "LabelEncoder",
            self.input(column["name"], STRING),
            domain="ai.onnx.ml",
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=len(values) - 1,
        )
        table = np.vstack([np.eye(len(values)), np.full(len(values), np.nan)])
        rows = self.node("Squeeze", found, self.constant(np.array([1])))
        return self.node("Gather", self.constant(table), rows, axis=0)

    def _clip(self, x: str, lower: float, upper: float) -> str:
        return self.node("Clip", x, self.constant(lower), self.constant(upper))

    def _margins(self, x: str) -> str:
        network = self.source.network
        if network is None:
            return self.node("MatMul", x, self.constant(linear(self.source).T.copy()))
        hidden = self.node("MatMul", x, self.constant(np.asarray(network["hidden"]).T.copy()))
        outer = self.constant(np.asarray(network["outer"])[:, None])
        margin = self.node("MatMul", self.node("Relu", hidden), outer)
        return self.node("Add", margin, self.constant(float(network["offset"])))

    # from margins to predictions

    def _results(self, margin: str) -> None:
        label, classes = self.source.encoder.label, self.source.encoder.classes
        many = label["kind"] == "categorical"
        self.output("margin", margin, DOUBLE, len(label["classes"]) if many else 1)
        if classes is not None:
            self._classes(margin, classes, many)
            return
        if self.source.loss == "phase_retrieval":
            margin = self.node("Mul", margin, margin)
        if label["kind"] == "unbounded":
            value = self.node("Mul", margin, self.constant(float(label["scale"])))
        else:
            lower, half = float(label["lower"]), (label["upper"] - label["lower"]) / 2
            shifted = self.node("Add", self._clip(margin, -1.0, 1.0), self.constant(1.0))
            value = self.node("Mul", shifted, self.constant(half))
            value = self.node("Add", value, self.constant(lower))
        self.output("value", value, DOUBLE, 1)

    def _classes(self, margin: str, classes: list[str], many: bool) -> None:
        if many:
            chosen = self.node("ArgMax", margin, axis=1, keepdims=0)
        else:
            positive = self.node("Greater", margin, self.constant(0.0))
            chosen = self.node("Cast", positive, to=INT64)
            chosen = self.node("Squeeze", chosen, self.constant(np.array([1])))
        names = self.constant(np.array(classes, dtype=object))
        self.output("label", self.node("Gather", names, chosen, axis=0), STRING, None)
        if self.source.probabilistic and many:
            self.output("probability", self.node("Softmax", margin, axis=1), DOUBLE, len(classes))
        elif self.source.probabilistic:
            yes, no = self.node("Sigmoid", margin), self.node("Sigmoid", self.node("Neg", margin))
            self.output("probability", self.node("Concat", no, yes, axis=1), DOUBLE, 2)


def _attribute(name: str, value: Any) -> bytes:
    fields: list[tuple[int, Value]] = [(1, name)]
    if isinstance(value, int):
        fields += [(3, value), (20, _INT)]
    elif isinstance(value, np.ndarray):
        fields += [(5, _tensor(value, name)), (20, _TENSOR)]
    elif value and isinstance(value[0], str):
        fields += [*((9, one) for one in value), (20, _STRINGS)]
    else:
        fields += [*((8, one) for one in value), (20, _INTS)]
    return message(*fields)


def _tensor(value: NDArray[Any], name: str) -> bytes:
    dims: list[tuple[int, Value]] = [(1, size) for size in value.shape]
    if value.dtype.kind == "O":
        texts: list[tuple[int, Value]] = [(6, text) for text in value.tolist()]
        return message(*dims, (2, STRING), *texts, (8, name))
    kind, dtype = (INT64, "<i8") if value.dtype.kind == "i" else (DOUBLE, "<f8")
    return message(*dims, (2, kind), (8, name), (9, value.astype(dtype).tobytes()))


def _typed(name: str, kind: int, width: int | None) -> bytes:
    """An input or output of any number of rows."""
    dims = [message((2, "rows"))] + ([] if width is None else [message((1, width))])
    shape = message(*((1, one) for one in dims))
    return message((1, name), (2, message((1, message((1, kind), (2, shape))))))
