"""Slope 2 m sign(m^2 - y): |slope| <= 2 |m|, and as it is m^2 - y or y - m^2, curvature >= -2."""

from typing import ClassVar, Literal

from service.planning.loss import SHARP, Regression, Scalar


class PhaseRetrieval(Regression):
    """|<w, x>^2 - y|: a signal from the sizes of its measurements, for a label in [-1, 1]. Declare the
    label's bounds as -B and B, so that it is scaled and not moved. Weakly convex."""

    kind: Literal["phase_retrieval"] = "phase_retrieval"
    flat_at_zero: ClassVar[bool] = True  # by symmetry

    def scalar(self) -> Scalar:
        return Scalar("square", SHARP, weak=2.0)
