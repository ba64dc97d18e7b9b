"""One spec, every algorithm: compare their Plans, choose one in words, find the epsilon for a noise.

All of it is planning: pure, from the spec and public facts, no data and no charge.
"""

from dataclasses import dataclass
from typing import Any

from service.errors import PlanRefused
from service.planning.advice import break_even
from service.planning.algorithm import LAST, Algorithm
from service.planning.catalog import CATALOG, plan
from service.planning.conversion import EPSILON_MAX
from service.planning.expected import noise_of
from service.planning.plan import Plan
from service.planning.spec import Facts, JobSpec

AUTO = "auto"


@dataclass(frozen=True)
class Candidate:
    """What one algorithm makes of a spec: a Plan, or the words with which it declines."""

    algorithm: Algorithm
    plan: Plan | None
    refusal: str | None

    def view(self) -> dict[str, Any]:
        made = self.plan
        return {
            "algorithm": self.algorithm.name,
            "title": self.algorithm.title,
            "refusal": self.refusal,
            "excess_risk": None if made is None else made.prediction.excess_risk,
            "expected": None
            if made is None or made.expected is None
            else made.expected.model_dump(),
            "noise": None if made is None else made.prediction.our_noise,
            "gradients": None if made is None else made.gradients,
            "steps": None if made is None else made.schedule.steps,
            "price_units": None if made is None else made.price.units,
            "epsilon_alone": None if made is None else made.guarantee.epsilon_alone,
        }


@dataclass(frozen=True)
class Choice:
    """Why `auto` took an algorithm, and what else there was."""

    algorithm: str
    reason: str
    runners_up: list[dict[str, Any]]

    def view(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "reason": self.reason,
            "runners_up": self.runners_up,
        }


def plan_named(spec: JobSpec, facts: Facts, gradients_max: int) -> Plan:
    """The Plan of the algorithm that the spec names, within what this service computes."""
    planned = plan(spec, facts)
    if planned.gradients > gradients_max:
        raise PlanRefused(
            f"the plan evaluates {planned.gradients} per-record gradients and this service allows "
            f"{gradients_max}; set parameters.steps lower."
        )
    return planned


def compare(spec: JobSpec, facts: Facts, gradients_max: int) -> list[Candidate]:
    """Every algorithm of the catalog on this spec: the best first, those that decline last. One that
    answers another question is only run when it is named; so is one without a theorem for such a job,
    of a network say, for it cannot be compared."""
    candidates = []
    for algorithm in CATALOG.values():
        if not algorithm.has_theorem(spec) or algorithm.answers_another(spec):
            continue
        named = spec.model_copy(update={"algorithm": algorithm.name})
        try:
            made = plan_named(named, facts, gradients_max)
            candidates.append(Candidate(algorithm, made, None))
        except PlanRefused as refusal:
            candidates.append(Candidate(algorithm, None, refusal.detail))
    return sorted(candidates, key=_rank)


def choose(candidates: list[Candidate]) -> tuple[Plan, Choice]:
    """The smallest expected error, where one is known, and no model where noise is too loud; else by
    the algorithms' places, then the smallest bound on it; of equals, the fewest gradients. The Plan
    names what was taken, so it says all by itself what will run."""
    best, others = candidates[0], candidates[1:]
    if best.plan is None:
        raise PlanRefused(
            "no algorithm can plan this. "
            + " ".join(f"{c.algorithm.name}: {c.refusal}" for c in candidates),
            comparison=[c.view() for c in candidates],
        )
    choice = Choice(best.algorithm.name, _reason(candidates), [c.view() for c in others])
    return best.plan, choice


