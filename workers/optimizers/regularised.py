"""A job's regulariser as a run meets it. It acts on what was released:
service/planning/regulariser.py."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from service.planning.spec import ReluNetwork

Floats = NDArray[np.float64]
Gradient = Callable[[Floats], Floats]


class Regularised:
    def __init__(self, plan: Plan) -> None:
        model = plan.spec.model
        self._h, self._columns = plan.spec.regulariser, plan.facts.columns
        self._vectors = model.width if isinstance(model, ReluNetwork) else None

    def gradient(self, of_rows: Gradient) -> Gradient:
        """Of the rows' loss and of what is smooth of the regulariser."""
        if self._h.square == 0:
            return of_rows
        return lambda w: of_rows(w) + self._h.smooth_gradient(w, self._columns, self._vectors)

    def prox(self, z: Floats, eta: float) -> Floats:
        """The operator of the rest of it."""
        return self._h.prox(z, eta, self._columns, self._vectors)
