"""One hash chain per dataset: each release adds a signed record that names the one before.

A record's hash is the SHA-256 of its canonical JSON; the signature is Ed25519 over that hash with a
prefix that no other use of the key has. The head (length and hash) is what an auditor keeps: a
database restored from an older backup shows a shorter chain than the head somebody holds.
"""

from typing import Any

from sqlalchemy import Row, bindparam, insert, update

from service.db import iso
from service.keys import Keys
from service.planning.plan import canonical_json, sha256
from service.tables import audit_records, datasets

RECORD_VERSION = 2  # 1 compared the cap at the ceiling's order
GENESIS = "0" * 64
SIGNATURE_PREFIX = b"epsilond audit record\n"


# what adds a record, with the values that `next_record` makes
APPEND = (
    insert(audit_records).values(
        dataset_id=bindparam("record_dataset"),
        seq=bindparam("record_seq"),
        job_id=bindparam("record_job"),
        body=bindparam("record_body"),
        hash=bindparam("record_hash"),
        signature=bindparam("record_signature"),
    ),
    update(datasets)
    .where(datasets.c.id == bindparam("record_dataset"))
    .values(chain_length=bindparam("record_seq"), chain_head=bindparam("record_hash")),
)


def next_record(
    keys: Keys, dataset: Row[Any], at_ms: int, *, job_id: str, body: dict[str, Any]
) -> dict[str, Any]:
    """The next record; the caller holds the lock of the dataset's row, and this is it."""
    seq = dataset.chain_length + 1
    record = {
        "record": RECORD_VERSION,
        "dataset": dataset.id,
        "data_commitment": keys.commitment(dataset.id, dataset.content_mac),
        "seq": seq,
        "previous": dataset.chain_head or GENESIS,
        "job": job_id,
        "published_at": iso(at_ms),
    } | body
    text = canonical_json(record)
    digest = sha256(text)
    signature = keys.signing.sign(SIGNATURE_PREFIX + bytes.fromhex(digest))
    return {
        "record_dataset": dataset.id,
        "record_seq": seq,
        "record_job": job_id,
        "record_body": text,
        "record_hash": digest,
        "record_signature": signature.hex(),
    }
