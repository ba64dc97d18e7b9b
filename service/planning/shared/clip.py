"""The bound on one record's gradient that every noisy sum rests on."""

from math import inf, isfinite

from service.errors import PlanRefused
from service.planning.problem import Problem
from service.planning.spec import Facts, StepsAndClip


def clip_bound(parameters: StepsAndClip, p: Problem, facts: Facts) -> float:
    """The bound that kernels enforce: on the derivative for rows of bounded norm (which leaves a
    convex loss), on the gradient's norm for rows without one."""
    if not p.rowwise:
        return min(p.lipschitz, parameters.clip or inf)
    bound = parameters.clip if facts.l2 is None else (parameters.clip or inf) / facts.l2
    if facts.l2 is None and bound is None:
        raise PlanRefused(
            "this dataset has unbounded columns, so a record's gradient has no bound of its "
            "own; set parameters.clip to the gradient norm at which to clip."
        )
    if facts.l2 is not None:
        bound = min(p.lipschitz, bound or inf)
    if bound is None or not isfinite(bound):
        raise PlanRefused(
            "this loss's gradient has no bound of its own over all of R^d, or with a label that has "
            "none; set parameters.clip to the gradient norm at which to clip, or use the set l2_ball "
            "and a label with bounds."
        )
    return bound
