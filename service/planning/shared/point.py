"""One noisy point: the schedule and the draft of the algorithms that release a computed minimiser."""

from dataclasses import dataclass, field
from math import hypot, log, sqrt
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning.draft import Draft, Moreau, Part, Prediction, Schedule, rounded
from service.planning.lattice import Target, calibrate_point
from service.planning.problem import Problem
from service.planning.shared.minimiser import (
    Averaging,
    Objective,
    Solution,
    Solver,
    U,
    too_coarse,
)

RIDGE_MIN = 1e-9
_SMALL, _LARGE = 1e-12, 1e12  # of radius and row norm: far from where floats end


class BoundedAdversary(Part):
    """Moves every row by up to `reach` in `norm` before its loss is taken. The square of `corner` is
    added under the roots of the dual norm of w, which makes it smooth."""

    kind: Literal["bounded"] = "bounded"
    norm: Literal["l2", "linf"]
    reach: PositiveFloat
    corner: PositiveFloat


class PenalisedAdversary(Part):
    """Moves every row by any v, at a cost of (penalty/2)||v||^2."""

    kind: Literal["penalised"] = "penalised"
    penalty: PositiveFloat


class Level(Part):
    """A tilted loss is the least of records' losses in w and a level: `low` + `scale` v, v within
    [0, `width`]."""

    low: float
    scale: PositiveFloat
    width: PositiveFloat


class MinimiserSchedule(Schedule):
    """Minimise f + (strong_convexity/2)||w||^2 within `radius` of 0 by `solver`, then release the
    point once, on multiples of `lattice_step`. The sensitivity is the sum of its parts, or the ball's
    diameter; `slope_bound` bounds a record's derivative in its margin. f is the mean loss, or its
    tilt, or the mean loss under an adversary."""

    kind: Literal["minimiser"] = "minimiser"
    solver: Solver
    steps: PositiveInt
    step_size: PositiveFloat
    strong_convexity: PositiveFloat
    radius: PositiveFloat
    slope_bound: PositiveFloat
    sensitivity: PositiveFloat
    exact_part: PositiveFloat
    accuracy_part: float
    rounding_part: PositiveFloat
    lattice_step: PositiveFloat
    averaging: Averaging | None = Field(default=None, exclude_if=lambda value: value is None)
    tilt: PositiveFloat | None = None
    level: Level | None = Field(default=None, exclude_if=lambda value: value is None)
    adversary: Annotated[
        BoundedAdversary | PenalisedAdversary | None, Field(discriminator="kind")
    ] = None

    def released_points(self, rows: int) -> tuple[tuple[range, float], ...]:
        return ((range(rows), self.sensitivity),)


def noise_per_sensitivity(goal: Target, dimension: int) -> float:
    """The root of the noise's expected squared norm, over the point's l2 sensitivity."""
    if goal.delta > 0:
        return sqrt(dimension / (2 * goal.rho))
    return dimension / sqrt(goal.rho)  # 2 d times the square of sqrt(d)/epsilon


def require_scale(name: str, W: float, X2: float, ridge: float) -> None:
    """That no quantity of the plan or the run comes near the ends of float64."""
    if 0 < ridge < RIDGE_MIN:
        raise PlanRefused(
            f"{name} takes a ridge of at least {RIDGE_MIN}, or 0, which lets the theorem choose it."
        )
    if W < _SMALL:
        raise PlanRefused(f"{name} needs a set of radius at least {_SMALL}.")
    if not _SMALL <= X2 <= _LARGE:
        raise PlanRefused(
            f"{name} needs rows whose norm bound is within [{_SMALL}, {_LARGE}]; rescale the columns."
        )


def paper_sigma(goal: Target, dimension: int, sensitivity: float) -> float:
    """LR-OP algorithm 1: the noise's standard deviation in one coordinate, at this sensitivity."""
    epsilon = goal.epsilon
    if goal.delta == 0:  # density exp(-epsilon ||z||/S): E ||z||^2 = d (d+1) (S/epsilon)^2
        return sensitivity * sqrt(dimension + 1) / epsilon
    root = sqrt(1 + 16 * goal.delta)
    c = sqrt(max(0.0, log(2) - log(16 * goal.delta) + log(root + 1)))
    return sensitivity * (c + sqrt(c**2 + epsilon)) / (sqrt(2) * epsilon)


@dataclass(frozen=True)
class Posed:
    """An objective whose corners are rounded off as a solver needs it; `more` goes into the schedule.
    The prediction adds up the costs of noise, of the solver and the bias, in units of the loss."""

    objective: Objective
    slope_bound: float
    theorem: str
    paper_sensitivity: float
    bias: float = 0.0  # of smoothing and of a lambda that nobody asked for
    smoothing: Moreau | None = None
    joint: Objective | None = None  # what passes over blocks minimise, if in more variables than w
    more: dict[str, object] = field(default_factory=dict)


def release_point(
    goal: Target, p: Problem, posed: Posed, solver: Solver, solution: Solution
) -> Draft:
    """The draft that runs `solution` and releases its point once."""
    o, d = posed.objective, p.d
    R = o.radius
    if solution.rounding > R / 4:
        raise too_coarse()
    last = 8 * U * (d + 16) * R  # the last projection
    parts = solution.exact + solution.slack + solution.rounding + last
    sensitivity = rounded(min(parts, 2 * R)) * (1 + 2.0**-16)  # six digits err by less than that
    reach = min(R, solution.reach) * (1 + 2.0**-20)
    lattice = calibrate_point(goal, d, sensitivity, reach + solution.rounding)
    step = lattice.step(sensitivity, d)
    noise = sqrt(d * lattice.variance_of(step))
    off = hypot(noise, R * solution.left)
    risk = min(o.lipschitz * off, (o.smoothness + o.strong) / 2 * off**2)
    return Draft(
        dimension=p.d,
        smoothing=posed.smoothing,
        schedule=MinimiserSchedule.model_validate(
            {
                "solver": solver,
                "steps": solution.steps,
                "step_size": solution.step_size,
                "strong_convexity": o.strong,
                "radius": R,
                "slope_bound": posed.slope_bound,
                "sensitivity": sensitivity,
                "exact_part": rounded(solution.exact),
                "accuracy_part": rounded(solution.slack),
                "rounding_part": rounded(solution.rounding + last),
                "lattice_step": step,
                "averaging": solution.averaging,
                **posed.more,
            }
        ),
        lattice=lattice,
        release=lattice.release(),
        prediction=Prediction(
            theorem=posed.theorem,
            excess_risk=rounded(risk + solution.risk + posed.bias),
            noise_squared=rounded(noise**2),
            paper_noise=rounded(paper_sigma(goal, d, posed.paper_sensitivity)),
            our_noise=rounded(sqrt(lattice.variance_of(step))),
        ),
        gradients=solution.steps * p.n,
    )
