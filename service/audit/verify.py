"""Verify a dataset's chain offline: hashes, signatures, links, prices, and the Plans themselves.

Needs the exported records and the service's public key, no database and no data. Nothing of a record
is read before its signature has been checked.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from service.audit import caps
from service.audit.chain import GENESIS, SIGNATURE_PREFIX
from service.planning.catalog import plan as make_plan
from service.planning.plan import PLANNER_VERSION, Plan, canonical_json, sha256
from service.planning.price import AccountTerms, fits_own_target, price_units
from service.planning.releases import Release


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Charge(_Part):
    entry: PositiveInt
    units: NonNegativeInt


class AccountState(_Part):
    """The account as it stood after the charge."""

    id: str
    terms: AccountTerms
    epsilon: float
    ceiling_units: PositiveInt
    posted_units: NonNegativeInt
    entries: PositiveInt
    cap: caps.CapState | None = None  # since version 2
    cap_units: PositiveInt | None = None  # of version 1


class Record(_Part):
    record: int
    dataset: str
    data_commitment: str
    seq: PositiveInt
    previous: str
    job: str
    published_at: str
    plan: Plan
    plan_digest: str
    model_digest: str
    charge: Charge
    account: AccountState
    software: dict[str, Any]


class UnreadableError(ValueError):
    """A record cannot be taken at its word; the message says why."""


def verify_chain(
    exported: Iterable[Any], public_key: str, head: str | None = None, *, partial: bool = False
) -> list[str]:
    """Findings, one line each; empty means that every record is authentic, in its place, priced as
    its Plan says and (where this planner made it) planned as its spec and facts say, and that the
    account never passed its ceiling. With `head`, a chain that does not contain it is a finding:
    that is how a restored old backup shows. `partial` is for an analyst's export, which lacks the
    records of others: their number may then grow by more than one, and what was not seen in between is
    not verified; everything else is."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    except ValueError:
        return ["the public key is not 64 hexadecimal digits"]
    findings: list[str] = []
    last: Record | None = None
    released: list[Release] = []
    previous, hashes, published = GENESIS, set(), dict[str, str]()  # models' digests, by job
    for number, item in enumerate(exported, start=1):
        found = []
        try:
            record, digest = _read(key, item)
        except UnreadableError as error:
            findings.append(f"record {number}: {error}")
            continue
        expected = 1 + (last.seq if last else 0) if partial else number
        gap = partial and record.seq > expected
        if not gap and (record.seq, record.previous) != (expected, previous):
            found.append("does not follow the record before it")
        found += _check_record(record) + _check_link(record, last, released)
        released.append(record.plan.release)
        if record.job in published:
            found.append("its job has published before")
        for of in record.plan.spec.named:
            if (of.job, of.digest) not in published.items():
                found.append("it is about a model that no record before it has published")
        findings += [f"record {number}: {text}" for text in found]
        last, previous = record, digest
        published[record.job] = record.model_digest
        hashes.add(digest)
    if head is not None and head not in hashes:
        findings.append("the chain does not contain the head that you hold")
    return findings


