"""The model card: the released weights with everything needed to use them on raw rows, and nothing
else that was computed from the data.

A worker hands over one vector, `Released`. The card is made of it here, where no rows are, from the
stored Plan and the public schema, and every shape that it may have is written down below."""

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from service.datasets.encode import decode_point
from service.datasets.schema import BinaryLabel, CategoricalLabel, Schema
from service.jobs.evaluated import Evaluated, evaluated
from service.jobs.told import Summary, summaries_of
from service.planning.certificate import certificate_of
from service.planning.losses import Loss
from service.planning.plan import Guarantee, Plan
from service.planning.spec import ReluNetwork


class Closed(BaseModel):
    """Finite numbers and names that were foreseen: a field more is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Released(Closed):
    """All that leaves a worker: as many numbers as the Plan has weights, which the gate let out or
    which were computed from what it let out (workers/transcript.py)."""

    vector: tuple[float, ...]


class Software(Closed):
    """What ran: a retry on another build may differ in a last bit, so the record names it."""

    epsilond: str
    python: str
    numpy: str
    numba: str
    machine: str
    cpu: str


class Network(Closed):
    hidden: list[list[float]]
    outer: list[float]
    offset: float


class Certificate(Closed):
    of: str
    model_digest: str | None
    radius: float
    gradient: list[float]
    gradient_norm: float
    projected_gradient_norm: float | None
    stationarity_gap: float | None
    noise: PositiveFloat
    noise_norm: PositiveFloat
    gap_noise: float | None
    confidence: PositiveFloat


class Card(Closed):
    object: Literal["model", "certificate", "summary", "evaluation"]
    job: str
    algorithm: str
    loss: Loss | None = None
    coef_: list[float] | list[list[float]] | None = None
    intercept_: float | list[float] | None = None
    classes_: list[str] | None = None
    location: list[float] | None = None
    network: Network | None = None
    certificate: Certificate | None = None
    summaries: list[Summary] | None = Field(default=None, exclude_if=lambda told: told is None)
    evaluation: list[Evaluated] | None = Field(default=None, exclude_if=lambda told: told is None)
    feature_names_in_: list[str]
    encoder: Schema
    guarantee: Guarantee
    plan_digest: str


def model_card(
    job_id: str,
    plan: Plan,
    plan_digest: str,
    schema_json: str,
    released: Released,
    of: list[float] | None = None,
) -> dict[str, Any]:
    """The card of a model; of a certificate or an evaluation, if the Plan is about models: those of
    weights `of`; or of the summaries that the Plan's spec asks."""
    if len(released.vector) != plan.dimension:
        raise ValueError("a worker releases one number per weight of the Plan")
    schema, vector = Schema.model_validate_json(schema_json), list(released.vector)
    what: Literal["model", "certificate", "summary", "evaluation"] = "model"
    parts: dict[str, Any]
    if plan.spec.summaries:
        what, parts = "summary", {"summaries": summaries_of(plan, schema, vector)}
    elif of is not None and plan.schedule.evaluates():
        told = evaluated(plan, schema, np.array(of), np.array(vector))
        what, parts = "evaluation", {"evaluation": told}
    elif of is not None:
        what = "certificate"
        parts = {"certificate": certificate_of(plan, np.array(of), np.array(vector))}
    else:
        parts = _parameters(plan, schema, vector)
    card = Card(
        object=what,
        job=job_id,
        algorithm=plan.algorithm,
        loss=None if plan.spec.summaries else plan.spec.loss,
        feature_names_in_=list(schema.feature_names[1:]),
        encoder=schema,
        guarantee=plan.guarantee,
        plan_digest=plan_digest,
        **parts,
    )
    return card.model_dump(mode="json")


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
        return {"location": decode_point(schema, weights)}
    classes = [label.negative, label.positive] if isinstance(label, BinaryLabel) else None
    if isinstance(plan.spec.model, ReluNetwork):
        H = plan.spec.model.width
        rows = [weights[i : i + d] for i in range(0, H * d, d)]
        network = {"hidden": rows, "outer": weights[H * d : -1], "offset": weights[-1]}
        return {"network": network, "classes_": classes}
    if isinstance(label, CategoricalLabel):
        rows = [weights[i : i + d] for i in range(0, len(weights), d)]
        return {
            "coef_": [row[1:] for row in rows],
            "intercept_": [row[0] * schema.constant for row in rows],
            "classes_": list(label.classes),
        }
    return {
        "coef_": weights[1:],
        "intercept_": weights[0] * schema.constant,
        "classes_": classes,
    }
