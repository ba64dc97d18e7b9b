"""A published model card as an object that predicts on raw rows. Needs no service and no network.

model = Model(card)  # as GET /v1/jobs/{id}/model returned it
model.predict([{"age": 41, "city": "Oslo"}])  # or a DataFrame, or an array in declared order
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilond.encode import JSON, Encoder, Floats
from epsilond.html import as_html
from epsilond.tables import for_prediction


class Model:
    """A published model card, able to encode raw rows as the service did.

    `coef_` and `intercept_` have one entry per class for softmax; a geometric median has a `location`
    instead, in the columns' own units and the order of `feature_names_in_`. A network has weights of
    encoded rows: `network` holds `hidden` (a list per unit, the constant first), `outer` and `offset`;
    a certificate has a `certificate`, and a job that fitted nothing has `summaries`
    or an `evaluation`.
    """

    def __init__(self, card: JSON) -> None:
        self.card = card
        self.encoder = Encoder(card["encoder"])
        self.location: list[float] | None = card.get("location")
        self.certificate: JSON | None = card.get("certificate")
        self.summaries: list[JSON] | None = card.get("summaries")
        self.evaluation: list[JSON] | None = card.get("evaluation")
        self.network: JSON | None = card.get("network")
        linear = card["coef_"] is not None
        self.coef_: Floats = np.asarray(card["coef_"] if linear else [])
        self.intercept_: float | list[float] = card["intercept_"] if linear else []
        self.feature_names_in_: list[str] = card["feature_names_in_"]
        self.classes_: list[str] | None = card["classes_"]

    @property
    def predicts(self) -> bool:
        return self.card["coef_"] is not None or self.network is not None

    @property
    def loss(self) -> str | None:
        """Its name; None of a job that fitted nothing."""
        loss: JSON | None = self.card["loss"]
        return None if loss is None else loss["kind"]

    @property
    def probabilistic(self) -> bool:
        """Whether margins are log-odds."""
        return self.predicts and self.loss in ("logistic", "softmax")

    def encode(self, rows: Any) -> Floats:
        """The rows as they were fitted on, the constant first; absent or empty cells take the fill."""
        return self.encoder.encode(for_prediction(self.encoder, rows))

    def decision_function(self, rows: Any) -> Floats:
        """The margin of each row, or one per class."""
        if not self.predicts:
            told = ("location", "certificate", "summaries", "evaluation")
            parts = [name for name in told if getattr(self, name) is not None]
            raise TypeError(f"without coefficients it predicts nothing; see {' and '.join(parts)}")
        x = self.encode(rows)
        if self.network is not None:
            hidden = np.maximum(x @ np.asarray(self.network["hidden"]).T, 0.0)
            return np.asarray(hidden @ np.asarray(self.network["outer"]) + self.network["offset"])
        # a row that was clipped to its norm bound has a smaller constant too
        constant = x[:, 0] / self.encoder.constant
        scores: Floats = x[:, 1:] @ self.coef_.T + np.multiply.outer(constant, self.intercept_)
        return scores

    def predict_proba(self, rows: Any) -> Floats:
        """The chance of each class, in the order of `classes_`: for the logistic loss and softmax."""
        if not self.probabilistic:
            raise TypeError(f"the {self.loss} loss gives no probabilities; fit logistic or softmax")
        scores = self.decision_function(rows)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def predict(self, rows: Any) -> NDArray[Any]:
        """The class of each row, or its value in the label's own units."""
        scores = self.decision_function(rows)
        label = self.encoder.label
        if (classes := self.encoder.classes) is not None:
            return np.array(classes)[self.chosen(scores)]
        if self.loss == "phase_retrieval":
            scores = scores**2
        if label["kind"] == "unbounded":
            return np.asarray(scores * label["scale"])
        lower, upper = label["lower"], label["upper"]
        return np.asarray(lower + (np.clip(scores, -1, 1) + 1) / 2 * (upper - lower))

    @staticmethod
    def chosen(scores: Floats) -> NDArray[np.intp]:
        """The position of each row's class among `classes_`."""
        return scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)

    def __repr__(self) -> str:
        return (
            f"<Model of {self.card['job']}: {self.loss or 'summaries'}, {self.card['algorithm']}>"
        )

    def _repr_html_(self) -> str:
        guarantee = self.card["guarantee"]
        facts = {
            "job": self.card["job"],
            "loss": self.loss,
            "algorithm": self.card["algorithm"],
            **{name: guarantee[name] for name in ("epsilon", "delta") if name in guarantee},
            "label": self.encoder.label["name"],
        }
        if self.coef_.ndim == 1 and len(self.coef_):
            largest = np.argsort(-np.abs(self.coef_))[:10]
            facts |= {self.feature_names_in_[j]: f"{self.coef_[j]:.4g}" for j in largest}
        return as_html("model", facts)
