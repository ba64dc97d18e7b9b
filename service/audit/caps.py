"""What an audit chain must say of the owner's cap, from record to record.

Records of version 1 compared a cap with costs at the ceiling's order, and their `cap_units` is that
claim. Since version 2 a record has the cap as it stood, at an order of its own (`cap`, null where
there was none). A cap is only ever raised, each time as a new limit that counts all jobs so far anew;
at the ceiling it is gone and never comes back. `overdrawn` can only be inherited from version 1.

That a cap is gone because it was raised to the ceiling is an entry of the ledger, not of the chain.
"""

from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from service.planning.conversion import budget_units
from service.planning.price import AccountTerms, price_units
from service.planning.releases import Release

VERSIONS = (1, 2)
Checks = list[tuple[Callable[[], bool], str]]


class CapState(BaseModel):
    """The cap as it stood after the charge."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    terms: AccountTerms
    epsilon: float
    units: PositiveInt
    posted_units: NonNegativeInt
    overdrawn: bool


def best(terms: AccountTerms, epsilon: float) -> tuple[AccountTerms, int]:
    """The terms and the units of a limit of this epsilon, in an account of these terms' kind."""
    return (
        AccountTerms.for_ceiling(epsilon, terms.delta, terms.kind),
        budget_units(epsilon, terms.delta, terms.kind),
    )


def checks(
    cap: CapState | None,
    before: CapState | None,
    *,
    ceiling: float,
    since_version_1: bool,
    releases: Sequence[Release],
) -> Checks:
    """`before` is the cap of the record before; without one of version 2 `since_version_1` is True.
    `releases` are those of the chain that are known, this record's last."""
    if cap is None:
        return []
    known = releases[-1:] if before is not None and before.id == cap.id else releases
    counted = before.posted_units if before is not None and before.id == cap.id else 0
    return [
        (
            lambda: (
                cap.epsilon < ceiling and best(cap.terms, cap.epsilon) == (cap.terms, cap.units)
            ),
            "the cap's terms are not those of its epsilon",
        ),
        (
            lambda: cap.overdrawn or cap.posted_units <= cap.units,
            "the cap is exceeded",
        ),
        (
            lambda: (
                cap.posted_units
                >= counted + sum(price_units(release, cap.terms) for release in known)
            ),
            "the cap stands below the sum of the charges at its order",
        ),
        (lambda: since_version_1 or before is not None, "a cap was set where there was none"),
        (
            lambda: (
                before is None
                or cap.epsilon > before.epsilon
                or (cap.id, cap.epsilon) == (before.id, before.epsilon)
            ),
            "a cap was lowered, or changed without a top-up",
        ),
        (
            lambda: (
                not cap.overdrawn
                or since_version_1
                or (before is not None and before.overdrawn and before.id == cap.id)
            ),
            "a cap is called overdrawn that was not before",
        ),
    ]
