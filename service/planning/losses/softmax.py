"""One margin per class. As for a loss of one margin a gradient is an outer product: q, the chances of
the classes less the label's unit vector, with the row. ||q||_2 <= sqrt(2), ||q||_1 <= 2, and the
Hessian of log-sum-exp is at most 1/2."""

from math import log, sqrt
from typing import ClassVar, Literal

from service.planning.loss import BaseLoss, Constants


class Softmax(BaseLoss):
    """Multinomial logistic loss, one vector of weights per class, for a categorical label."""

    kind: Literal["softmax"] = "softmax"
    usual_margin: ClassVar[float] = 3.0
    labels: ClassVar[frozenset[str]] = frozenset({"categorical"})

    @property
    def convex(self) -> bool:
        return True

    @property
    def smooth(self) -> bool:
        return True

    def weights(self, columns: int, classes: int | None) -> int:
        return columns * (classes or 1)

    def idle(self, classes: int | None) -> float:
        return log(classes or 1)

    def constants(self, margin: float, label: float, d: int) -> Constants:
        return Constants(sqrt(2.0), 0.5, spread=sqrt(2.0))
