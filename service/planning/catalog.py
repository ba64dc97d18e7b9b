"""The catalog: every algorithm the service can plan, and how a spec becomes a Plan."""

from pydantic import BaseModel, ValidationError

from service.errors import PlanRefused
from service.planning.algorithm import Algorithm
from service.planning.algorithms import ALGORITHMS
from service.planning.assemble import assemble
from service.planning.default_set import with_set
from service.planning.expected import expected
from service.planning.needs import either
from service.planning.plan import Plan
from service.planning.problem import check_label
from service.planning.spec import Facts, JobSpec

CATALOG: dict[str, Algorithm] = {each.name: each for each in ALGORITHMS.values()}


def plan(spec: JobSpec, facts: Facts) -> Plan:
    """The one way from a spec and public facts to a Plan: pure and deterministic."""
    algorithm = CATALOG.get(spec.algorithm)
    if algorithm is None:
        raise PlanRefused(
            f"no algorithm is called {spec.algorithm[:64]!r}; there are: "
            + ", ".join(sorted(CATALOG))
            + "."
        )
    check_label(spec.loss, facts)
    spec = with_set(algorithm.needs, spec, facts)
    check_needs(algorithm, spec, facts)
    parameters = parameters_of(algorithm, spec)
    draft = algorithm.plan(spec, facts, parameters)
    told = expected(algorithm.name, algorithm.needs, spec, facts)
    return assemble(algorithm.name, spec, facts, draft, told)


def check_needs(algorithm: Algorithm, spec: JobSpec, facts: Facts) -> None:
    """Refuse a job that the algorithm does not take, and say what would do in its place."""
    for misfit in algorithm.needs.misfits(spec, facts):
        others = alternatives(spec, facts) if misfit.elsewhere else []
        raise PlanRefused(
            f"{algorithm.name} {misfit.says}; {misfit.instead}"
            + (f", or use {either(others)}" if others else "")
            + "."
        )


def alternatives(spec: JobSpec, facts: Facts) -> list[str]:
    """The algorithms that take this job, whichever it names, and answer the question that it asks."""
    return [
        name
        for name, each in CATALOG.items()
        if each.takes(spec, facts) and (each.certifies or not each.answers_another(spec))
    ]


def parameters_of(algorithm: Algorithm, spec: JobSpec) -> BaseModel:
    try:
        return algorithm.parameters.model_validate(spec.parameters)
    except ValidationError as error:
        raise PlanRefused(
            f"a parameter of {algorithm.name} is not acceptable; it takes: "
            + ", ".join(algorithm.parameters.model_fields)
            + ".",
            errors=[{"loc": ["parameters", *e["loc"]], "msg": e["msg"]} for e in error.errors()],
        ) from None
