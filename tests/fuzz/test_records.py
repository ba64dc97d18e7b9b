"""Audit chains, changed in every way: verification finds it and never fails itself."""

import copy
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import select

from service.audit.chain import SIGNATURE_PREFIX
from service.audit.verify import verify_chain, verify_record
from service.db import Database
from service.planning.plan import canonical_json, sha256
from service.tables import audit_records
from tests.fuzz.hostile import changed, fuzzed, values
from tests.harness import fresh_database
from tests.jobs.harness import JobHarness


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """(the records as they are exported, the keys that signed them)"""
    folder = tmp_path_factory.mktemp("chain")
    with fresh_database("sqlite", folder) as url:
        db = Database(url)
        harness = JobHarness(db, folder, cap=0.9)
        for epsilon in (0.05, 0.1):
            harness.finish(harness.submit(epsilon))
        with db.read() as connection:
            rows = connection.execute(select(audit_records).order_by(audit_records.c.seq)).all()
        db.dispose()
    chain = [{"body": json.loads(r.body), "hash": r.hash, "signature": r.signature} for r in rows]
    assert verify_chain(chain, harness.settings.keys.public_hex()) == []
    return chain, harness.settings.keys


def signed(record, keys):
    """What whoever has the signing key could make of it; None where it is no JSON."""
    try:
        digest = sha256(canonical_json(record["body"]))
    except ValueError:
        return None
    signature = keys.signing.sign(SIGNATURE_PREFIX + bytes.fromhex(digest)).hex()
    return {"body": record["body"], "hash": digest, "signature": signature}


@fuzzed(100)
@given(data=st.data(), partial=st.booleans())
def test_no_change_to_an_export_goes_unnoticed(data, partial, kept):
    chain, keys = kept
    exported = data.draw(changed(st.just(chain)))
    before = copy.deepcopy(exported)
    found = verify_chain(
        exported if isinstance(exported, list) else [exported],
        keys.public_hex(),
        chain[-1]["hash"],
        partial=partial,
    )
    assert all(isinstance(one, str) for one in found)
    assert found or exported in (chain, chain[1:] if partial else chain)
    assert repr(exported) == repr(before)


@fuzzed(60)
@given(data=st.data())
def test_a_forged_record_is_judged_whatever_it_says(data, kept):
    """Signed anew, so that every check is made on it; the Plan's digest too, half of the time."""
    chain, keys = kept
    record = {"body": data.draw(changed(st.just(chain[1]["body"])))}
    body = record["body"]
    if data.draw(st.booleans()) and isinstance(body, dict) and "plan" in body:
        try:
            body["plan_digest"] = sha256(canonical_json(body["plan"]))
        except ValueError:
            return
    forged = signed(record, keys)
    if forged is None:
        return
    found = verify_chain([chain[0], forged], keys.public_hex())
    alone = verify_record(forged, chain[0], keys.public_hex())
    assert bool(found) >= bool(alone)


@fuzzed(40)
@given(item=values, key=st.sampled_from(["", "zz", "00" * 32, "00" * 31, "é" * 64, "ff" * 32]))
@example(item={"body": {}, "hash": "\ud800", "signature": "\ud800"}, key="00" * 32)
def test_anything_at_all_is_a_finding(item, key):
    assert verify_chain([item], key)


def test_a_deep_record_is_a_finding(kept):
    chain, keys = kept
    deep = []
    for _ in range(10**5):
        deep = [deep]
    for body in (deep, {**chain[0]["body"], "plan": deep}):
        assert verify_chain([{**chain[0], "body": body}], keys.public_hex())
