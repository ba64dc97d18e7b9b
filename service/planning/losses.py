"""Constants of each loss as functions of the public bounds.

A generalized linear loss is l(m, y) with margin m = <w, x>. For |m| <= M:

- `lipschitz`: a bound on |dl/dm|, or None where the rows have no bound;
- `smoothness`: a bound on d2l/dm2.

Multiplied by X2 and X2^2 (X2 the enforced row norm) they bound a record's gradient and curvature.
Privacy never rests on them: kernels clip every derivative to the bound that the Plan names.
"""

from dataclasses import dataclass
from math import inf

from service.errors import PlanRefused
from service.planning.spec import Facts, Loss


@dataclass(frozen=True)
class Constants:
    lipschitz: float
    smoothness: float


def constants(loss: Loss, facts: Facts, radius: float) -> Constants:
    """The loss's constants on rows within facts.l2 and weights within `radius`."""
    margin = inf if facts.l2 is None else radius * facts.l2
    match loss.kind:
        case "logistic":
            if facts.label != "binary":
                raise PlanRefused(
                    "logistic loss needs a binary label and this dataset's label is numeric; "
                    "loss squared fits it."
                )
            return Constants(lipschitz=1.0, smoothness=0.25)
        case "squared":  # |m - y| with y in [-1, 1]
            return Constants(lipschitz=margin + 1.0, smoothness=1.0)
