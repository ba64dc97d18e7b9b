"""Plans of tilted and adversarial output perturbation, and their gradients."""

import numpy as np

import workers.algorithms.adversarial_output_perturbation as adversarial
import workers.algorithms.tilted_output_perturbation as tilted
from service.planning.catalog import plan
from service.planning.plan import Plan
from tests.planning.cases import facts, spec
from workers.data import Blocks
from workers.rows import Rows

TERM, ADV = "tilted-output-perturbation", "adversarial-output-perturbation"
SMOOTH = ("logistic", "smoothed_hinge", "squared", "huber")
LOSSES = (*SMOOTH, "hinge", "absolute")


def made_by(
    algorithm: str, n: int, d: int, loss: str = "logistic", epsilon: float = 1.0, **more
) -> Plan:
    parameters = {key: more.pop(key) for key in list(more) if key not in ("ridge", "set")}
    job = spec(algorithm, epsilon, loss=loss, parameters=parameters, **{"ridge": 0.4, **more})
    return plan(job, facts(rows=n, columns=d))


def gradient_of(made: Plan, x, y):
    blocks = Blocks(Rows(made.facts, x, y), range(made.facts.rows))
    make = tilted.tilted_gradient if made.algorithm == TERM else adversarial.robust_gradient
    return make(made, made.schedule, blocks)


def shape_of(made: Plan):
    shape = made.spec.loss.scalar()
    return shape if made.smoothing is None else shape.smoothed(made.smoothing.smoothness)


def value(shape, m, y):
    """A loss in numpy, by its own formula."""
    if not shape.straight:
        return float(np.logaddexp(0.0, -y * m))
    c = shape.curvature
    low, high = (0.0, 1.0) if shape.argument == "margin" else (shape.low, shape.high)
    t = 1 - y * m if shape.argument == "margin" else m - y
    s = min(max(c * t, low), high)
    return s * t - s * s / (2 * c)


ADVERSARIES = [
    {"perturbation": 0.3},
    {"perturbation": 0.1, "norm": "linf"},
    {"adversary": "penalised"},
]
