"""What holds after every step, and what holds once time has passed without faults: one list each.

A function returns findings, one line each. The simulation's own knowledge (which noise key a job was
given, whose data was really read, what was answered) is compared with what the database says.
"""

import json
from collections import Counter, defaultdict, namedtuple
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from sqlalchemy import Connection, select
from sqlalchemy.dialects import sqlite

from service.audit.verify import verify_chain
from service.jobs.states import ENDED, TRANSITIONS
from service.ledger.check import check_ledger
from service.planning.price import AccountTerms
from service.tables import (
    accounts,
    audit_records,
    datasets,
    entries,
    idempotency,
    job_events,
    jobs,
    limits,
    models,
)
from tests.simulation.world import World, bits


@cache
def _compiled(query):
    """Few queries, asked after every step: compiling them takes longer than their answers."""
    names = [column.name for column in query.selected_columns]
    return str(query.compile(dialect=sqlite.dialect())), namedtuple("Row", names)


_LONG = ("spec", "plan", "choice")
_JOBS = select(*(column for column in jobs.c if column.name not in _LONG)).order_by(jobs.c.id)
_ENTRIES = select(
    *(entries.c[name] for name in ("account_id", "seq", "kind", "resolves_seq"))
).order_by(entries.c.account_id, entries.c.seq)
_EVENTS = select(job_events).order_by(job_events.c.job_id, job_events.c.seq)
_MODELS, _ACCOUNTS, _LIMITS, _KEYS, _DATASETS = map(
    select, (models, accounts, limits, idempotency, datasets)
)
_RECORDS = select(audit_records).order_by(audit_records.c.dataset_id, audit_records.c.seq)


@dataclass
class Seen:
    """The database at one moment."""

    world: World
    connection: Connection

    def rows(self, query):
        text, row = _compiled(query)
        return list(map(row._make, self.connection.connection.driver_connection.execute(text)))

    @cached_property
    def jobs(self):
        return {row.id: row for row in self.rows(_JOBS)}

    @cached_property
    def entries(self):
        return self.rows(_ENTRIES)

    @cached_property
    def resolutions(self):
        """Kinds by reservation: (account, number)."""
        found = defaultdict(list)
        for entry in self.entries:
            if entry.resolves_seq is not None:
                found[entry.account_id, entry.resolves_seq].append(entry.kind)
        return found

    def resolved(self, job):
        return self.resolutions.get((job.account_id, job.entry_seq), [])

    @cached_property
    def records(self):
        return self.rows(_RECORDS)

    @cached_property
    def models(self):
        return {row.job_id: row for row in self.rows(_MODELS)}


def no_limit_is_exceeded_and_every_balance_follows_from_the_entries(seen):
    read = (seen.rows(_ACCOUNTS), seen.rows(_LIMITS), seen.entries)
    if read == seen.world.checked:  # the same ledger as was found in order
        return []
    found, seen.world.checked = check_ledger(seen.connection), read
    return found


def an_entry_resolves_once_and_when_its_job_ends(seen):
    for job in seen.jobs.values():
        if len(seen.resolved(job)) != (job.state in ENDED):
            yield f"{job.id} is {job.state}, and its reservation: {seen.resolved(job)}"
    known = Counter((job.account_id, job.entry_seq) for job in seen.jobs.values())
    for entry in seen.entries:
        if entry.kind == "reserve" and known[entry.account_id, entry.seq] != 1:
            yield f"entry {entry.seq} is of {known[entry.account_id, entry.seq]} jobs"


def nothing_is_reserved_while_frozen(seen):
    frozen = set()
    for entry in seen.entries:
        if entry.kind == "freeze":
            frozen.add(entry.account_id)
        frozen -= {entry.account_id} if entry.kind == "unfreeze" else set()
        if entry.kind == "reserve" and entry.account_id in frozen:
            yield f"entry {entry.seq}"


def a_model_has_the_bits_of_its_jobs_first_noise_key(seen):
    for job_id, model in seen.models.items():
        job = seen.jobs[job_id]
        expected = bits(seen.world.noise[job_id], job.plan_digest)
        if json.loads(model.card)["coef_"] != [*expected[1:]]:
            yield f"{job_id} was published with other noise than it was given"


def succeeded_means_one_model_one_record_one_charge(seen):
    records = Counter(row.job_id for row in seen.records)
    for job in seen.jobs.values():
        succeeded = job.state == "succeeded"
        found = (job.id in seen.models, records[job.id], seen.resolved(job) == ["post"])
        if found[:2] != (succeeded, int(succeeded)) or (succeeded and not found[2]):
            yield f"{job.id} is {job.state}; model, records, charge: {found}"


def only_the_last_claim_publishes(seen):
    """By the simulation's own count of claims, which is not the fence."""
    for row in seen.records:
        claim, last = _claim(row.body), seen.world.claims[row.job_id]
        if claim != last:
            yield f"{row.job_id} was published by claim {claim}, and {last} were given out"


@lru_cache(1000)
def _claim(body):
    return int(json.loads(body)["software"]["cpu"])


def a_void_only_where_data_was_never_opened(seen):
    for job in seen.jobs.values():
        if "void" in seen.resolved(job) and (job.opened_ms or job.id in seen.world.read):
            yield f"{job.id} is {job.state}, its data was opened, and it is free"


