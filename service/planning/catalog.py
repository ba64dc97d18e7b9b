"""The catalog: every algorithm the service can plan, and how a spec becomes a Plan.

To add an algorithm: a plan and a run of the same file name, one line in `CATALOG`, one row in the
guarantee test."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from service.errors import PlanRefused
from service.planning.algorithms import (
    accelerated_clipped_sgd,
    accelerated_sgd,
    adversarial_output_perturbation,
    clipped_sgd,
    frank_wolfe,
    gradient_descent,
    localized_accelerated_sgd,
    localized_subgradient,
    online_to_nonconvex,
    output_perturbation,
    phased_sgd,
    polyhedral_stochastic_frank_wolfe,
    proximal_sgd,
    proximally_guided_mirror_descent,
    stationarity_certificate,
    stochastic_frank_wolfe,
    tilted_output_perturbation,
)
from service.planning.losses import is_convex
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
    example: dict[str, Any]  # the rest of a job that it takes, for a binary label
    own_objective: bool = False  # it minimises something else than the mean of the losses
    nonconvex: bool = False  # it takes losses that are not convex, and predicts a stationarity
    networks: bool = False  # it takes models that are not linear
    certifies: bool = False  # it is about the model of another job, which `spec.of` names

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
            "example": self.example,
        }


_BGM = (
    "Bassily, Guzman, Menart: Differentially private stochastic optimization: new results in convex "
    "and non-convex settings (2021)"
)
_KLL = "Kulkarni, Lee, Liu: Private non-smooth ERM and SCO in subquadratic steps (2021)"
_KLT = (
    "Kornowski, Liu, Talwar: Improved sample complexity for private nonsmooth nonconvex optimization "
    "(2025)"
)
_LR_HT = (
    "Lowy, Razaviyayn: Private stochastic optimization with large worst-case Lipschitz parameter "
    "(2023)"
)
_LR_OP = (
    "Lowy, Razaviyayn: Output perturbation for differentially private convex optimization (2021)"
)

CATALOG: dict[str, Algorithm] = {
    entry.name: entry
    for entry in (
        Algorithm(
            name=accelerated_sgd.NAME,
            title="Accelerated SGD on the smoothed loss, over secret batches",
            paper=_KLL,
            algorithm="4 on 3",
            theorem="4.9 and 4.11",
            problem="convex losses, smooth or not, over any set with a projection",
            needs=(),
            cost="one noisy sum over a random batch per step, amplified by sampling; costs add",
            parameters=accelerated_sgd.Parameters,
            plan=accelerated_sgd.plan,
            example={"loss": "hinge"},
        ),
        Algorithm(
            name=localized_accelerated_sgd.NAME,
            title="Localized accelerated SGD for population risk",
            paper=_KLL,
            algorithm="5 on 4",
            theorem="5.6",
            problem="population risk of convex losses, smooth or not, over any set with a projection",
            needs=(),
            cost="one phase of accelerated-sgd: phases read disjoint rows",
            parameters=localized_accelerated_sgd.Parameters,
            plan=localized_accelerated_sgd.plan,
            example={"loss": "hinge"},
        ),
        Algorithm(
            name=clipped_sgd.NAME,
            title="Noisy clipped SGD, one pass",
            paper=_LR_HT,
            algorithm="5 with mean oracle 1",
            theorem="30",
            problem="smooth strongly convex losses, over any set with a projection; any rows",
            needs=("smooth loss", "ridge > 0"),
            cost="one noisy sum on disjoint batches: the price of a single release",
            parameters=clipped_sgd.Parameters,
            plan=clipped_sgd.plan,
            example={"loss": "logistic", "ridge": 0.01},
        ),
        Algorithm(
            name=accelerated_clipped_sgd.NAME,
            title="Accelerated SGD with clipped gradients, one pass",
            paper=_LR_HT,
            algorithm="4 with mean oracle 1",
            theorem="29",
            problem="smooth convex losses over any set with a projection; rows may be unbounded",
            needs=("smooth loss",),
            cost="one noisy sum on disjoint batches: the price of a single release",
            parameters=accelerated_clipped_sgd.Parameters,
            plan=accelerated_clipped_sgd.plan,
            example={"loss": "logistic"},
        ),
        Algorithm(
            name=localized_subgradient.NAME,
            title="Localized clipped subgradients for population risk",
            paper=_LR_HT,
            algorithm="3 on 2",
            theorem="10, and 18 for ridge > 0",
            problem="population risk of convex losses, smooth or not; rows may be unbounded",
            needs=(),
            cost="one phase of noisy sums: phases read disjoint rows",
            parameters=localized_subgradient.Parameters,
            plan=localized_subgradient.plan,
            example={"loss": "hinge"},
        ),
        Algorithm(
            name=proximal_sgd.NAME,
            title="Noisy proximal SGD, one pass",
            paper=_LR_HT,
            algorithm="6 with mean oracle 1",
            theorem="35",
            problem="smooth losses with an l1, elastic net or group lasso; rows may be unbounded",
            needs=("smooth loss", "ridge > 0, or parameters.growth or steps"),
            cost="one noisy sum on disjoint batches: the price of a single release",
            parameters=proximal_sgd.Parameters,
            plan=proximal_sgd.plan,
            example={
                "loss": "logistic",
                "ridge": 0.01,
                "regulariser": {"kind": "l1", "strength": 0.001},
            },
        ),
        Algorithm(
            name=frank_wolfe.NAME,
            title="Frank-Wolfe with privately chosen vertices",
            paper=_BGM,
            algorithm="3 on 1",
            theorem="9",
            problem="convex losses of one margin over an l1 ball, a simplex or a polytope",
            needs=("a bound on every column", "a loss of one margin", "a set with vertices"),
            cost="one choice of a vertex over all rows per step; costs add",
            parameters=frank_wolfe.Parameters,
            plan=frank_wolfe.plan,
            example={"loss": "logistic", "set": {"kind": "l1_ball", "radius": 10.0}},
        ),
        Algorithm(
            name=gradient_descent.NAME,
            title="Noisy gradient descent (baseline)",
            paper=_KLL,
            algorithm="2",
            theorem="3.1",
            problem="convex losses over any set with a projection, and ReLU networks (without a "
            "theorem); rows may be unbounded",
            needs=(),
            cost="one noisy sum per step, over all rows or over a random batch; costs add",
            parameters=gradient_descent.Parameters,
            plan=gradient_descent.plan,
            example={"loss": "logistic"},
            networks=True,
        ),
        Algorithm(
            name=online_to_nonconvex.NAME,
            title="Online-to-non-convex conversion, with gradients or with values alone",
            paper=_KLT,
            algorithm="2 on 3, 4 or 5",
            theorem="3.1, 4.1 and 6.1",
            problem="Goldstein-stationary points of any loss of one margin, of linear models and "
            "ReLU networks; rows may be unbounded",
            needs=("a loss of one margin", "an l2 ball or all of R^d"),
            cost="prefix sums of a period on disjoint rows: about one release; or costs that add",
            parameters=online_to_nonconvex.Parameters,
            plan=online_to_nonconvex.plan,
            example={"loss": "ramp"},
            nonconvex=True,
            networks=True,
        ),
        Algorithm(
            name=output_perturbation.NAME,
            title="Output perturbation: the minimiser plus noise",
            paper=_LR_OP,
            algorithm="1 (ridge > 0) and 2 (ridge = 0)",
            theorem="0.2 to 0.5 of the supplement",
            problem="convex losses of one margin over an l2 ball or all of R^d; bounded rows",
            needs=("a bound on every column", "a loss of one margin", "an l2 ball, or ridge > 0"),
            cost="one noisy point over all rows: the price of a single release",
            parameters=output_perturbation.Parameters,
            plan=output_perturbation.plan,
            example={"loss": "logistic", "ridge": 0.01},
        ),
        Algorithm(
            name=phased_sgd.NAME,
            title="Phased SGD: one pass, a noisy point per phase",
            paper=_BGM,
            algorithm="2 on 1",
            theorem="6 and 7",
            problem="population risk of convex losses of one margin, over an l2 ball or all of R^d",
            needs=("a bound on every column", "a loss of one margin"),
            cost="one noisy point per phase on disjoint rows: the price of a single release",
            parameters=phased_sgd.Parameters,
            plan=phased_sgd.plan,
            example={"loss": "hinge"},
        ),
        Algorithm(
            name=polyhedral_stochastic_frank_wolfe.NAME,
            title="Stochastic Frank-Wolfe with privately chosen vertices, one pass",
            paper=_BGM,
            algorithm="4",
            theorem="11",
            problem="stationary points of smooth losses, convex or not, over an l1 ball, simplex or "
            "polytope",
            needs=("smooth loss", "a bound on every column", "a set with vertices"),
            cost="the choices that a record's batch still influences; rounds read disjoint rows",
            parameters=polyhedral_stochastic_frank_wolfe.Parameters,
            plan=polyhedral_stochastic_frank_wolfe.plan,
            example={"loss": "sigmoid", "set": {"kind": "l1_ball", "radius": 10.0}},
            nonconvex=True,
        ),
        Algorithm(
            name=stochastic_frank_wolfe.NAME,
            title="Noisy stochastic Frank-Wolfe over an l_p ball, one pass",
            paper=_BGM,
            algorithm="5",
            theorem="14",
            problem="stationary points of smooth losses, convex or not, over an l_p ball, 1 < p <= 2",
            needs=("smooth loss", "a bound on every column", "an lp_ball or l2_ball"),
            cost="one noisy sum on disjoint batches: the price of a single release",
            parameters=stochastic_frank_wolfe.Parameters,
            plan=stochastic_frank_wolfe.plan,
            example={"loss": "sigmoid", "set": {"kind": "lp_ball", "p": 1.5, "radius": 10.0}},
            nonconvex=True,
        ),
        Algorithm(
            name=proximally_guided_mirror_descent.NAME,
            title="Proximally guided mirror descent, one strongly convex problem after the other",
            paper=_BGM,
            algorithm="6",
            theorem="20",
            problem="near-stationary points of weakly convex losses, over a ball, R^d or a simplex",
            needs=("a weakly convex loss", "parameters.pull where columns are unbounded"),
            cost="one round of noisy sums: rounds read disjoint rows",
            parameters=proximally_guided_mirror_descent.Parameters,
            plan=proximally_guided_mirror_descent.plan,
            example={"loss": "sigmoid"},
            nonconvex=True,
        ),
        Algorithm(
            name=stationarity_certificate.NAME,
            title="A certificate: how stationary a released model is on the data",
            paper=_BGM,
            algorithm="the measures of sections 4 and 5",
            theorem="definition 18",
            problem="the gradient, Frank-Wolfe gap and Goldstein stationarity of a job's model",
            needs=("a model that a job on the same dataset has released",),
            cost="one noisy sum over all rows: the price of a single release",
            parameters=stationarity_certificate.Parameters,
            plan=stationarity_certificate.plan,
            example={"loss": "logistic", "of": "job_of_the_model"},
            own_objective=True,
            certifies=True,
        ),
        Algorithm(
            name=tilted_output_perturbation.NAME,
            title="Output perturbation of a tilted loss",
            paper=_LR_OP,
            algorithm="1 on tilted losses",
            theorem="Propositions 4.1 and 4.2",
            problem="between the mean and the largest of convex losses of one margin; bounded rows",
            needs=("a bound on every column", "a loss of one margin", "an l2 ball, or ridge > 0"),
            cost="one noisy point over all rows: the price of a single release",
            parameters=tilted_output_perturbation.Parameters,
            plan=tilted_output_perturbation.plan,
            example={"loss": "logistic", "ridge": 0.1, "set": {"kind": "l2_ball", "radius": 1.0}},
            own_objective=True,
        ),
        Algorithm(
            name=adversarial_output_perturbation.NAME,
            title="Output perturbation under an adversary who moves rows",
            paper=_LR_OP,
            algorithm="3",
            theorem="4.1",
            problem="convex losses of one margin, each at its worst over moves of its bounded row",
            needs=("a bound on every column", "a loss of one margin", "an l2 ball, or ridge > 0"),
            cost="one noisy point over all rows: the price of a single release",
            parameters=adversarial_output_perturbation.Parameters,
            plan=adversarial_output_perturbation.plan,
            example={"loss": "logistic", "ridge": 0.01},
            own_objective=True,
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
    if spec.regulariser.kind != "none" and algorithm.name != proximal_sgd.NAME:
        raise PlanRefused(
            f"{algorithm.name} takes no regulariser besides ridge; {proximal_sgd.NAME} does."
        )
    if spec.model.kind != "linear" and algorithm.certifies:
        raise PlanRefused(
            f"{algorithm.name} is about linear models and {spec.model.kind} is none; "
            'leave "model" out and set "of" to a job that fitted a linear model.'
        )
    if spec.model.kind != "linear" and not algorithm.networks:
        raise PlanRefused(
            f"{algorithm.name} fits linear models and {spec.model.kind} is none; use "
            + ", ".join(sorted(name for name, entry in CATALOG.items() if entry.networks))
            + ", or a linear model."
        )
    if not is_convex(spec) and not (
        algorithm.nonconvex or algorithm.certifies or spec.model.kind != "linear"
    ):
        raise PlanRefused(
            f"{algorithm.name} needs a convex loss and {spec.loss.kind} is not; use "
            + ", ".join(sorted(name for name, entry in CATALOG.items() if entry.nonconvex))
            + ", or a convex loss."
        )
    if spec.of is not None and not algorithm.certifies:
        raise PlanRefused(
            f'{algorithm.name} begins afresh; leave "of" out, or use {stationarity_certificate.NAME}.'
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
