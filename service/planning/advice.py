"""What a quote says of a Plan whose noise is likely to leave nothing of what rows have to tell.

Said from public facts alone, and no part of the Plan. What models and the best constant, released by
itself, were seen to lose are lines in how loud noise is (expected.py); beyond the noise at which they
meet there is advice, and the rows and the epsilon that it names are those at which they meet, rounded
up. So it ends where `auto` would no longer take the constant. Of a loss without such lines NOISY is a
rough threshold."""

from functools import cache
from math import ceil, exp, log, log10

from service.planning import expected
from service.planning.catalog import CATALOG
from service.planning.conversion import EPSILON_MAX
from service.planning.expected import Curve, is_pure, noise_of, pieces
from service.planning.plan import Plan
from service.planning.spec import Facts, JobSpec

NOISY = log(0.2)  # of d/(n sqrt(2 rho)), or with delta = 0 of d^1.5/(n epsilon)
QUIET, LOUD = log(1e-6), log(1e6)
_COARSE, _STEPS = 0.1, 60  # of a search, and of bisections


def advice(plan: Plan) -> str | None:
    """What would help, if the model will probably be no better than the best constant."""
    spec, facts = plan.spec, plan.facts
    if spec.of is not None or spec.loss.located or spec.summaries:
        return None
    enough = break_even(spec, facts)
    excess = noise_of(spec, facts) - enough
    if excess <= 0:
        return None
    more = f"about {_up(exp(excess) * facts.rows):,.0f} rows"
    if (epsilon := _up(_epsilon(spec, facts, enough))) <= EPSILON_MAX:
        more += f", or epsilon {epsilon:g},"
    return (
        f"At this epsilon the noise will probably leave a model no better than a constant"
        f"{_compared(spec, facts)}; {more} would be enough to do better, and fewer columns would need "
        f"less.{_narrow(facts)}"
    )


def lines(spec: JobSpec, facts: Facts, kind: str) -> tuple[Curve | None, tuple[Curve, ...]]:
    """Of this loss that of the best constant, if there is one, and those of models."""
    known = expected.curves(is_pure(spec, facts)).items()
    own = {name: line for (name, loss), line in known if loss == kind}
    constant = [line for name, line in own.items() if CATALOG[name].constant]
    models = tuple(line for name, line in own.items() if not CATALOG[name].constant)
    return next(iter(constant), None), models


def break_even(spec: JobSpec, facts: Facts) -> float:
    """The noise, its logarithm, beyond which no model is expected to be better than the constant: by
    the lines of the loss that stands for its family, for with some losses the constant is often the
    best model there is, and a median says little."""
    return _meet(*lines(spec, facts, spec.loss.family))


@cache
def _meet(constant: Curve | None, models: tuple[Curve, ...]) -> float:
    """Where it first happens that no model is better."""

    def better(noise: float) -> bool:
        at = pieces(noise)
        return constant is not None and any(line.at(at) < constant.at(at) for line in models)

    if not better(QUIET):
        return NOISY
    high = QUIET + _COARSE
    while high < LOUD and better(high):
        high += _COARSE
    low = high - _COARSE
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if better(middle) else (low, middle)
    return low


def _epsilon(spec: JobSpec, facts: Facts, enough: float) -> float:
    """The smallest at which noise is no louder than `enough`."""
    low, high = log(spec.privacy.epsilon), log(1e12)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        privacy = spec.privacy.model_copy(update={"epsilon": exp(middle)})
        loud = noise_of(spec.model_copy(update={"privacy": privacy}), facts) > enough
        low, high = (middle, high) if loud else (low, middle)
    return exp(high)


def _compared(spec: JobSpec, facts: Facts) -> str:
    constant, models = lines(spec, facts, spec.loss.kind)
    if constant is None or not models:
        return ""
    at, most = pieces(noise_of(spec, facts)), spec.loss.idle(facts.classes)
    model, best = (exp(each) for each in (min(line.at(at) for line in models), constant.at(at)))
    return (
        f": of a model an excess risk of about {model:.2g} is to be expected, of the best constant, "
        f"released by itself, {best:.2g}, and its loss is {most:.2g} at most"
    )


def _narrow(facts: Facts) -> str:
    if facts.label != "numeric":
        return ""
    return " Where labels fill a small part of their declared range it takes more: declare less."


def _up(value: float) -> float:
    """Two digits, rounded up."""
    unit = 10.0 ** (ceil(log10(value)) - 2)
    return ceil(value / unit) * unit
