"""Plans of specs, made once, and what one process remembers of who asked for which.

A dataset's facts and its account's terms never change once set. All else may: the limits that a Plan
was made for, who may use the data, whether it is there. What is remembered is therefore only used by a
transaction that finds all of that to be as it was (admit.py).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import Connection, Row

from service.config import Settings
from service.datasets.schema import Schema
from service.errors import BudgetNotSet, DatasetNotReady
from service.jobs.columns import described
from service.ledger.accounts import Account, find_account
from service.ledger.limits import applying
from service.planning.choose import AUTO, Choice, choose, compare, plan_named
from service.planning.plan import Plan, canonical_json, sha256
from service.planning.price import AccountTerms, price_units
from service.planning.spec import Facts, JobSpec

Authorise = Callable[[Connection, str], Row[Any]]
"""The dataset, or an exception if the caller may not use it."""
REMEMBERED_MAX = PLANS_MAX = 512


class PlannedSpec:
    """A Plan, why `auto` took its algorithm, and all that is derived from it, once."""

    def __init__(self, plan: Plan, choice: Choice | None) -> None:
        self.plan, self.choice = plan, choice
        self._prices = {plan.facts.account: plan.price.units}

    def price(self, terms: AccountTerms) -> int:
        """What it costs at the terms of a limit."""
        if terms not in self._prices:
            self._prices[terms] = price_units(self.plan.release, terms)
        return self._prices[terms]

    @cached_property
    def spec_text(self) -> str:
        return self.plan.spec.model_dump_json()

    @cached_property
    def text(self) -> str:
        return self.plan.canonical()

    @cached_property
    def digest(self) -> str:
        return sha256(self.text)

    @cached_property
    def choice_text(self) -> str | None:
        return None if self.choice is None else canonical_json(self.choice.view())


@dataclass(frozen=True)
class Known:
    """A job that somebody was admitted with; they may ask for the same again."""

    plan: PlannedSpec
    account_id: str
    granted: bool  # the dataset is another's


class Memory:
    """What a process knows of earlier submissions, by who asked what; forgotten all at once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Known] = {}

    def learn(self, principal_id: str, spec: JobSpec, known: Known) -> None:
        """By the spec as it was asked: the Plan's own names what was left open, as `auto` or a set."""
        if len(self._known) >= REMEMBERED_MAX:
            self._known = {}
        self._known[principal_id, spec.model_dump_json()] = known

    def recall(self, principal_id: str, spec: JobSpec) -> Known | None:
        return self._known.get((principal_id, spec.model_dump_json()))


def facts_for(
    connection: Connection, dataset: Row[Any], principal_id: str
) -> tuple[Facts, Account]:
    """The public facts of a dataset that holds data, with the terms of the limits that apply to this
    person's jobs, and the account that pays for them."""
    if dataset.state != "ready":
        raise DatasetNotReady("its owner must first upload data with PUT /v1/datasets/{id}/data.")
    account = find_account(connection, dataset.lineage_id)
    if account is None:
        raise BudgetNotSet("its owner must first set one with PUT /v1/datasets/{id}/budget.")
    limits = applying(connection, account.id, principal_id)
    further = {limit.terms.key: limit.terms for limit in limits if limit.terms != account.terms}
    facts = Facts.model_validate(
        {
            **json.loads(dataset.facts),
            "account": account.terms,
            "limits": tuple(further[key] for key in sorted(further)),
        }
    )
    return facts, account


def with_columns(facts: Facts, dataset: Row[Any], spec: JobSpec) -> Facts:
    """The same facts, with the columns that this job's summaries or evaluation name. Summaries are
    over all rows, since nothing is fitted that could be judged by those held out."""
    if not spec.summaries and (spec.evaluate is None or spec.evaluate.by is None):
        return facts
    columns = described(Schema.model_validate_json(dataset.schema), spec)
    every = {"rows": facts.rows + facts.held_out, "held_out": 0} if spec.summaries else {}
    return facts.model_copy(update={"described": columns, **every})


def plan_for(facts: Facts, settings: Settings, spec: JobSpec) -> PlannedSpec:
    """The Plan of a spec with its prices: made once, for the same is often asked again."""
    return _planned(spec.model_dump_json(), facts, settings.gradients_max)


@lru_cache(maxsize=PLANS_MAX)
def _planned(spec_text: str, facts: Facts, gradients_max: int) -> PlannedSpec:
    spec = JobSpec.model_validate_json(spec_text)
    if spec.algorithm != AUTO:
        return PlannedSpec(plan_named(spec, facts, gradients_max), None)
    return PlannedSpec(*choose(compare(spec, facts, gradients_max)))