def ended_jobs_hold_nothing_and_others_can_go_on(seen):
    for job in seen.jobs.values():
        held = (job.lease_ms is not None, job.wrapped_key is not None, job.hint_ms is not None)
        expected = {"queued": (False, True, True), "running": (True, True, False)}
        expected["cancelling"] = expected["running"]
        if held != expected.get(job.state, (False, False, False)):
            yield f"{job.id} is {job.state}; lease, key, due: {held}"


def states_follow_the_arrows(seen):
    last = {}
    for event in seen.rows(_EVENTS):
        before = last.get(event.job_id)
        if event.type not in (("queued",) if before is None else TRANSITIONS[before]):
            yield f"{event.job_id} went from {before} to {event.type}"
        last[event.job_id] = event.type
    yield from (j.id for j in seen.jobs.values() if last[j.id] != j.state)


def a_request_makes_all_of_its_jobs_or_none_once(seen):
    made = Counter(json.loads(job.metadata)["request"] for job in seen.jobs.values())
    for request in seen.world.requests:
        count = made[str(request.number)]
        if count not in (0, len(request.asked)) or (request.answers and count == 0):
            yield f"request {request.number} for {len(request.asked)} jobs made {count}"


def a_repeated_request_gets_the_first_answer(seen):
    yield from seen.world.refused_replays
    stored = {row.key: row.response for row in seen.rows(_KEYS)}
    for request in seen.world.requests:
        known = request.answers | ({stored[request.key]} if request.key in stored else set())
        if request.key and len(known) > 1:
            yield f"request {request.number} has {len(known)} answers"
        for answer in request.answers:
            for view in _views(answer):
                if view["metadata"] != {"request": str(request.number)}:
                    yield f"request {request.number} was answered about another's job"


@lru_cache(1000)
def _views(answer):
    body = json.loads(answer)
    return body.get("data", [body])


def every_job_has_ended(seen):
    for job in seen.jobs.values():
        if job.state not in ENDED:
            yield f"{job.id} is still {job.state}"
    for account in seen.rows(_ACCOUNTS):
        if account.pending_units:
            yield f"{account.id} still has {account.pending_units} pending"


def every_chain_verifies(seen):
    public = seen.world.settings.keys.public_hex()
    for dataset in seen.rows(_DATASETS):
        exported = [
            {"body": json.loads(row.body), "hash": row.hash, "signature": row.signature}
            for row in seen.records
            if row.dataset_id == dataset.id
        ]
        if len(exported) != dataset.chain_length:
            yield f"{dataset.id} has {len(exported)} records, its head says {dataset.chain_length}"
        yield from verify_chain(exported, public, dataset.chain_head)


def what_is_remembered_admits_nothing_that_is_no_longer_so(seen):
    """Of the jobs that this step made, on the strength of what a process remembers."""
    world, open_limits = seen.world, defaultdict(set)
    made = {id_: job for id_, job in seen.jobs.items() if id_ not in world.made}
    world.made.update(made)
    presumed = {id_: job for id_, job in made.items() if id_ in world.presumed}
    if presumed:
        for limit in seen.rows(_LIMITS):
            if limit.until_seq is None:
                of = AccountTerms.model_validate_json(limit.terms)
                open_limits[limit.account_id, limit.principal_id].add(of)
        ceilings = {
            row.id: AccountTerms.model_validate_json(row.terms) for row in seen.rows(_ACCOUNTS)
        }
    for id_, job in presumed.items():
        world.fault("a job admitted from memory")
        credential, limits_then = world.presumed[id_]
        if credential in world.revoked:
            yield f"{id_} was admitted with {credential}, which was revoked before"
        if job.dataset_id in world.gone:
            yield f"{id_} was admitted on deleted data"
        account = job.account_id
        now = open_limits[account, None] | open_limits[account, job.principal_id]
        if now - {ceilings[account]} != limits_then:
            yield f"{id_} was planned for other limits than it was admitted at"


AFTER_EVERY_STEP = (
    what_is_remembered_admits_nothing_that_is_no_longer_so,
    a_request_makes_all_of_its_jobs_or_none_once,
    a_repeated_request_gets_the_first_answer,
    a_model_has_the_bits_of_its_jobs_first_noise_key,
    a_void_only_where_data_was_never_opened,
    only_the_last_claim_publishes,
    succeeded_means_one_model_one_record_one_charge,
    an_entry_resolves_once_and_when_its_job_ends,
    ended_jobs_hold_nothing_and_others_can_go_on,
    states_follow_the_arrows,
    nothing_is_reserved_while_frozen,
    no_limit_is_exceeded_and_every_balance_follows_from_the_entries,
)
AT_THE_END = (every_job_has_ended, every_chain_verifies)


def findings(world, invariants):
    """(name, what was found) of the first of these that does not hold; None if all do."""
    with world.look() as connection:
        seen = Seen(world, connection)
        for job in seen.jobs.values():
            if job.id not in world.noise:  # as it was given when the job was first seen
                world.noise[job.id] = world.settings.keys.unwrap(job.wrapped_key, job.id)
        for invariant in invariants:
            if found := list(invariant(seen)):
                return invariant.__name__, found
    return None
