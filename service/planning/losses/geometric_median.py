"""The gradient is the unit vector from x to w, a corner at x itself; the Moreau envelope is the vector
form of Huber's loss."""

from math import sqrt
from typing import ClassVar, Literal

from service.planning.loss import ALL_LABELS, SHARP, BaseLoss, Constants


class GeometricMedian(BaseLoss):
    """||w - x||_2: w is a robust centre of the rows. The label is not used."""

    kind: Literal["geometric_median"] = "geometric_median"
    labels: ClassVar[frozenset[str]] = ALL_LABELS
    located: ClassVar[bool] = True

    @property
    def convex(self) -> bool:
        return True

    @property
    def smooth(self) -> bool:
        return False

    def constants(self, margin: float, label: float, d: int) -> Constants:
        return Constants(1.0, SHARP, rowwise=False, spread=sqrt(d))
