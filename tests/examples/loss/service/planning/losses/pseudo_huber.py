"""Slope r/sqrt(1 + (r/width)^2) in the residual r = m - y: as Huber's, without a kink in it."""

from typing import Literal

from pydantic import Field

from service.planning.loss import Regression, Scalar


class PseudoHuber(Regression):
    """width^2 (sqrt(1 + (r/width)^2) - 1) of the residual r = <w, x> - y."""

    kind: Literal["pseudo_huber"] = "pseudo_huber"
    width: float = Field(default=1.0, ge=1e-6, le=1e6)

    def scalar(self) -> Scalar:
        return Scalar("residual", 1.0, low=-self.width, high=self.width)
