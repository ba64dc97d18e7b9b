"""How far weights are expected to be from 0: what steps go by where no set says it.

A loss knows how large margins are of a model that fits (`usual_margin`: labels are within [-1, 1],
log-odds within about 3). Encoded rows are divided by the root of their number of blocks, so weights
of REACH times that scale over the largest entry are as large whether columns are many or few: each
feature, as it was in [0, 1], may by itself move a margin by several times the scale.

*Do no harm.* Steps that may go a distance D leave an error of about D times the length of the noise
in the mean gradient (shared/acceleration.py). So D is never so large that this would exceed a share of
what there is to gain, HARM of the clip times the scale: where rows are few and epsilon is small, the
model stays near the constant that an intercept makes (`Metric`).

REACH and HARM were chosen by trying a few of each; benchmarks/defaults.py takes others (--reach,
--harm). A larger HARM gains where labels spread over their bounds, and harms where they do not.
Nothing here is about privacy: all of it is chosen before any row is read.
"""

from dataclasses import dataclass
from math import isfinite, sqrt

from service.planning.draft import rounded
from service.planning.lattice import Target
from service.planning.problem import Problem
from service.planning.spec import Facts, JobSpec

REACH = 4.0
HARM = 0.03
_NEAR, _FAR = 1e-12, 1e12


def row_scale(facts: Facts) -> float:
    """The norm of a typical row: without bounds, of entries about 1."""
    return facts.l2 or sqrt(facts.columns)


def within(spec: JobSpec, facts: Facts, goal: Target, p: Problem) -> float:
    """How far steps go: to the end of the set, or as is expected where it has none."""
    return p.W if isfinite(p.W) else expected_distance(spec, facts, goal, p.d)


def expected_distance(spec: JobSpec, facts: Facts, goal: Target, d: int) -> float:
    """Of the best weights from 0: what rows and noise allow."""
    if spec.loss.located:
        return row_scale(facts)
    quiet = HARM / (noise_over_clip(facts, goal, d) * row_scale(facts))
    return min(max(spec.loss.usual_margin * min(REACH / (facts.linf or 1.0), quiet), _NEAR), _FAR)


def noise_over_clip(facts: Facts, goal: Target, d: int) -> float:
    """The length of the noise in one mean gradient over all rows, if it were all that the job
    releases, over the bound on a record's gradient."""
    if goal.delta > 0:
        return 2 * sqrt(d / (2 * goal.rho)) / facts.rows
    wider = sqrt(d) if facts.storage == "fixed" else 1.0  # a bound on the l1 norm of a row
    return 2 * wider * sqrt(2 * d) / (sqrt(2 * goal.rho) * facts.rows)


@dataclass(frozen=True)
class Metric:
    """In which steps are made. Over all of R^d an intercept is longer in it by `factor` than as it is
    stored: as long as the rest of the row. So a model can be constant without the other weights'
    help, which noise would disturb; and the noise of all weights together at most doubles. On a set
    steps are as its projection is, in l2."""

    factor: float
    count: int  # intercepts
    steeper: float  # by how much smoother a loss is in the margin than in the weights, over X2^2

    @classmethod
    def of(cls, spec: JobSpec, facts: Facts, p: Problem, *, longer: bool = True) -> "Metric":
        if not p.rowwise:
            return cls(1.0, 0, 1.0)
        size, entry = row_scale(facts), facts.linf or 1.0
        factor = max(1.0, rounded(size / entry))
        if isfinite(p.W) or spec.model.kind != "linear" or not longer:
            factor = 1.0
        squared = size**2 + (factor**2 - 1) * entry**2
        return cls(factor, p.d // facts.columns, squared / p.X2**2)

    def wide(self, d: int) -> float:
        """The squared length of d weights' noise, over that of one."""
        return d + self.count * (self.factor**2 - 1)

    @property
    def stored(self) -> float | None:
        """For a schedule."""
        return None if self.factor == 1 else self.factor
