"""A published model card as an object that predicts on raw rows. Needs no service and no network.

model = Model(card)  # as GET /v1/jobs/{id}/model returned it
model.predict([{"age": 41, "city": "Oslo"}])
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.encode import columns_from_rows, encode_features
from service.datasets.schema import BinaryLabel, CategoricalLabel, Schema, UnboundedLabel

JSON = dict[str, Any]


class Model:
    """A published model card, able to encode raw rows as the service did.

    `coef_` and `intercept_` have one entry per class for softmax; a geometric median has a `location`
    instead, in the columns' own units and the order of `feature_names_in_`. A network has weights of
    encoded rows: `network` holds `hidden` (a list per unit, the constant first), `outer` and `offset`;
    a certificate has a `certificate`, and a job that fitted nothing has `summaries`.
    """

    def __init__(self, card: JSON) -> None:
        self.card = card
        self.schema = Schema.model_validate(card["encoder"])
        self.location: list[float] | None = card.get("location")
        self.certificate: JSON | None = card.get("certificate")
        self.summaries: list[JSON] | None = card.get("summaries")
        predicts = card["coef_"] is not None
        self.network: JSON | None = card.get("network")
        self.coef_: NDArray[np.float64] = np.asarray(card["coef_"] if predicts else [])
        self.intercept_: float | list[float] = card["intercept_"] if predicts else []
        self.feature_names_in_: list[str] = card["feature_names_in_"]
        self.classes_: list[str] | None = card["classes_"]

    def decision_function(self, rows: Sequence[Mapping[str, object]]) -> NDArray[np.float64]:
        """The margin of each row, or one per class; absent or empty cells take the declared fill."""
        if self.card["coef_"] is None and self.network is None:
            raise TypeError(
                "without coefficients it predicts nothing; see location, certificate or summaries"
            )
        x = encode_features(self.schema, columns_from_rows(self.schema, rows))
        if self.network is not None:
            hidden = np.maximum(x @ np.asarray(self.network["hidden"]).T, 0.0)
            return np.asarray(hidden @ np.asarray(self.network["outer"]) + self.network["offset"])
        # a row that was clipped to its norm bound has a smaller constant too
        constant = x[:, 0] / self.schema.constant
        scores: NDArray[np.float64] = x[:, 1:] @ self.coef_.T + np.multiply.outer(
            constant, self.intercept_
        )
        return scores

    def predict(self, rows: Sequence[Mapping[str, object]]) -> list[Any]:
        """The class of each row, or its value in the label's own units."""
        scores = self.decision_function(rows)
        label = self.schema.label
        if isinstance(label, BinaryLabel):
            return [label.positive if score > 0 else label.negative for score in scores]
        if isinstance(label, CategoricalLabel):
            return [label.classes[k] for k in scores.argmax(axis=1)]
        if self.card["loss"]["kind"] == "phase_retrieval":
            scores = scores**2
        if isinstance(label, UnboundedLabel):
            return [float(score) * label.scale for score in scores]
        value = label.lower + (np.clip(scores, -1, 1) + 1) / 2 * (label.upper - label.lower)
        return [float(v) for v in value]
