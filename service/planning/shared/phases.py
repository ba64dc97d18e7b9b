"""Phases on disjoint rows, each half as long as the one before: how rows are shared among them."""

from service.errors import PlanRefused

PHASES_MAX = 12


def require_rows(halvings: int | None, n: int) -> None:
    """Of a batch, where an analyst says how often all rows are halved for it."""
    if halvings is not None and n >> halvings == 0:
        raise PlanRefused(
            f"{halvings} halvings leave no row of {n}; "
            f"set parameters.halvings to at most {n.bit_length() - 1}."
        )


def layout(n: int, wanted: int, halvings: int) -> list[tuple[int, int]]:
    """(batch, rows) of each phase: all batches the same share of their rows, and at least one row."""
    count = min(wanted, PHASES_MAX, ((n >> halvings) + 1).bit_length() - 1)
    batches = [(n << i) // ((2**count - 1) << halvings) for i in reversed(range(count))]
    return [(batch, batch << halvings) for batch in batches]
