"""One hash chain per dataset: each release adds a signed record that names the one before.

A record's hash is the SHA-256 of its canonical JSON; the signature is Ed25519 over that hash with a
prefix that no other use of the key has. The head (length and hash) is what an auditor keeps: a
database restored from an older backup shows a shorter chain than the head somebody holds.
"""

from typing import Any

from sqlalchemy import Connection, insert, select, update

from service.db import iso, lock, now_ms
from service.keys import Keys
from service.planning.plan import canonical_json, sha256
from service.tables import audit_records, datasets

RECORD_VERSION = 2  # 1 compared the cap at the ceiling's order
GENESIS = "0" * 64
SIGNATURE_PREFIX = b"epsilond audit record\n"


def append_record(
    connection: Connection, keys: Keys, *, dataset_id: str, job_id: str, body: dict[str, Any]
) -> None:
    """Add the next record, under the lock of the dataset's row."""
    dataset = lock(connection, datasets, dataset_id)
    seq = dataset.chain_length + 1
    record = {
        "record": RECORD_VERSION,
        "dataset": dataset_id,
        "data_commitment": keys.commitment(dataset_id, dataset.content_mac),
        "seq": seq,
        "previous": dataset.chain_head or GENESIS,
        "job": job_id,
        "published_at": iso(connection.execute(select(now_ms())).scalar_one()),
    } | body
    text = canonical_json(record)
    digest = sha256(text)
    signature = keys.signing.sign(SIGNATURE_PREFIX + bytes.fromhex(digest))
    connection.execute(
        insert(audit_records).values(
            dataset_id=dataset_id,
            seq=seq,
            job_id=job_id,
            body=text,
            hash=digest,
            signature=signature.hex(),
        )
    )
    connection.execute(
        update(datasets)
        .where(datasets.c.id == dataset_id)
        .values(chain_length=seq, chain_head=digest)
    )
