"""The catalog: every algorithm the service can plan, and how a spec becomes a Plan.

To add an algorithm: a plan and a run of the same file name, one line in `CATALOG`, one row in the
guarantee test."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from service.errors import PlanRefused
from service.planning.algorithms import clipped_sgd, gradient_descent
from service.planning.plan import Plan
from service.planning.spec import Facts, JobSpec


@dataclass(frozen=True)
class Algorithm:
    name: str
    title: str
    paper: str
    algorithm: str
    theorem: str
    problem: str
    needs: tuple[str, ...]
    cost: str
    parameters: type[BaseModel]
    plan: Callable[[JobSpec, Facts, Any], Plan]

    def card(self) -> dict[str, Any]:
        return {
            "object": "algorithm",
            "name": self.name,
            "title": self.title,
            "paper": self.paper,
            "algorithm": self.algorithm,
            "theorem": self.theorem,
            "problem": self.problem,
            "needs": list(self.needs),
            "cost": self.cost,
            "parameters": self.parameters.model_json_schema(),
        }


_KLL = "Kulkarni, Lee, Liu: Private non-smooth ERM and SCO in subquadratic steps (2021)"
_LR_HT = (
    "Lowy, Razaviyayn: Private stochastic optimization with large worst-case Lipschitz parameter "
    "(2023)"
)

CATALOG: dict[str, Algorithm] = {
    entry.name: entry
    for entry in (
        Algorithm(
            name=clipped_sgd.NAME,
            title="Noisy clipped SGD, one pass",
            paper=_LR_HT,
            algorithm="5 with mean oracle 1",
            theorem="30",
            problem="smooth strongly convex losses over an l2 ball; rows may be unbounded",
            needs=("smooth loss", "ridge > 0"),
            cost="one noisy sum on disjoint batches: the price of a single release",
            parameters=clipped_sgd.Parameters,
            plan=clipped_sgd.plan,
        ),
        Algorithm(
            name=gradient_descent.NAME,
            title="Noisy full-gradient descent (baseline)",
            paper=_KLL,
            algorithm="2 with B = N",
            theorem="3.1",
            problem="smooth convex losses over an l2 ball; rows may be unbounded",
            needs=("smooth loss",),
            cost="one noisy sum over all rows per step; costs add",
            parameters=gradient_descent.Parameters,
            plan=gradient_descent.plan,
        ),
    )
}


def plan(spec: JobSpec, facts: Facts) -> Plan:
    """The one way from a spec and public facts to a Plan: pure and deterministic."""
    algorithm = CATALOG.get(spec.algorithm)
    if algorithm is None:
        raise PlanRefused(
            f"no algorithm is called {spec.algorithm[:64]!r}; there are: "
            + ", ".join(sorted(CATALOG))
            + "."
        )
    try:
        parameters = algorithm.parameters.model_validate(spec.parameters)
    except ValidationError as error:
        raise PlanRefused(
            f"a parameter of {algorithm.name} is not acceptable; it takes: "
            + ", ".join(algorithm.parameters.model_fields)
            + ".",
            errors=[{"loc": ["parameters", *e["loc"]], "msg": e["msg"]} for e in error.errors()],
        ) from None
    return algorithm.plan(spec, facts, parameters)
