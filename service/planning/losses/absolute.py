"""Slope sign(m - y): a corner."""

from typing import ClassVar, Literal

from service.planning.loss import SHARP, Regression, Scalar


class Absolute(Regression):
    """|<w, x> - y|, with labels as for squared: least absolute deviations, the conditional median."""

    kind: Literal["absolute"] = "absolute"
    even: ClassVar[bool] = True

    def scalar(self) -> Scalar:
        return Scalar("residual", SHARP, -1.0, 1.0, straight=True)
