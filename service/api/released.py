"""Models that a spec names: whether the caller may, and which exactly."""

import json

from sqlalchemy import Connection, select

from service.api.auth import Caller, visible_job
from service.errors import JobNotFinished, PlanRefused
from service.jobs.card import weights_of
from service.planning.feasible import DefaultSet
from service.planning.spec import JobSpec
from service.tables import models

WEIGHT_MAX = 1e100


def resolved(connection: Connection, me: Caller, spec: JobSpec) -> JobSpec:
    """The spec with the digest of the model that it names, and its set unless another is named. A job
    that the caller may not see is not found; one on another dataset, or without coefficients, is
    refused."""
    if spec.of is None:
        return spec
    job = visible_job(connection, me, spec.of.job)
    if job.dataset_id != spec.dataset:
        raise PlanRefused(
            f"the model of {job.id} is of another dataset; name a job on {spec.dataset}."
        )
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
    if spec.of.digest not in (None, model.digest):
        raise PlanRefused(
            f"the model of {job.id} has the digest {model.digest}; send that or leave it out."
        )
    of = spec.of.model_copy(update={"digest": model.digest})
    fitted = JobSpec.model_validate_json(job.spec).set
    where = fitted if isinstance(spec.set, DefaultSet) else spec.set
    return spec.model_copy(update={"of": of, "set": where})
