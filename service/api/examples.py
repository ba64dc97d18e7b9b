"""An example of every body that the API takes, by the name of its schema: the README's hospital."""

from typing import Any

DATASET, ANALYST = "ds_4q2m8x0c6v1b", "prn_7h3k9d5f2s8a"

_COLUMNS = [
    {"name": "age", "kind": "numeric", "lower": 0, "upper": 110, "fill": 40},
    {"name": "ward", "kind": "categorical", "categories": ["A", "B", "C"]},
]
_LABEL = {"name": "returned", "kind": "binary", "positive": "yes", "negative": "no"}
_SPEC = {
    "dataset": DATASET,
    "algorithm": "auto",
    "loss": {"kind": "logistic"},
    "privacy": {"epsilon": 0.5},
}
_JOB = _SPEC | {"metadata": {"ticket": "1042"}}
_REASON = {"reason": "the ethics board asked for a pause"}

EXAMPLES: dict[str, dict[str, Any]] = {
    "DatasetRequest": {"name": "visits", "schema": {"columns": _COLUMNS, "label": _LABEL}},
    "SharingRequest": {"shared_ledger": True},
    "GrantRequest": {"epsilon_cap": 1},
    "BudgetRequest": {"epsilon": 2, "delta": 1e-6},
    "TopUpRequest": {"epsilon_cap": 1.5, "reason": "the second study was approved"},
    "ReasonRequest": _REASON,
    "SpecRequest": _SPEC,
    "NoiseRequest": _SPEC | {"noise": 0.01},
    "BatchRequest": {"jobs": [_SPEC, _SPEC | {"privacy": {"epsilon": 0.25}}]},
    "JobRequest": _JOB,
    "GroupRequest": {"jobs": [_JOB, _SPEC | {"loss": {"kind": "hinge"}}]},
    "PrincipalRequest": {"name": "Ada", "role": "owner"},
    "KeyRequest": {"principal": ANALYST, "expires_days": 90},
    "SessionRequest": {"key": "eps_0123456789abcdef"},
}


def add_examples(schemas: dict[str, Any]) -> None:
    """To the components of an OpenAPI document."""
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
