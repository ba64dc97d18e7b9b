"""What a job may ask about released models: how good they are on the rows that were held out."""

from typing import Annotated, Literal

from pydantic import Field

from service.planning.kinds import Public

Metric = Literal[
    "accuracy",
    "balanced_accuracy",
    "precision",
    "recall",
    "f1",
    "auc",
    "roc",
    "precision_recall",
    "calibration",
    "brier",
    "log_loss",
    "mae",
    "rmse",
    "r2",
    "coverage",
]
MODELS_MAX = 16  # of one job


class Evaluate(Public):
    """How models are evaluated on the rows that were held out."""

    metrics: Annotated[tuple[Metric, ...], Field(max_length=20)] = Field(
        default=(),
        description="What to measure; by default all that label and loss have. Each table that they "
        "need takes a share of the precision, and tells all that it can.",
    )
    threshold: float = Field(
        default=0.5, gt=0, lt=1, description="The chance above which a row is called positive."
    )
    bins: int = Field(default=24, ge=2, le=500, description="Of scores, for curves.")
    by: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="A categorical column: what is counted is told for each category too.",
    )
