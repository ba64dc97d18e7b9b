"""The set of a job that names none: the one that its algorithm does best with, from public facts."""

from service.planning.feasible import DefaultSet
from service.planning.lattice import target
from service.planning.needs import Needs
from service.planning.shared.reach import expected_distance
from service.planning.spec import Facts, JobSpec

ROOM = 2.0  # a ball's radius over the distance that is expected
SPARSE = 2.0  # an l1 ball's


def with_set(needs: Needs, spec: JobSpec, facts: Facts) -> JobSpec:
    """The same job over a set by name."""
    if not isinstance(spec.set, DefaultSet):
        return spec
    return JobSpec.model_validate(spec.model_dump() | {"set": _default(needs, spec, facts)})


def _default(needs: Needs, spec: JobSpec, facts: Facts) -> dict[str, object]:
    sets = needs.sets_for(spec)
    free = facts.label == "unbounded" and spec.loss.margin  # weights are as large as labels
    if needs.summaries or spec.loss.kind == "no_loss":
        return {"kind": "all"}  # there are no weights
    if (needs.best_over_all or free) and "all" in sets:
        return {"kind": "all"}
    d = spec.loss.weights(facts.columns, facts.classes)
    distance = expected_distance(spec, facts, target(spec, facts), d)
    if "l2_ball" in sets:
        return {"kind": "l2_ball", "radius": float(f"{ROOM * distance:.3g}")}
    return {"kind": "l1_ball", "radius": float(f"{SPARSE * distance:.3g}")}
