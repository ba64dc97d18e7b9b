"""What scikit-learn's tools ask an estimator about itself; only they call it."""

from importlib import import_module
from typing import Any


def tags(kind: str | None, *, multi_class: bool) -> Any:
    sklearn = import_module("sklearn.utils")
    return sklearn.Tags(
        estimator_type=kind,
        target_tags=sklearn.TargetTags(required=False),
        transformer_tags=None,
        classifier_tags=(
            sklearn.ClassifierTags(multi_class=multi_class) if kind == "classifier" else None
        ),
        regressor_tags=sklearn.RegressorTags(poor_score=True) if kind == "regressor" else None,
        input_tags=sklearn.InputTags(string=True, allow_nan=True),
    )
