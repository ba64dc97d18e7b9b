"""What a quote says of a Plan whose noise is likely to leave nothing of what rows have to tell.

Said from public facts alone, and no part of the Plan. The rule is reach.py's: the noise of one mean
gradient, against the margins of a model that is better than a constant. NOISY is a rough threshold: on
the part of the defaults lab that rules are fitted on, jobs beyond it lost 85 % or more of what a model
could gain over the constant, and jobs below it did less badly but for a few."""

from math import ceil, log10

from service.planning.conversion import EPSILON_MAX
from service.planning.lattice import target
from service.planning.plan import Plan
from service.planning.shared.reach import noise_over_clip, row_scale

NOISY = 0.25  # of the noise over the clip, for features as they were within [0, 1]


def advice(plan: Plan) -> str | None:
    """What would help, if the model will probably be no better than the best constant."""
    spec, facts = plan.spec, plan.facts
    if spec.of is not None or spec.loss.located or spec.summaries:
        return None
    noise = noise_over_clip(facts, target(spec, facts), plan.dimension)
    excess = noise * row_scale(facts) / ((facts.linf or 1.0) * NOISY)
    if excess <= 1:
        return None
    rows, epsilon = _up(excess * facts.rows), _up(excess * spec.privacy.epsilon)
    more = f"about {rows:,.0f} rows"
    if epsilon <= EPSILON_MAX:
        more += f", or epsilon {epsilon:g},"
    return (
        "At this epsilon the noise will probably leave a model no better than a constant; "
        f"{more} would be enough to do better, and fewer columns would need less."
    )


def _up(value: float) -> float:
    """Two digits, rounded up."""
    unit = 10.0 ** (ceil(log10(value)) - 2)
    return ceil(value / unit) * unit
