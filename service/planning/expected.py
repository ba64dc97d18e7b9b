"""What error to expect of a job that sets nothing: not a theorem, but what such jobs were seen to do.

`make lab ARGS=--calibrate` runs every algorithm at its defaults on the problems of one part of the
defaults lab and fits, for each of them and each loss, the logarithm of the excess population risk by
a line with two bends in the logarithm of one number that is public: how loud noise is for so many
weights, rows and so much privacy. What labels depend on is not public, and most of the width of the
band, which holds nine in ten runs, is that. For delta = 0 there are lines of their own. The lines are
in expected.json; with new ones the same facts may plan differently, so they are a new planner version.

A job that chooses its own steps, set or ridge is another one than was run: of it nothing is expected,
and the theorem's bound is all there is.
"""

import json
from dataclasses import dataclass
from functools import cache
from math import exp, log, sqrt
from pathlib import Path

from pydantic import Field

from service.planning.default_set import with_set
from service.planning.draft import Part, rounded
from service.planning.needs import Needs
from service.planning.spec import Facts, JobSpec

KNOTS = (-3.5, -1.2)  # where a line may bend: noise of 0.03 and of 0.3


class Expected(Part):
    """Of the population risk, above that of the best weights without privacy."""

    median: float = Field(description="As many jobs like this one did better as did worse.")
    low: float = Field(description="One in twenty did better than this.")
    high: float = Field(description="One in twenty did worse.")
    constant: float = Field(description="The risk of the best constant is at most this.")


@dataclass(frozen=True)
class Curve:
    """log(excess risk) = intercept + <slopes, features>; low and high are added for the band."""

    intercept: float
    slopes: tuple[float, ...]
    low: float
    high: float

    def at(self, features: tuple[float, ...]) -> float:
        return self.intercept + sum(a * b for a, b in zip(self.slopes, features, strict=True))


def pieces(noise: float) -> tuple[float, ...]:
    """Of a line with bends."""
    first, second = KNOTS
    return (
        min(noise, first),
        min(max(noise - first, 0.0), second - first),
        max(noise - second, 0.0),
    )


def rho(epsilon: float, delta: float) -> float:
    """The zero-concentrated privacy that implies (epsilon, delta), by the simplest conversion."""
    spent = log(1 / delta)
    return (sqrt(spent + epsilon) - sqrt(spent)) ** 2


def features_of(needs: Needs, spec: JobSpec, facts: Facts) -> tuple[float, ...] | None:
    """None where nothing like it was run."""
    bounded = facts.storage == "fixed" and facts.label != "unbounded"
    known = bounded and _at_defaults(needs, spec, facts)
    return pieces(noise_of(spec, facts)) if known else None


def noise_of(spec: JobSpec, facts: Facts) -> float:
    """The logarithm of d/(n sqrt(2 rho)). Of Laplace's noise, which is sqrt(d) times as long, of
    d^1.5/(n epsilon)."""
    weights, epsilon = spec.loss.weights(facts.columns, facts.classes), spec.privacy.epsilon
    if is_pure(spec, facts):
        return log(weights**1.5 / facts.rows / epsilon)
    return log(weights / facts.rows / sqrt(2 * rho(epsilon, delta_of(spec, facts))))


def delta_of(spec: JobSpec, facts: Facts) -> float:
    return facts.account.delta if spec.privacy.delta is None else spec.privacy.delta


def is_pure(spec: JobSpec, facts: Facts) -> bool:
    return delta_of(spec, facts) == 0


def expected(algorithm: str, needs: Needs, spec: JobSpec, facts: Facts) -> Expected | None:
    """Of a job whose set has its name, as in a Plan."""
    curve = curves(is_pure(spec, facts)).get((algorithm, spec.loss.kind))
    found = features_of(needs, spec, facts)
    if curve is None or found is None:
        return None
    middle = curve.at(found)
    return Expected(
        median=rounded(exp(middle)),
        low=rounded(exp(middle + curve.low)),
        high=rounded(exp(middle + curve.high)),
        constant=rounded(spec.loss.idle(facts.classes)),
    )


@cache
def curves(pure: bool = False) -> dict[tuple[str, str], Curve]:
    stored = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {
        (algorithm, loss): Curve(**{**curve, "slopes": tuple(curve["slopes"])})
        for algorithm, losses in stored["pure" if pure else "curves"].items()
        for loss, curve in losses.items()
    }


def _at_defaults(needs: Needs, spec: JobSpec, facts: Facts) -> bool:
    own, fields = ("ridge", "regulariser", "of", "model"), JobSpec.model_fields
    if spec.parameters or any(getattr(spec, name) != fields[name].default for name in own):
        return False
    unnamed = spec.model_copy(update={"set": fields["set"].default})
    return spec.set == with_set(needs, unnamed, facts).set
