"""The last step of every planner: price the releases, check them against what was asked, and put the
Plan together."""

from service.planning.lattice import Lattice, PointLattice, Target
from service.planning.losses import Problem, is_convex
from service.planning.plan import (
    Guarantee,
    Plan,
    Prediction,
    Price,
    PrivateClip,
    Schedule,
    Smoothing,
)
from service.planning.price import epsilon_alone, fits_own_target, price_units
from service.planning.releases import Release
from service.planning.spec import Facts, JobSpec


class CalibrationError(RuntimeError):
    """A planner made releases that exceed what was asked, or whose sensitivity rests on what the job
    lacks: a bug, and nothing is charged or run."""


def assemble(
    spec: JobSpec,
    facts: Facts,
    goal: Target,
    p: Problem,
    *,
    algorithm: str,
    schedule: Schedule,
    lattice: Lattice,
    release: Release,
    prediction: Prediction,
    gradients: int,
    smoothing: Smoothing | None = None,
    private_clip: PrivateClip | None = None,
) -> Plan:
    if isinstance(lattice, PointLattice) and not is_convex(spec):
        raise CalibrationError(algorithm)  # how far a record moves a point is known by convexity
    charged = price_units(release, facts.account)
    same_currency = (goal.delta > 0) == (facts.account.kind == "renyi")
    if same_currency and charged > goal.units:
        raise CalibrationError(algorithm)
    if not fits_own_target(release, goal.epsilon, goal.delta):
        raise CalibrationError(algorithm)
    return Plan(
        algorithm=algorithm,
        spec=spec,
        facts=facts,
        dimension=p.d,
        smoothing=smoothing,
        schedule=schedule,
        lattice=lattice,
        private_clip=private_clip,
        release=release,
        price=Price(units=charged, kind=facts.account.kind, order=facts.account.order),
        guarantee=Guarantee(
            epsilon=goal.epsilon,
            delta=goal.delta,
            epsilon_alone=epsilon_alone(release, goal.epsilon, goal.delta),
        ),
        prediction=prediction,
        gradients=gradients,
    )
