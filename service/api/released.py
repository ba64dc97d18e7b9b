"""Models that a spec names: whether the caller may, and which exactly."""

import json
from typing import Any

from sqlalchemy import Connection, select

from service.api.auth import Caller, visible_job
from service.errors import JobNotFinished, PlanRefused
from service.jobs.card import weights_of
from service.planning.feasible import DefaultSet
from service.planning.spec import JobSpec, Released
from service.tables import models

WEIGHT_MAX = 1e100


def resolved(connection: Connection, me: Caller, spec: JobSpec) -> JobSpec:
    """The spec with the digests of the models that it names, and with their set and loss unless others
    are named. A job that the caller may not see is not found; one on another dataset, or without
    coefficients, is refused."""
    if spec.of is None:
        return spec
    found = [_resolved(connection, me, spec.dataset, of) for of in spec.named]
    fitted = [one for _, one in found]
    digests = tuple(of for of, _ in found)
    given: dict[str, Any] = {"of": digests[0] if isinstance(spec.of, Released) else digests}
    if isinstance(spec.set, DefaultSet):
        given["set"] = fitted[0].set
    if spec.loss.kind == "no_loss":
        losses = {one.loss.model_dump_json(): one.loss for one in fitted}
        if len(losses) > 1:
            raise PlanRefused(
                "these models were fitted with different losses; ask one job for each loss, or name "
                'the "loss" by which all are to be read.'
            )
        given["loss"] = fitted[0].loss
    return spec.model_copy(update=given)


def _resolved(
    connection: Connection, me: Caller, dataset: str, of: Released
) -> tuple[Released, JobSpec]:
    """The model with its digest, and the spec of the job that fitted it."""
    job = visible_job(connection, me, of.job)
    if job.dataset_id != dataset:
        raise PlanRefused(f"the model of {job.id} is of another dataset; name a job on {dataset}.")
    query = select(models.c.card, models.c.digest).where(models.c.job_id == job.id)
    model = connection.execute(query).first()
    if model is None:
        raise JobNotFinished(
            f"{job.id} is {job.state}; its model can be used once it has succeeded."
        )
    weights = weights_of(json.loads(model.card))
    if weights is None:
        raise PlanRefused(f"{job.id} has no linear model; name a job that fitted one.")
    if not all(abs(weight) <= WEIGHT_MAX for weight in weights):
        raise PlanRefused(
            f"the model of {job.id} has a weight beyond {WEIGHT_MAX:g}, where squares leave float64; "
            "name a job whose steps did not diverge: over the set l2_ball, or with smaller steps."
        )
    if of.digest not in (None, model.digest):
        raise PlanRefused(
            f"the model of {job.id} has the digest {model.digest}; send that or leave it out."
        )
    return of.model_copy(update={"digest": model.digest}), JobSpec.model_validate_json(job.spec)
