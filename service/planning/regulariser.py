"""What every regulariser tells of itself. Its operations act on released weights: post-processing.

prox_(eta h)(z) = argmin over w of eta h(w) + ||w - z||^2/2. Intercepts, the first of every `columns`
weights, are left alone. What is smooth of a regulariser goes with the gradient; h is the rest of it.
The outer weights of a network are penalised one by one (else it could hide its hidden weights' length
in them), its offset is left alone.

*On a set.* The operator of h over a set C is the w with z - w in eta dh(w) + N_C(w). Let p = prox(z)
and w = P_C(p), so that z - p is in eta dh(p) and p - w in N_C(w): w is it where dh(p) is within dh(w).

- l1, C separable: one convex function of one weight each, whose minimiser over an interval is the free
  one, clipped.
- l1, C symmetric (in it any entry may change its sign, and so become 0): w has p's signs, and is 0
  where p is, so a subgradient at p is one at w.
- a norm of groups, C a ball about 0 or all of R^d: w is p times a number within [0, 1].

For other pairs the projection of p is another point, and they are refused (`suits`).
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from service.planning.feasible import BaseSet
from service.planning.kinds import Kind
from service.planning.vectors import Floats

Strength = Annotated[float, Field(ge=0, le=1e9)]


class BaseRegulariser(Kind):
    """A term of the objective besides `ridge`."""

    @classmethod
    def suits(cls, feasible: type[BaseSet]) -> bool:
        """Whether its operator and then the projection are the operator on that set."""
        raise NotImplementedError

    def require_columns(self, columns: int) -> None:
        """Refuse what does not fit so many weights, the intercept's among them."""

    def prox(self, z: Floats, eta: float, columns: int, vectors: int | None = None) -> Floats:
        """Of `vectors` vectors of weights, an intercept first (as many as z is long), and what a
        network has behind its hidden ones."""
        inner = columns * (z.size // columns if vectors is None else vectors)
        w = z.copy()
        hidden = w[:inner].reshape(-1, columns)
        hidden[:, 1:] = self.shrink(hidden[:, 1:], eta)
        w[inner:-1] = self.shrink_each(w[inner:-1], eta)
        return w

    def shrink(self, slopes: Floats, eta: float) -> Floats:
        """The proximal operator of weights without their intercepts [vectors, columns - 1]."""
        raise NotImplementedError

    def shrink_each(self, weights: Floats, eta: float) -> Floats:
        """That of weights that belong to no feature."""
        return self.shrink(weights, eta)

    def steepest(self, d: int) -> float:
        """A bound on the length of h's subgradients, of d weights."""
        raise NotImplementedError

    @property
    def square(self) -> float:
        """The factor of ||w||^2/2 in it."""
        return 0.0

    def smooth_gradient(self, w: Floats, columns: int, vectors: int | None = None) -> Floats:
        """The gradient of what has one."""
        inner = columns * (w.size // columns if vectors is None else vectors)
        slopes = w.copy()
        slopes[:inner:columns] = 0.0
        slopes[max(inner, w.size - 1) :] = 0.0
        return slopes * self.square


def soft_threshold(z: Floats, by: float) -> Floats:
    return np.sign(z) * np.maximum(np.abs(z) - by, 0.0)
