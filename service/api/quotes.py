"""Quotes: what a job would cost, release and predict. Free: nothing is reserved, charged or read."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from service.api.auth import Caller, Me, usable_dataset
from service.api.budgets import budget_view
from service.api.context import Ctx
from service.api.released import resolved
from service.api.schemas.quotes import ComparisonView, NoiseRequest, QuoteView
from service.errors import PlanRefused
from service.jobs.submit import facts_for, plan_for
from service.ledger.accounts import Account
from service.ledger.reserve import room, why_frozen
from service.planning.choose import Choice, choose, compare, epsilon_for_noise
from service.planning.plan import Plan
from service.planning.price import largest_fitting_epsilon
from service.planning.spec import Facts, JobSpec

router = APIRouter(tags=["quotes"])


@router.post("/quotes", response_model=QuoteView)
async def quote(ctx: Ctx, me: Me, request: JobSpec) -> Any:
    """The Plan and its price; the largest epsilon that fits, and how many jobs like this one."""

    def answer() -> dict[str, Any]:
        with ctx.db.read() as connection:
            facts, account = _usable(connection, me, request)
            spec = resolved(connection, me, request)
            planned, choice = plan_for(facts, ctx.settings, spec)
            return _quote(connection, me, account, planned, choice)

    return await ctx.turns.take(me.id, answer)


@router.post("/quotes/comparison", response_model=ComparisonView)
async def compare_algorithms(ctx: Ctx, me: Me, request: JobSpec) -> Any:
    """Every algorithm of the catalog on one spec, whichever it names. An algorithm that does not take
    the spec's parameters declines, so leave them out to see all."""

    def answer() -> dict[str, Any]:
        with ctx.db.read() as connection:
            facts, _ = _usable(connection, me, request)
        candidates = compare(request, facts, ctx.settings.gradients_max)
        try:
            choice = choose(candidates)[1].view()
        except PlanRefused:
            choice = None
        data = [candidate.view() for candidate in candidates]
        return {"dataset": request.dataset, "choice": choice, "data": data}

    return await ctx.turns.take(me.id, answer)


@router.post("/quotes/noise", response_model=QuoteView)
async def quote_for_noise(ctx: Ctx, me: Me, request: NoiseRequest) -> Any:
    """The quote at the smallest epsilon whose noise is at most the wanted one. The spec's own epsilon
    only serves `auto`, to choose an algorithm."""
    spec = request.spec()

    def answer() -> dict[str, Any]:
        with ctx.db.read() as connection:
            facts, account = _usable(connection, me, spec)
            named, choice = plan_for(facts, ctx.settings, resolved(connection, me, spec))
            limit = ctx.settings.gradients_max
            planned = epsilon_for_noise(named.spec, facts, limit, request.noise)
            return _quote(connection, me, account, planned, choice)

    return await ctx.turns.take(me.id, answer)


def _usable(connection: Connection, me: Caller, spec: JobSpec) -> tuple[Facts, Account]:
    usable_dataset(connection, me, spec.dataset)
    return facts_for(connection, spec.dataset)


def _quote(
    connection: Connection, me: Caller, account: Account, planned: Plan, choice: Choice | None
) -> dict[str, Any]:
    left, price = room(connection, account, me.id), planned.price.units
    refusal = None
    if account.frozen:
        refusal = why_frozen(connection, account.id)
    elif price > left:
        whose = "the budget" if left == account.remaining_units else "your share of the budget"
        refusal = f"it costs {price} units and {whose} has {left} left."
    return {
        "epsilon": planned.guarantee.epsilon,
        "fits": refusal is None,
        "refusal": refusal,
        "largest_epsilon": largest_fitting_epsilon(left, planned.guarantee.delta, account.terms),
        "jobs_that_fit": max(0, left) // max(1, price),
        "steps": planned.schedule.steps,
        "choice": None if choice is None else choice.view(),
        "plan": planned,
        "plan_digest": planned.digest(),
        "budget": budget_view(connection, me, account),
    }