def epsilon_for_noise(spec: JobSpec, facts: Facts, gradients_max: int, noise: float) -> Plan:
    """The Plan at the smallest epsilon, to six decimals, whose noise in one mean is at most `noise`.

    Bisection, so at most 28 plans. Where the algorithm chooses steps or a solver the noise may rise
    with epsilon; then the answer still keeps to `noise`, but a smaller epsilon might too.
    """

    def at(millionths: int) -> Plan:
        privacy = spec.privacy.model_copy(update={"epsilon": millionths / 10**6})
        return plan_named(spec.model_copy(update={"privacy": privacy}), facts, gradients_max)

    low, high = 1, int(EPSILON_MAX * 10**6)
    found = at(high)
    if found.prediction.our_noise > noise:
        raise PlanRefused(
            f"even epsilon {EPSILON_MAX:g} leaves a noise of {found.prediction.our_noise:g}; ask for "
            "that or more, or set parameters.steps lower."
        )
    while low < high:
        middle = (low + high) // 2
        try:
            made = at(middle)
            quiet = made.prediction.our_noise <= noise
        except PlanRefused:  # too small an epsilon for any Plan
            quiet = False
        if quiet:
            high, found = middle, made
        else:
            low = middle + 1
    return found


def _rank(candidate: Candidate) -> tuple[bool, bool, bool, int, float, int, str]:
    made, name = candidate.plan, candidate.algorithm.name
    if made is None:
        return True, True, True, LAST, 0.0, 0, name
    unknown, misplaced = made.expected is None, _misplaced(candidate)
    return False, unknown, misplaced, _place(candidate), _error(made), made.gradients, name


def _misplaced(candidate: Candidate) -> bool:
    """Beyond the noise at which the best constant is as good as any model no model is taken: there
    what is expected of models rests on few problems, and on where their labels happen to lie. And
    below it no constant is."""
    made = candidate.plan
    if made is None or made.expected is None:
        return False
    loud = noise_of(made.spec, made.facts) > break_even(made.spec, made.facts)
    return loud != candidate.algorithm.constant


def _place(candidate: Candidate) -> int:
    """Bounds are those of different things, and far from what is achieved: where no error is expected
    of any, what was seen to do well on jobs like it comes before them."""
    made = candidate.plan
    if made is None or made.expected is not None:
        return 0
    return candidate.algorithm.places[made.guarantee.delta == 0]


def _error(made: Plan) -> float:
    return made.prediction.excess_risk if made.expected is None else made.expected.median


def _reason(candidates: list[Candidate]) -> str:
    able = [c.plan for c in candidates if c.plan is not None]
    best = able[0]
    if len(able) == 1:
        return (
            f"{best.algorithm} is the only one of {len(candidates)} algorithms that can plan this."
        )
    second, error = able[1], _error(best)
    if best.expected is None and _place(candidates[0]) < LAST:
        return (
            f"Of {len(able)} algorithms that can plan this, nothing but bounds is known; "
            f"{best.algorithm} has done well on jobs of its kind."
        )
    if best.expected is None:
        told = f"predicts the smallest excess risk, {error:g}"
    elif candidates[0].algorithm.constant:
        told = (
            f"is expected to have an excess risk of {error:.2g} (nine in ten times between "
            f"{best.expected.low:.2g} and {best.expected.high:.2g}), and with so much noise no model "
            "is expected to do better"
        )
    else:
        told = (
            f"is expected to have the smallest excess risk, {error:.2g} (nine in ten times between "
            f"{best.expected.low:.2g} and {best.expected.high:.2g})"
        )
    first = f"Of {len(able)} algorithms that can plan this, {best.algorithm} {told}"
    return f"{first}." if candidates[0].algorithm.constant else first + _beside(best, second)


def _beside(best: Plan, second: Plan) -> str:
    if best.expected is not None and second.expected is None:
        return "; of the others nothing but bounds is known."
    error, other = _error(best), _error(second)
    if other > error:
        return f"; next is {second.algorithm} with {other:.6g}."
    if best.expected is not None and other < error:
        return (
            f" of a model. {second.algorithm} often loses no more, {other:.2g}, but far more where "
            "columns have much to tell."
        )
    return (
        f", as does {second.algorithm}; it evaluates {best.gradients} gradients and the other "
        f"{second.gradients}."
    )
