"""The last step of planning: price a draft's releases, check them against what was asked, and put the
Plan together."""

from service.planning.draft import Draft
from service.planning.estimates import SummarySchedule
from service.planning.expected import Expected
from service.planning.lattice import PointLattice, ScoreLattice, target
from service.planning.plan import Guarantee, Plan, Price
from service.planning.price import epsilon_alone, fits_own_target, price_units
from service.planning.problem import is_convex
from service.planning.spec import Facts, JobSpec


class CalibrationError(RuntimeError):
    """A planner made releases that exceed what was asked, or whose sensitivity rests on what the job
    lacks: a bug, and nothing is charged or run."""


def assemble(
    algorithm: str, spec: JobSpec, facts: Facts, draft: Draft, expected: Expected | None = None
) -> Plan:
    if isinstance(draft.lattice, PointLattice) and (
        not is_convex(spec) or facts.label == "unbounded"
    ):
        raise CalibrationError(algorithm)  # how far a record moves a point is known by these
    rowwise = isinstance(draft.lattice, PointLattice | ScoreLattice)
    if (rowwise or draft.schedule.moment_lattices()) and facts.l2 is None:
        raise CalibrationError(algorithm)  # and a score, or a moment, by the bound on its row
    if bool(spec.summaries) != isinstance(draft.schedule, SummarySchedule):
        raise CalibrationError(
            algorithm
        )  # summaries alone are over rows that were held out as well
    goal, release = target(spec, facts), draft.release
    told = (facts.account, *facts.limits)
    costs = [price_units(release, each) for each in told]
    same_currency = (goal.delta > 0) == (facts.account.delta > 0)
    if same_currency and max(costs) > goal.units:
        raise CalibrationError(algorithm)
    if not fits_own_target(release, goal.epsilon, goal.delta):
        raise CalibrationError(algorithm)
    return Plan(
        algorithm=algorithm,
        spec=spec,
        facts=facts,
        dimension=draft.dimension,
        smoothing=draft.smoothing,
        schedule=draft.schedule,
        lattice=draft.lattice,
        private_clip=draft.private_clip,
        release=release,
        price=Price(units=costs[0], kind=facts.account.kind, order=facts.account.order),
        guarantee=Guarantee(
            epsilon=goal.epsilon,
            delta=goal.delta,
            epsilon_alone=epsilon_alone(release, goal.epsilon, goal.delta),
        ),
        prediction=draft.prediction,
        expected=expected,
        gradients=draft.gradients,
    )
