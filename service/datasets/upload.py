"""From an upload's bytes to a ready dataset.

Nothing is in the database until everything is on disk: the bytes go to incoming/, an ingestion process
encodes them into a folder with a name of its own, and one transaction then ties that folder to the
dataset. A crash anywhere before it leaves only files that no row names, which `sweep_unused` removes.
"""

import errno
import json
import os
import secrets
import time
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

from anyio import to_thread
from sqlalchemy import Connection, Row, insert, select, update

from service.config import Settings
from service.datasets.ingest import IngestCrashed, IngestRequest, IngestResult, run_ingest
from service.datasets.read import Format, IngestLimitError, ParseError
from service.datasets.schema import Schema
from service.datasets.store import dataset_folder, delete_data, new_incoming, sweep
from service.db import Database, lock, new_id, now_ms
from service.errors import (
    DataAlreadyUploaded,
    DatasetNotReady,
    InvalidRequest,
    ParseRefused,
    Unavailable,
)
from service.tables import datasets, lineages, principals

_LEFTOVER_SECONDS = 24 * 3600


async def receive(settings: Settings, dataset: Row[Any], chunks: AsyncIterable[bytes]) -> Path:
    """Stream the body to a file of its own; on any failure the file is gone again."""
    _check_empty(dataset)
    path = new_incoming(settings.data_dir)
    try:
        with path.open("wb") as file:
            async for chunk in chunks:
                await to_thread.run_sync(file.write, chunk)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Unavailable("there is no disk space to store the upload.") from None
        raise
    return path


def finish_upload(
    db: Database, settings: Settings, dataset: Row[Any], path: Path, format_: Format
) -> None:
    """Encode the file and make the dataset ready, or refuse and leave nothing behind."""
    name = f"{dataset.id}_{secrets.token_hex(4)}"
    folder = dataset_folder(settings.data_dir, name)
    try:
        result = _ingest(settings, dataset, path, format_, folder)
    finally:
        path.unlink(missing_ok=True)
    try:
        with db.write() as connection:
            _make_ready(connection, dataset.id, name, result)
    except BaseException:
        delete_data(folder)
        raise


def _ingest(
    settings: Settings, dataset: Row[Any], path: Path, format_: Format, folder: Path
) -> IngestResult:
    folder.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    request = IngestRequest(
        source=path,
        format=format_.name,
        schema=Schema.model_validate_json(dataset.schema),
        out_dir=folder,
        content_key=settings.keys.derive("content").hex(),
        shuffle_key=secrets.token_hex(32),
        max_rows=settings.rows_max,
        cpu_seconds=settings.ingest_cpu_seconds,
        memory_bytes=settings.ingest_memory_bytes,
    )
    try:
        return run_ingest(request)
    except ParseError as error:
        where = "" if error.row is None else f"row {error.row}: "
        where += "" if error.column is None else f"column {error.column!r}: "
        raise ParseRefused(f"{where}{error.reason}", row=error.row, column=error.column) from None
    except IngestLimitError as error:
        raise ParseRefused(
            f"reading the file exceeds the service's limit on {error.limit}."
        ) from None
    except IngestCrashed:
        raise ParseRefused("the file could not be read; is it what its type says?") from None


def _make_ready(connection: Connection, dataset_id: str, name: str, result: IngestResult) -> None:
    """Tie the folder to the dataset, and the dataset to the people it is about.

    Under the owner's lock, so that the same content uploaded twice at once finds itself: identical
    content joins its lineage, and so its account, however often it is uploaded.
    """
    owner_id = connection.execute(
        select(datasets.c.owner_id).where(datasets.c.id == dataset_id)
    ).scalar_one()
    lock(connection, principals, owner_id)
    dataset = lock(connection, datasets, dataset_id)
    _check_empty(dataset)
    known = connection.execute(
        select(datasets.c.lineage_id).where(
            datasets.c.owner_id == owner_id, datasets.c.content_mac == result.content_mac
        )
    ).scalar()
    lineage_id = dataset.lineage_id or known or new_id("lin")
    if known is not None and known != lineage_id:
        raise InvalidRequest(
            "this very data is already in a dataset of other people; leave same_people_as out."
        )
    if lineage_id not in (dataset.lineage_id, known):
        connection.execute(
            insert(lineages).values(id=lineage_id, owner_id=owner_id, created_ms=now_ms())
        )
    connection.execute(
        update(datasets)
        .where(datasets.c.id == dataset_id)
        .values(
            state="ready",
            folder=name,
            lineage_id=lineage_id,
            content_mac=result.content_mac,
            facts=json.dumps(
                {
                    "rows": result.rows,
                    "columns": result.columns,
                    "storage": result.storage,
                    "feature_step": result.feature_step,
                    "linf_units": result.linf_units,
                    "l2_units": result.l2_units,
                    "label": result.label_kind,
                    "classes": result.classes,
                }
            ),
        )
    )


def delete_dataset_data(db: Database, settings: Settings, dataset_id: str) -> None:
    """Delete the rows; ledger and audit chain stay, and the content stays known to its lineage."""
    with db.write() as connection:
        # the strongest lock: it waits for jobs that are about to open the data
        query = select(datasets).where(datasets.c.id == dataset_id).with_for_update()
        dataset = connection.execute(query).one()
        if dataset.state != "ready":
            raise DatasetNotReady(f"it is {dataset.state}: there is no data to delete.")
        connection.execute(
            update(datasets).where(datasets.c.id == dataset_id).values(state="deleted")
        )
    delete_data(dataset_folder(settings.data_dir, dataset.folder))


def sweep_unused(db: Database, settings: Settings) -> None:
    """Remove what crashes left behind: half-received, half-written, unnamed or deleted."""
    sweep(settings.data_dir, _LEFTOVER_SECONDS)
    with db.read() as connection:
        used = set(
            connection.execute(
                select(datasets.c.folder).where(datasets.c.state == "ready")
            ).scalars()
        )
    horizon = time.time() - _LEFTOVER_SECONDS
    root = settings.data_dir / "datasets"
    for entry in os.scandir(root) if root.is_dir() else ():
        if entry.name not in used and entry.stat().st_mtime < horizon:
            delete_data(Path(entry.path))


def _check_empty(dataset: Row[Any]) -> None:
    if dataset.state != "empty":
        raise DataAlreadyUploaded(
            "declare another dataset for other rows (with same_people_as if they are about the "
            "same people)."
        )
