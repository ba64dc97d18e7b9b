"""Which losses suit a dataset, for those who have not chosen one yet."""

from service.planning.losses import LOSSES
from service.planning.spec import Facts


def suitable_losses(facts: Facts) -> list[str]:
    """The losses that fit the label, in the order of the job spec."""
    return [loss.name() for loss in LOSSES if facts.label in loss.labels]
