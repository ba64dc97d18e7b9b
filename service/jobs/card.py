"""The model card: the privatised weights with everything needed to use them on raw rows, and nothing
else that was computed from the data."""

from typing import Any

from service.datasets.schema import BinaryLabel, Schema
from service.planning.plan import Plan


def model_card(
    job_id: str, plan: Plan, plan_digest: str, schema_json: str, weights: list[float]
) -> dict[str, Any]:
    schema = Schema.model_validate_json(schema_json)
    label = schema.label
    return {
        "object": "model",
        "job": job_id,
        "algorithm": plan.algorithm,
        "loss": plan.spec.loss.model_dump(mode="json"),
        "coef_": weights[1:],
        "intercept_": weights[0] * schema.constant,
        "feature_names_in_": list(schema.feature_names[1:]),
        "classes_": [label.negative, label.positive] if isinstance(label, BinaryLabel) else None,
        "encoder": schema.model_dump(mode="json"),
        "guarantee": plan.guarantee.model_dump(mode="json"),
        "plan_digest": plan_digest,
    }
