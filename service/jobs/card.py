"""The model card: the released weights with everything needed to use them on raw rows, and nothing
else that was computed from the data."""

from typing import Any

from service.datasets.encode import decode_point
from service.datasets.schema import BinaryLabel, CategoricalLabel, Schema
from service.planning.plan import Plan
from service.planning.spec import ReluNetwork

_NO_PARAMETERS = dict.fromkeys(("coef_", "intercept_", "classes_", "location", "network"))


def model_card(
    job_id: str,
    plan: Plan,
    plan_digest: str,
    schema_json: str,
    weights: list[float],
    certificate: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The card of a model, or, if there is one, of a certificate instead."""
    schema = Schema.model_validate_json(schema_json)
    return {
        "object": "model" if certificate is None else "certificate",
        "job": job_id,
        "algorithm": plan.algorithm,
        "loss": plan.spec.loss.model_dump(mode="json"),
        **(_NO_PARAMETERS if certificate else _parameters(plan, schema, weights)),
        "certificate": certificate,
        "feature_names_in_": list(schema.feature_names[1:]),
        "encoder": schema.model_dump(mode="json"),
        "guarantee": plan.guarantee.model_dump(mode="json"),
        "plan_digest": plan_digest,
    }


def weights_of(card: dict[str, Any]) -> list[float] | None:
    """The weight vector of a linear model's card; None for any other card."""
    if card["coef_"] is None:
        return None
    constant = Schema.model_validate(card["encoder"]).constant
    if isinstance(card["intercept_"], list):
        rows = zip(card["intercept_"], card["coef_"], strict=True)
        return [w for intercept, coef in rows for w in (intercept / constant, *coef)]
    return [card["intercept_"] / constant, *card["coef_"]]


def _parameters(plan: Plan, schema: Schema, weights: list[float]) -> dict[str, Any]:
    """A linear model as in scikit-learn (for softmax, one row of `coef_` per class), the weights of a
    network, or the location of a geometric median."""
    label, d = schema.label, schema.width
    if plan.spec.loss.located:
        return _NO_PARAMETERS | {"location": decode_point(schema, weights)}
    classes = [label.negative, label.positive] if isinstance(label, BinaryLabel) else None
    if isinstance(plan.spec.model, ReluNetwork):
        H = plan.spec.model.width
        rows = [weights[i : i + d] for i in range(0, H * d, d)]
        network = {"hidden": rows, "outer": weights[H * d : -1], "offset": weights[-1]}
        return _NO_PARAMETERS | {"network": network, "classes_": classes}
    if isinstance(label, CategoricalLabel):
        rows = [weights[i : i + d] for i in range(0, len(weights), d)]
        return _NO_PARAMETERS | {
            "coef_": [row[1:] for row in rows],
            "intercept_": [row[0] * schema.constant for row in rows],
            "classes_": list(label.classes),
        }
    return _NO_PARAMETERS | {
        "coef_": weights[1:],
        "intercept_": weights[0] * schema.constant,
        "classes_": classes,
    }
