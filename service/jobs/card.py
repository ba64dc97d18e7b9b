"""The model card: the privatised weights with everything needed to use them on raw rows, and nothing
else that was computed from the data."""

from typing import Any

from service.datasets.encode import decode_point
from service.datasets.schema import BinaryLabel, CategoricalLabel, Schema
from service.planning.plan import Plan


def model_card(
    job_id: str, plan: Plan, plan_digest: str, schema_json: str, weights: list[float]
) -> dict[str, Any]:
    schema = Schema.model_validate_json(schema_json)
    return {
        "object": "model",
        "job": job_id,
        "algorithm": plan.algorithm,
        "loss": plan.spec.loss.model_dump(mode="json"),
        **_parameters(plan, schema, weights),
        "feature_names_in_": list(schema.feature_names[1:]),
        "encoder": schema.model_dump(mode="json"),
        "guarantee": plan.guarantee.model_dump(mode="json"),
        "plan_digest": plan_digest,
    }


def _parameters(plan: Plan, schema: Schema, weights: list[float]) -> dict[str, Any]:
    """A linear model as scikit-learn writes it (one row of `coef_` per class for softmax), or the
    location that a geometric median is."""
    label, d = schema.label, schema.width
    none = {"coef_": None, "intercept_": None, "classes_": None, "location": None}
    if plan.spec.loss.kind == "geometric_median":
        return none | {"location": decode_point(schema, weights)}
    if isinstance(label, CategoricalLabel):
        rows = [weights[i : i + d] for i in range(0, len(weights), d)]
        return none | {
            "coef_": [row[1:] for row in rows],
            "intercept_": [row[0] * schema.constant for row in rows],
            "classes_": list(label.classes),
        }
    return none | {
        "coef_": weights[1:],
        "intercept_": weights[0] * schema.constant,
        "classes_": [label.negative, label.positive] if isinstance(label, BinaryLabel) else None,
    }
