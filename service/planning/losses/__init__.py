"""Losses, one file each: what an analyst may ask for, and its constants. Adding one is a file here, a
file of the same name in workers/losses/, and a line in this list."""

from typing import TYPE_CHECKING

from service.planning.kinds import classes, union
from service.planning.loss import BaseLoss, NoLoss

LOSSES: tuple[type[BaseLoss], ...] = classes(
    __name__,
    [
        "logistic:Logistic",
        "hinge:Hinge",
        "smoothed_hinge:SmoothedHinge",
        "squared:Squared",
        "absolute:Absolute",
        "huber:Huber",
        "pinball:Pinball",
        "softmax:Softmax",
        "geometric_median:GeometricMedian",
        "sigmoid:Sigmoid",
        "savage:Savage",
        "ramp:Ramp",
        "welsch:Welsch",
        "trimmed:Trimmed",
        "phase_retrieval:PhaseRetrieval",
    ],
)
if TYPE_CHECKING:
    Loss = BaseLoss
    AskedLoss = BaseLoss
else:
    Loss = union(LOSSES)
    AskedLoss = union((NoLoss, *LOSSES))  # as a job names it, or not


def fitting(label: str) -> list[str]:
    """The losses that fit this kind of label."""
    return sorted(loss.name() for loss in LOSSES if label in loss.labels)
