"""The histories of test_never_overspent catch a ledger that counts wrongly, so they can fail."""

import json
from dataclasses import replace

import pytest

from service.errors import Problem
from service.jobs import planned
from service.jobs import submit as submitting
from service.ledger import adjust
from service.ledger.adjust import NO_COSTS
from tests.api.test_never_overspent import play, stack  # noqa: F401 - a fixture

DRAWN = ("submit", 0, 2, 7.0, "drawn")
BUDGET = (30.0, 0.4, 0.3, "renyi")


def count_at_the_ceilings_order(monkeypatch):
    monkeypatch.setattr(planned.PlannedSpec, "price", lambda self, terms: self.plan.price.units)


def test_a_limit_that_is_checked_at_the_ceilings_order_is_caught(stack, monkeypatch):  # noqa: F811
    play(stack, BUDGET, [DRAWN])
    count_at_the_ceilings_order(monkeypatch)
    with pytest.raises(AssertionError):
        play(stack, BUDGET, [DRAWN])


def test_and_so_it_is_by_the_exact_losses_alone(stack, monkeypatch):  # noqa: F811
    """Where model and ledger are wrong alike, only the independent composition can tell."""
    count_at_the_ceilings_order(monkeypatch)
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

    admit = submitting.admit_group

    def some(db, settings, request):
        """As many of the first ones as fit."""
        for count in range(len(request.planned), 0, -1):
            try:
                return admit(db, settings, replace(request, planned=request.planned[:count]))
            except Problem as problem:
                refusal = problem
        raise refusal

    monkeypatch.setattr(submitting, "admit_group", some)
    with pytest.raises(AssertionError):
        play(stack, BUDGET, steps)
