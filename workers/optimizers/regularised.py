"""A job's regulariser as a run meets it. It acts on what was released:
service/planning/regulariser.py."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from service.planning.regulariser import BaseRegulariser
from service.planning.spec import ReluNetwork

Floats = NDArray[np.float64]
Gradient = Callable[[Floats], Floats]


class Regularised(NamedTuple):
    h: BaseRegulariser
    columns: int
    vectors: int | None  # of that many weights; all of them, but for a network

    @classmethod
    def of(cls, plan: Plan) -> "Regularised":
        model = plan.spec.model
        width = model.width if isinstance(model, ReluNetwork) else None
        return cls(plan.spec.regulariser, plan.facts.columns, width)

    def gradient(self, of_rows: Gradient) -> Gradient:
        """Of the rows' loss and of what is smooth of the regulariser."""
        return lambda w: self.with_smooth(of_rows(w), w)

    def with_smooth(self, of_rows: Floats, w: Floats) -> Floats:
        """The same of one gradient, at w."""
        if self.h.square == 0:
            return of_rows
        return of_rows + self.h.smooth_gradient(w, self.columns, self.vectors)

    def prox(self, z: Floats, eta: float) -> Floats:
        """The operator of the rest of it."""
        return self.h.prox(z, eta, self.columns, self.vectors)
