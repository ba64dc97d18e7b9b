"""The histories of test_never_overspent catch a ledger that counts wrongly, so they can fail."""

import json

import pytest

from service.errors import Problem
from service.jobs import submit as submitting
from service.ledger import adjust
from service.ledger.adjust import NO_COSTS
from tests.api.test_never_overspent import play, stack  # noqa: F401 - a fixture

DRAWN = ("submit", 0, 2, 7.0, "drawn")
BUDGET = (30.0, 0.4, 0.3, "renyi")


def at_the_ceilings_order(plan):
    return lambda terms: plan.price.units


def test_a_limit_that_is_checked_at_the_ceilings_order_is_caught(stack, monkeypatch):  # noqa: F811
    play(stack, BUDGET, [DRAWN])
    monkeypatch.setattr(submitting, "price_of", at_the_ceilings_order)
    with pytest.raises(AssertionError):
        play(stack, BUDGET, [DRAWN])


def test_and_so_it_is_by_the_exact_losses_alone(stack, monkeypatch):  # noqa: F811
    """Where model and ledger are wrong alike, only the independent composition can tell."""
    monkeypatch.setattr(submitting, "price_of", at_the_ceilings_order)
    with pytest.raises(AssertionError, match="truly leak"):
        play(stack, BUDGET, [DRAWN], model=False)


@pytest.mark.parametrize("forgotten", ["all", "order"])
def test_a_top_up_that_keeps_old_units_is_caught(stack, monkeypatch, forgotten):  # noqa: F811
    steps = [("submit", 0, 2, 0.25, "drawn"), ("top_up", 0.8), ("submit", 0, 2, 0.25, "drawn")]
    play(stack, BUDGET, steps)
    if forgotten == "all":
        monkeypatch.setattr(adjust, "costs_so_far", lambda *args, **kwargs: NO_COSTS)
    else:

        def old_units(connection, job_id, costs):
            return lambda terms: min(json.loads(costs).values())

        monkeypatch.setattr(adjust, "cost_of", old_units)
    with pytest.raises(AssertionError):
        play(stack, BUDGET, steps)


def test_a_group_that_reserves_some_of_its_jobs_is_caught(stack, monkeypatch):  # noqa: F811
    steps = [("group", 0, 2, [0.25, 0.35, 0.25])]
    play(stack, BUDGET, steps)

    def some(connection, settings, principal_id, planned, group_id):
        rows = []
        for one in planned:
            try:
                rows.append(
                    submitting._insert_job(connection, settings, principal_id, one, group_id)
                )
            except Problem:
                continue
        return rows

    monkeypatch.setattr(submitting, "_insert_all", some)
    with pytest.raises(AssertionError):
        play(stack, BUDGET, steps)
