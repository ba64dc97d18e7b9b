"""The bound on one record's gradient that every noisy sum rests on.

Where the loss and the rows bound a gradient, that bound is the clip, and nothing is clipped. It is of
no use for the squared loss: with labels within [-1, 1] a residual may be as large as the set allows,
and is typically a small part of the label's interval. There slopes are clipped at `usual_slope`, and
the loss is a Huber loss. Where nothing bounds a gradient, the clip is chosen from the data for a
little of the budget: heavy_tails.py has the choice, its sensitivity and its price."""

from dataclasses import dataclass, replace
from math import inf, isfinite

from service.errors import PlanRefused
from service.planning.draft import PrivateClip
from service.planning.lattice import Target, choice_scale
from service.planning.problem import Problem
from service.planning.releases import Release, Sequence
from service.planning.shared.reach import noise_over_clip, row_scale
from service.planning.spec import ClipOrPrivate, Facts, StepsAndClip

_OFF = 20  # scales by which a choice practically never misses its rank


def clip_bound(parameters: StepsAndClip, p: Problem, facts: Facts) -> float:
    """The bound that kernels enforce: on the derivative for rows of bounded norm (which leaves a
    convex loss), on the gradient's norm for rows without one."""
    bound = known_bound(parameters.clip, p, facts)
    if bound is None:
        raise PlanRefused(
            "a record's gradient has no bound of its own here (unbounded columns or labels, or all "
            "of R^d); set parameters.clip to the gradient norm at which to clip."
        )
    return bound


def known_bound(asked: float | None, p: Problem, facts: Facts) -> float | None:
    """That bound, from what was asked or from the loss; None if neither has one."""
    if not p.rowwise:
        return min(p.lipschitz, asked or inf)
    if facts.l2 is None:
        return asked
    bound = min(p.lipschitz, p.usual_slope if asked is None else asked / facts.l2)
    return bound if isfinite(bound) else None


@dataclass(frozen=True)
class Clipping:
    """How gradients are clipped, and what is left to pay for their sums."""

    C: float  # in gradient units; 1 where it is chosen
    bound: float  # as `calibrate` takes it
    goal: Target
    choice: PrivateClip | None

    def paid(self, sums: Release) -> Release:
        """The whole job: the choice of the clip, if any, then the sums."""
        if self.choice is None:
            return sums
        rest = sums.parts if isinstance(sums, Sequence) else (sums,)
        return Sequence(parts=(self.choice.release(), *rest))

    def describe(self, theorem: str) -> str:
        return theorem if self.choice is None else f"{theorem}, for a chosen clip of 1"


def clipping(parameters: ClipOrPrivate, p: Problem, facts: Facts, goal: Target) -> Clipping:
    """By the clip that is asked for, by the loss's own bound, or by one that is chosen."""
    asked = parameters.clip
    bound = None if asked == "private" else known_bound(asked, p, facts)
    if bound is not None:
        return Clipping(bound * (p.X2 if p.rowwise else 1.0), bound, goal, None)
    if not p.rowwise:
        raise no_clip_to_choose()
    return chosen_clip(parameters, facts, goal, 1 / noise_over_clip(facts, goal, p.d))


def no_clip_to_choose() -> PlanRefused:
    return PlanRefused(
        "every gradient of geometric_median has length 1, so there is no clip to choose; "
        "leave parameters.clip out."
    )


def chosen_clip(parameters: ClipOrPrivate, facts: Facts, goal: Target, z: float) -> Clipping:
    """z is how many rows would drown the noise of a mean of them all: heavy_tails.py."""
    n = facts.rows
    share = replace(goal, units=int(goal.units * parameters.clip_share))
    scale = choice_scale(share, PrivateClip.SENSITIVITY, 1) if share.units > 0 else 0
    least = min(0.5, _OFF * scale / n)
    quantile = parameters.clip_quantile or 1 - min(0.5, max(1 / max(z, 1.0), least))
    if quantile > 1 - least:
        raise PlanRefused(
            "so near the longest gradient a private clip would be too long by any factor; set "
            f"parameters.clip_quantile to at most {int(1e6 * (1 - least)) / 1e6} here, or ask a "
            "larger epsilon."
        )
    if scale > 0:
        choice = PrivateClip(rank=min(n, round(quantile * n)), scale=scale)
        left = replace(goal, units=goal.units - goal.cost(choice.release()))
        if left.units > 0:
            return Clipping(1.0, 1.0 if facts.l2 is None else 1 / facts.l2, left, choice)
    raise PlanRefused(
        "privacy.epsilon is too small to pay for a private clip and for sums; ask a larger epsilon, "
        "or set parameters.clip."
    )


def typical_length(of: Clipping, facts: Facts) -> float:
    """Of a clip, for steps: what a chosen one is expected to be, in rows and slopes of usual size."""
    return of.C if of.choice is None else row_scale(facts)
