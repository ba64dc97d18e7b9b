"""The audit chain: whatever is changed in it, verification says so."""

import copy
import json

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.exc import DatabaseError

from service.audit.chain import SIGNATURE_PREFIX
from service.audit.verify import verify_chain
from service.jobs.claim import open_data
from service.planning.catalog import plan
from service.planning.conversion import budget_units
from service.planning.plan import canonical_json, sha256
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from service.tables import audit_records, datasets
from tests.jobs.harness import JobHarness

LOWER = {
    "epsilon": 0.8,
    "terms": AccountTerms.for_ceiling(0.8, 1e-6).model_dump(),
    "units": budget_units(0.8, 1e-6),
}


@pytest.fixture
def harness(db, tmp_path):
    return JobHarness(db, tmp_path, cap=0.9)


@pytest.fixture
def chain(harness):
    """Three records as the API exports them."""
    for epsilon in (0.05, 0.1, 0.2):
        job = harness.submit(epsilon)
        held = harness.claim(job)
        harness.do(open_data, job, held.fence)
        harness.publish(job, held.fence)
    with harness.db.read() as connection:
        rows = connection.execute(select(audit_records).order_by(audit_records.c.seq)).all()
    return [{"body": json.loads(r.body), "hash": r.hash, "signature": r.signature} for r in rows]


def resign(harness, record):
    """What an operator with the signing key could do to a single record."""
    record["hash"] = sha256(canonical_json(record["body"]))
    digest = bytes.fromhex(record["hash"])
    record["signature"] = harness.settings.keys.signing.sign(SIGNATURE_PREFIX + digest).hex()


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


def test_an_untouched_chain_verifies(harness, chain):
    key = harness.settings.keys.public_hex()
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
        (lambda b: b["account"]["terms"].update(order=2), "priced on other terms"),
        (lambda b: b["account"].update(posted_units=0), "below the sum"),
        (lambda b: b.update(plan_digest="0" * 64), "digest does not match"),
        (lambda b: b.update(seq=7), "does not follow"),
        (lambda b: b["plan"].pop("release"), "cannot be read"),
        (
            lambda b: b["account"].update(posted_units=b["account"]["ceiling_units"] + 1),
            "beyond its cap",
        ),
        (
            lambda b: b["account"].update(cap_units=b["account"]["ceiling_units"] + 1),
            "beyond its cap",
        ),
        (
            lambda b: b["account"]["cap"].update(posted_units=b["account"]["cap"]["units"] + 1),
            "the cap is exceeded",
        ),
        (lambda b: b["account"]["cap"].update(units=10**15), "cap's terms are not those"),
        (lambda b: b["account"]["cap"]["terms"].update(order=2), "cap's terms are not those"),
        (lambda b: b["account"]["cap"].update(posted_units=0), "cap stands below"),
        (
            lambda b: b["account"]["cap"].update(overdrawn=True, posted_units=10**15),
            "overdrawn that was not before",
        ),
        (lambda b: b["account"]["cap"].update(id="lim_other"), "without a top-up"),
        (lambda b: b["account"]["cap"].update(LOWER, id="lim_other"), "a cap was lowered"),
        (lambda b: b.update(record=77), "its version is unknown"),
        (lambda b: b.update(record=1), "older than that of the record before"),
        (lambda b: b["account"].pop("cap"), "not of its version"),
        (lambda b: b["account"].update(ceiling_units=10**15), "not those of its ceiling"),
        (lambda b: b["account"].update(epsilon=2.0), "not those of its ceiling"),
        (lambda b: b["account"].update(id="acc_other"), "account is another"),
        (lambda b: b.update(data_commitment="0" * 64), "other data"),
        (lambda b: b.update(dataset="ds_other"), "another dataset"),
    ],
)
def test_a_changed_record_is_found_even_when_signed_again(harness, chain, change, says):
    key = harness.settings.keys.public_hex()
    unsigned = copy.deepcopy(chain)
    change(unsigned[1]["body"])
    assert "record 2: its hash does not match" in verify_chain(unsigned, key)
    unsigned[1]["hash"] = sha256(canonical_json(unsigned[1]["body"]))
    assert "record 2: its signature does not verify" in verify_chain(unsigned, key)
    resign(harness, unsigned[1])
    assert any(says in line for line in verify_chain(unsigned, key)), verify_chain(unsigned, key)


def set_algorithm(body):
    body["plan"]["spec"]["algorithm"] = "of-another-version"


def set_rows_too_small_for_floats(body):
    body["plan"]["facts"]["feature_step"] = 5e-324


def set_delta_without_a_logarithm(body):
    body["plan"]["guarantee"]["delta"] = -1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_algorithm, "planning its spec again gives another Plan: PlanRefused"),
        (
            set_rows_too_small_for_floats,
            "planning its spec again gives another Plan: ZeroDivisionError",
        ),
        (
            set_delta_without_a_logarithm,
            "exceed the (epsilon, delta) that is claimed: ValueError",
        ),
    ],
)
def test_a_record_that_cannot_be_checked_is_a_finding_and_the_others_are_still_read(
    harness, chain, change, says
):
    change(chain[0]["body"])
    chain[0]["body"]["plan_digest"] = sha256(canonical_json(chain[0]["body"]["plan"]))
    resign(harness, chain[0])
    chain[2]["body"]["charge"]["units"] = 0
    resign(harness, chain[2])
    found = verify_chain(chain, harness.settings.keys.public_hex())
    assert any(line.startswith("record 1: ") and says in line for line in found), found
    assert "record 2: does not follow the record before it" in found
    assert "record 3: the charge is not the Plan's price" in found


