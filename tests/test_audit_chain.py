"""The audit chain: whatever is changed in it, verification says so."""

import copy
import json

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.exc import DatabaseError

from service.audit.chain import SIGNATURE_PREFIX
from service.audit.verify import verify_chain
from service.jobs.claim import open_data
from service.planning.plan import canonical_json, sha256
from service.tables import audit_records
from tests.jobs.test_lifecycle import Office


@pytest.fixture
def office(db, tmp_path):
    return Office(db, tmp_path)


@pytest.fixture
def chain(office):
    """Three records as the API exports them."""
    for epsilon in (0.05, 0.1, 0.2):
        job = office.submit(epsilon)
        held = office.claim(job)
        office.do(open_data, job, held.fence)
        office.publish(job, held.fence)
    with office.db.read() as connection:
        rows = connection.execute(select(audit_records).order_by(audit_records.c.seq)).all()
    return [{"body": json.loads(r.body), "hash": r.hash, "signature": r.signature} for r in rows]


def resign(office, record):
    """What an operator with the signing key could do to a single record."""
    record["hash"] = sha256(canonical_json(record["body"]))
    digest = bytes.fromhex(record["hash"])
    record["signature"] = office.settings.keys.signing.sign(SIGNATURE_PREFIX + digest).hex()


def set_price(body):
    body["plan"]["price"]["units"] -= 1
    body["charge"]["units"] -= 1
    body["plan_digest"] = sha256(canonical_json(body["plan"]))


def set_noise(body):
    body["plan"]["release"]["release"]["sigma"] *= 2
    body["plan_digest"] = sha256(canonical_json(body["plan"]))


def set_schedule(body):
    body["plan"]["schedule"]["step_size"] *= 2
    body["plan_digest"] = sha256(canonical_json(body["plan"]))


def set_claim(body):
    body["plan"]["guarantee"]["epsilon"] /= 2
    body["plan_digest"] = sha256(canonical_json(body["plan"]))


def test_an_untouched_chain_verifies(office, chain):
    key = office.settings.keys.public_hex()
    assert verify_chain(chain, key) == []
    assert verify_chain(chain, key, head=chain[1]["hash"]) == []
    assert verify_chain([], key) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_price, "price is not that of its releases"),
        (set_noise, "price is not that of its releases"),
        (set_schedule, "gives another Plan"),
        (set_claim, "exceed the (epsilon, delta)"),
        (lambda b: b["charge"].update(units=0), "not the Plan's price"),
        (lambda b: b["account"]["terms"].update(order=2), "other terms"),
        (lambda b: b["account"].update(posted_units=0), "below the sum"),
        (lambda b: b.update(plan_digest="0" * 64), "digest does not match"),
        (lambda b: b.update(seq=7), "does not follow"),
        (lambda b: b["plan"].pop("release"), "cannot be read"),
    ],
)
def test_a_changed_record_is_found_even_when_signed_again(office, chain, change, says):
    key = office.settings.keys.public_hex()
    unsigned = copy.deepcopy(chain)
    change(unsigned[1]["body"])
    found = verify_chain(unsigned, key)
    assert any("record 2: its hash" in line for line in found)
    assert any("record 2: its signature" in line for line in found)
    resign(office, unsigned[1])
    assert any(says in line for line in verify_chain(unsigned, key)), verify_chain(unsigned, key)


@pytest.mark.parametrize(
    "damage",
    [
        lambda chain: chain[1:],
        lambda chain: [chain[0], chain[2]],
        lambda chain: [chain[1], chain[0], chain[2]],
        lambda chain: [*chain, chain[2]],
    ],
)
def test_a_removed_moved_or_repeated_record_is_found(office, chain, damage):
    found = verify_chain(damage(chain), office.settings.keys.public_hex())
    assert any("does not follow" in line for line in found)


def test_a_chain_restored_from_an_old_backup_lacks_the_head_somebody_holds(office, chain):
    key, head = office.settings.keys.public_hex(), chain[-1]["hash"]
    assert verify_chain(chain[:2], key) == []
    assert "does not contain the head" in verify_chain(chain[:2], key, head=head)[0]


def test_another_services_key_does_not_verify(office, chain):
    assert len(verify_chain(chain, "00" * 31 + "01")) >= 3


@pytest.mark.parametrize("change", [update(audit_records).values(body="{}"), delete(audit_records)])
def test_the_database_refuses_to_change_records(office, chain, change):
    with pytest.raises(DatabaseError, match="append-only"), office.db.write() as connection:
        connection.execute(change)
