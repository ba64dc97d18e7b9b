"""Verify a dataset's chain offline: hashes, signatures, links, prices, and the Plans themselves.

Needs the exported records and the service's public key, no database and no data.
"""

import json
from collections.abc import Iterable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from service.audit.chain import GENESIS, SIGNATURE_PREFIX
from service.errors import PlanRefused
from service.planning.catalog import plan as make_plan
from service.planning.plan import PLANNER_VERSION, Plan, canonical_json, sha256
from service.planning.price import fits_own_target, price_units


def verify_chain(
    records: Iterable[dict[str, Any]], public_key: str, head: str | None = None
) -> list[str]:
    """Findings, one line each; empty means that every record is authentic, in its place, priced as
    its Plan says and (where this planner made it) planned as its spec and facts say. With `head`, a
    chain that does not end there is a finding: that is how a restored old backup shows."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    findings: list[str] = []
    previous, charged, count = GENESIS, 0, 0
    hashes = []
    for count, exported in enumerate(records, start=1):
        text = exported["body"] if isinstance(exported["body"], str) else None
        body = json.loads(text) if text is not None else exported["body"]
        found = _verify_record(key, exported, body)
        if (body.get("seq"), body.get("previous")) != (count, previous):
            found.append("does not follow the record before it")
        charged += body.get("charge", {}).get("units", 0)
        if body.get("account", {}).get("posted_units", -1) < charged:
            found.append("the account stands below the sum of the charges")
        findings += [f"record {count}: {text}" for text in found]
        previous = sha256(canonical_json(body))
        hashes.append(previous)
    if head is not None and head not in hashes:
        findings.append(f"the chain of {count} records does not contain the head that you hold")
    return findings


def _verify_record(
    key: Ed25519PublicKey, exported: dict[str, Any], body: dict[str, Any]
) -> list[str]:
    digest = sha256(canonical_json(body))
    found = [] if exported["hash"] == digest else ["its hash does not match"]
    try:
        key.verify(bytes.fromhex(exported["signature"]), SIGNATURE_PREFIX + bytes.fromhex(digest))
    except (InvalidSignature, ValueError):
        found.append("its signature does not verify")
    try:
        plan = Plan.model_validate(body["plan"])
    except (ValidationError, KeyError):
        return [*found, "its Plan cannot be read by this version"]
    if not plan.digest() == body["plan_digest"] == sha256(canonical_json(body["plan"])):
        found.append("the Plan's digest does not match")
    if price_units(plan.release, plan.facts.account) != plan.price.units:
        found.append("the Plan's price is not that of its releases")
    if body["charge"]["units"] != plan.price.units:
        found.append("the charge is not the Plan's price")
    if plan.facts.account.model_dump(mode="json") != body["account"]["terms"]:
        found.append("the Plan was priced on other terms than the account's")
    if not fits_own_target(plan.release, plan.guarantee.epsilon, plan.guarantee.delta):
        found.append("the releases exceed the (epsilon, delta) that is claimed")
    if plan.planner == PLANNER_VERSION:
        try:
            if make_plan(plan.spec, plan.facts) != plan:
                found.append("planning its spec again gives another Plan")
        except PlanRefused:
            found.append("planning its spec again is refused")
    return found
