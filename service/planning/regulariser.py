"""What every regulariser tells of itself. Its operations act on released weights: post-processing.

prox_(eta h)(z) = argmin over w of eta h(w) + ||w - z||^2/2. Intercepts, the first of every `columns`
weights, are left alone. What is smooth of a regulariser goes with the gradient; h is the rest of it. A
projection that follows makes it the operator of h on a set, for the sets that the plan admits.
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

    def prox(self, z: Floats, eta: float, columns: int) -> Floats:
        w = z.reshape(-1, columns).copy()
        w[:, 1:] = self.shrink(w[:, 1:], eta)
        return w.ravel()

    def shrink(self, slopes: Floats, eta: float) -> Floats:
        """The proximal operator of weights without their intercepts [vectors, columns - 1]."""
        raise NotImplementedError

    @property
    def square(self) -> float:
        """The factor of ||w||^2/2 in it."""
        return 0.0

    def smooth_gradient(self, w: Floats, columns: int) -> Floats:
        """The gradient of what has one."""
        slopes = w.reshape(-1, columns).copy()
        slopes[:, 0] = 0.0
        return slopes.ravel() * self.square


def soft_threshold(z: Floats, by: float) -> Floats:
    return np.sign(z) * np.maximum(np.abs(z) - by, 0.0)