def verify_record(item: Any, before: Any | None, public_key: str) -> list[str]:
    """Findings about one record and its link to the one before it (None: it is the first)."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    try:
        record, _ = _read(key, item)
        last, previous = (None, GENESIS) if before is None else _read(key, before)
    except UnreadableError as error:
        return [f"it, or the record before it: {error}"]
    seq = 1 if last is None else last.seq + 1
    follows = (record.seq, record.previous) == (seq, previous)
    found = [] if follows else ["does not follow the record before it"]
    return found + _check_record(record) + _check_link(record, last)


def _read(key: Ed25519PublicKey, item: Any) -> tuple[Record, str]:
    """The record, once its hash and signature are in order."""
    try:
        digest = sha256(canonical_json(item["body"]))
        claimed, signature = str(item["hash"]), bytes.fromhex(item["signature"])
    except (TypeError, KeyError, ValueError, RecursionError):
        raise UnreadableError("it is not a record with body, hash and signature") from None
    if claimed != digest:
        raise UnreadableError("its hash does not match")
    try:
        key.verify(signature, SIGNATURE_PREFIX + bytes.fromhex(digest))
    except InvalidSignature:
        raise UnreadableError("its signature does not verify") from None
    try:
        record = Record.model_validate(item["body"])
    except ValidationError:
        raise UnreadableError("it cannot be read by this version") from None
    # the text counts: an older planner's Plan lacks fields that have come since, with their defaults
    read_whole = (
        record.plan.planner != PLANNER_VERSION or record.plan.digest() == record.plan_digest
    )
    if not read_whole or sha256(canonical_json(item["body"]["plan"])) != record.plan_digest:
        raise UnreadableError("the Plan's digest does not match")
    return record, digest


def _check_record(record: Record) -> list[str]:
    plan, account = record.plan, record.account
    checks: list[tuple[Callable[[], bool], str]] = [
        (
            lambda: price_units(plan.release, plan.facts.account) == plan.price.units,
            "the Plan's price is not that of its releases",
        ),
        (lambda: record.charge.units == plan.price.units, "the charge is not the Plan's price"),
        (lambda: record.dataset == plan.spec.dataset, "the Plan is for another dataset"),
        (lambda: plan.facts.account == account.terms, "the Plan was priced on other terms"),
        (
            lambda: fits_own_target(plan.release, plan.guarantee.epsilon, plan.guarantee.delta),
            "the releases exceed the (epsilon, delta) that is claimed",
        ),
        (
            lambda: (
                caps.best(account.terms, account.epsilon) == (account.terms, account.ceiling_units)
            ),
            "the account's terms are not those of its ceiling",
        ),
        (
            lambda: (
                account.posted_units
                <= (account.cap_units or account.ceiling_units)
                <= account.ceiling_units
            ),
            "the account is beyond its cap or ceiling",
        ),
        (
            lambda: plan.planner <= PLANNER_VERSION,
            "a newer planner made its Plan: verify with its version",
        ),
        (  # only what this planner made
            lambda: plan.planner != PLANNER_VERSION or make_plan(plan.spec, plan.facts) == plan,
            "planning its spec again gives another Plan",
        ),
    ]
    return [finding for holds, text in checks if (finding := _finding(holds, text))]


def _finding(holds: Callable[[], bool], text: str) -> str | None:
    """A record may be such that a check cannot even be made. Then it counts as failed, and the other
    checks and records are still made."""
    try:
        return None if holds() else text
    except Exception as error:
        return f"{text}: {type(error).__name__}"


def _check_link(record: Record, last: Record | None, earlier: Sequence[Release] = ()) -> list[str]:
    """What must hold between a record and the one before it; `earlier` is what is known to have been
    released before."""
    account, units = record.account, record.charge.units
    posted = 0 if last is None else last.account.posted_units
    checks: list[tuple[Callable[[], bool], str]] = [
        (
            lambda: account.posted_units >= posted + units,
            "the account stands below the sum of the charges",
        ),
        (
            lambda: (
                record.record in caps.VERSIONS and record.record >= (last.record if last else 1)
            ),
            "its version is unknown, or older than that of the record before it",
        ),
        (
            lambda: (
                ("cap" in account.model_fields_set) == (record.record > 1)
                and (account.cap_units is None) == (record.record > 1)
            ),
            "what it says of the cap is not of its version",
        ),
        *caps.checks(
            account.cap,
            None if last is None else last.account.cap,
            ceiling=account.epsilon,
            since_version_1=last is None or last.record == 1,
            releases=[*earlier, record.plan.release],
        ),
    ]
    if last is not None:
        fixed = (last.account.id, last.account.terms, last.account.epsilon)
        checks += [
            (
                lambda: (
                    (account.id, account.terms, account.epsilon) == fixed
                    and account.ceiling_units == last.account.ceiling_units
                ),
                "the account is another, or its ceiling was changed",
            ),
            (
                lambda: (
                    (record.dataset, record.data_commitment) == (last.dataset, last.data_commitment)
                ),
                "it is about other data than the record before",
            ),
        ]
    return [finding for holds, text in checks if (finding := _finding(holds, text))]
