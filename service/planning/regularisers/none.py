"""The default."""

from typing import Literal

from service.planning.feasible import BaseSet
from service.planning.regulariser import BaseRegulariser
from service.planning.vectors import Floats


class NoRegulariser(BaseRegulariser):
    """Nothing besides `ridge`."""

    kind: Literal["none"] = "none"

    @classmethod
    def suits(cls, feasible: type[BaseSet]) -> bool:
        return feasible.has_projection

    def steepest(self, d: int) -> float:
        return 0.0

    def prox(self, z: Floats, eta: float, columns: int, vectors: int | None = None) -> Floats:
        return z
