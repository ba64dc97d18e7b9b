"""Sets with vertices that are chosen by their scores: how far one record moves two of them apart."""

from service.planning.lattice import DERIVATIVE_UNITS
from service.planning.spec import Facts, JobSpec
from service.planning.vertices import RowBounds, Scores


def scores(spec: JobSpec, facts: Facts, unit: float | None = None) -> Scores:
    """Of the set's vertices; those that are given by their entries count in `unit`, or in one that
    suits them."""
    bounds = RowBounds(
        rows=facts.rows,
        columns=facts.columns,
        feature_step=facts.feature_step or 0.0,
        linf=facts.linf_units or 0,
        l2=facts.l2_units or 0,
        slope=DERIVATIVE_UNITS,
    )
    return spec.set.scores(bounds, unit)
