"""The minimiser of an objective with a random linear term."""

from fractions import Fraction
from typing import Literal

from pydantic import PositiveInt

from service.planning.divergences import mu_squared_of_pure, randomised_response
from service.planning.minima import gdp_squared, log_determinant, renyi
from service.planning.releases import metering
from service.planning.releases.base import ReleaseBase
from service.planning.releases.metering import Meter


class PerturbedMinimum(ReleaseBase):
    """The exact minimiser of sum_i l(<w, x_i>, y_i) + (L/2) ||w||^2 + <b, w> over all of R^d or a
    convex set; b has independent entries of scale `scale`, normal or Laplace.

    `sensitivity` bounds the l2 norm (l1, for Laplace noise) of the difference of two records'
    gradients in b's units, each record's being at most half of it; curvature/strong bounds the
    curvature of one record's loss in w over L. `sides` is 1 where, given its label, a record's
    slope has one sign.

    For Laplace noise the density of b changes by a factor of at most e^(sensitivity/scale), and the
    determinant by 1 + curvature/strong (docs/proofs/perturbed-minimum.md).
    """

    kind: Literal["perturbed_minimum"] = "perturbed_minimum"
    noise: Literal["gaussian", "laplace"]
    sensitivity: PositiveInt
    scale: PositiveInt
    curvature: PositiveInt
    strong: PositiveInt
    sides: Literal[1, 2]

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.sensitivity, self.scale)

    @property
    def bend(self) -> Fraction:
        return Fraction(self.curvature, self.strong)

    def renyi(self, order: int) -> Fraction:
        pure = self.pure()
        if pure is not None:
            return randomised_response(pure, order)
        return renyi(self.ratio, self.bend, self.sides, order)

    def pure(self) -> Fraction | None:
        return None if self.noise == "gaussian" else self.ratio + log_determinant(self.bend)

    def mu_squared(self) -> Fraction:
        pure = self.pure()
        if pure is not None:
            return mu_squared_of_pure(pure)
        return gdp_squared(self.ratio, self.bend, self.sides)

    def meter(self) -> Meter:
        term = metering.LinearTerm(self.curvature, self.strong, self.sides)
        return metering.Single(self.noise, self.sensitivity, self.scale, how=term)
