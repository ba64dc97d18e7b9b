"""Models that a spec names: whether the caller may, and which exactly."""

import json

from sqlalchemy import Connection, select

from service.api.auth import Caller, visible_job
from service.errors import JobNotFinished, PlanRefused
from service.jobs.card import weights_of
from service.planning.spec import JobSpec
from service.tables import models


def resolved(connection: Connection, me: Caller, spec: JobSpec) -> JobSpec:
    """The spec with the digest of the model that it names. A job that the caller may not see is not
    found; one on another dataset, or without coefficients, is refused."""
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
        raise JobNotFinished(f"{job.id} is {job.state}; a model is there once it has succeeded.")
    if weights_of(json.loads(model.card)) is None:
        raise PlanRefused(f"{job.id} has no linear model; name a job that fitted one.")
    if spec.of.digest not in (None, model.digest):
        raise PlanRefused(f"the model of {job.id} has the digest {model.digest}; or leave it out.")
    of = spec.of.model_copy(update={"digest": model.digest})
    return spec.model_copy(update={"of": of})