@pytest.mark.parametrize(("version", "findings"), [(-1, 0), (0, 1)])
def test_a_plan_of_an_older_planner_verifies_without_the_fields_that_have_come_since(
    harness, chain, version, findings
):
    body = chain[2]["body"]
    body["plan"]["planner"] += version
    del body["plan"]["private_clip"]
    body["plan_digest"] = sha256(canonical_json(body["plan"]))
    resign(harness, chain[2])
    found = verify_chain(chain, harness.settings.keys.public_hex())
    assert found == ["record 3: the Plan's digest does not match"] * findings


def test_what_a_newer_planner_made_is_not_said_to_verify(harness, chain):
    body = chain[2]["body"]
    body["plan"]["planner"] += 1
    body["plan_digest"] = sha256(canonical_json(body["plan"]))
    resign(harness, chain[2])
    (found,) = verify_chain(chain, harness.settings.keys.public_hex())
    assert "newer planner" in found


def test_a_certificate_is_about_a_model_that_the_chain_has_published_before(harness, chain):
    first, _, third = (record["body"] for record in chain)
    unknown = {"job": first["job"], "digest": third["model_digest"][::-1]}
    later = {"job": third["job"], "digest": third["model_digest"]}
    published = {"job": first["job"], "digest": first["model_digest"]}
    for of, findings in (
        (unknown, 1),
        (later, 1),
        (published | {"digest": None}, 1),
        (published, 0),
    ):
        asked = third["plan"]["spec"] | {"algorithm": "stationarity-certificate", "of": of}
        spec = JobSpec.model_validate(asked | {"parameters": {}})
        made = plan(spec, Facts.model_validate(third["plan"]["facts"]))
        third["account"]["posted_units"] += made.price.units - third["charge"]["units"]
        third["charge"]["units"] = made.price.units
        third |= {"plan": json.loads(made.canonical()), "plan_digest": made.digest()}
        resign(harness, chain[2])
        found = verify_chain(chain, harness.settings.keys.public_hex())
        assert (
            found
            == ["record 3: it is about a model that no record before it has published"] * findings
        )


@pytest.mark.parametrize(
    "damage",
    [
        lambda chain: chain[1:],
        lambda chain: [chain[0], chain[2]],
        lambda chain: [chain[1], chain[0], chain[2]],
        lambda chain: [*chain, chain[2]],
    ],
)
def test_a_removed_moved_or_repeated_record_is_found(harness, chain, damage):
    found = verify_chain(damage(chain), harness.settings.keys.public_hex())
    assert any("does not follow" in line for line in found)


@pytest.mark.parametrize(
    "item",
    [
        None,
        7,
        "text",
        [],
        {},
        {"body": {}},
        {"body": {}, "hash": 1, "signature": "zz"},
        {"body": {"a": float("nan")}, "hash": "", "signature": ""},
        {"body": None, "hash": "x", "signature": "00"},
    ],
)
def test_a_malformed_record_is_a_finding_not_a_crash(harness, item):
    found = verify_chain([item], harness.settings.keys.public_hex())
    assert len(found) == 1 and found[0].startswith("record 1: ")
    assert verify_chain([item], "not a key") == ["the public key is not 64 hexadecimal digits"]


def test_a_published_job_is_not_published_again(harness, chain):
    repeated = copy.deepcopy(chain)
    repeated[2]["body"]["job"] = repeated[0]["body"]["job"]
    resign(harness, repeated[2])
    found = verify_chain(repeated, harness.settings.keys.public_hex())
    assert found == ["record 3: its job has published before"]


def test_the_commitment_is_not_the_content_hash_and_differs_by_dataset(harness, chain):
    """Else any owner could have candidate tables hashed and compare: see Keys.commitment."""
    with harness.db.read() as connection:
        mac = connection.execute(select(datasets.c.content_mac)).scalar_one()
    published = chain[0]["body"]["data_commitment"]
    keys = harness.settings.keys
    assert published != mac and published == keys.commitment(harness.dataset, mac)
    assert published != keys.commitment("ds_other", mac)


def test_a_chain_restored_from_an_old_backup_lacks_the_head_somebody_holds(harness, chain):
    key, head = harness.settings.keys.public_hex(), chain[-1]["hash"]
    assert verify_chain(chain[:2], key) == []
    assert "does not contain the head" in verify_chain(chain[:2], key, head=head)[0]


def test_another_services_key_does_not_verify(harness, chain):
    assert len(verify_chain(chain, "00" * 31 + "01")) >= 3


@pytest.mark.parametrize("change", [update(audit_records).values(body="{}"), delete(audit_records)])
def test_the_database_refuses_to_change_records(harness, chain, change):
    with pytest.raises(DatabaseError, match="append-only"), harness.db.write() as connection:
        connection.execute(change)
