"""From an upload's bytes to a ready dataset.

Nothing is in the database until everything is on disk: the bytes go to incoming/, an ingestion process
encodes them into a folder of the same name, and one transaction then ties that folder to the dataset.
A crash anywhere before it leaves only files that no row names and no process has locked, which
`sweep_unused` removes.
"""

import errno
import json
import secrets
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from anyio import to_thread
from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import NoResultFound

from service.config import Settings
from service.datasets.ingest import (
    NO_SPACE,
    DiskFullError,
    IngestCrashed,
    IngestKilledError,
    IngestRequest,
    IngestResult,
    run_ingest,
)
from service.datasets.read import Format, IngestLimitError, ParseError
from service.datasets.report import Report
from service.datasets.schema import Schema
from service.datasets.store import (
    REPORT,
    abandoned,
    dataset_folder,
    delete_data,
    forget_incoming,
    new_incoming,
    remove_upload,
    uploaded_names,
)
from service.db import Database, lock, new_id, now_ms
from service.errors import (
    DataAlreadyUploaded,
    DatasetNotReady,
    InsufficientStorage,
    InvalidRequest,
    NotFound,
    ParseRefused,
    Problem,
    Unavailable,
)
from service.tables import datasets, lineages, principals


async def receive(settings: Settings, dataset: Row[Any], chunks: AsyncIterable[bytes]) -> IO[bytes]:
    """Stream the body to a file of its own; on any failure the file is gone again."""
    _check_empty(dataset)
    with _space_needed():
        file = new_incoming(settings.data_dir, dataset.id)
        try:
            async for chunk in chunks:
                await to_thread.run_sync(file.write, chunk)
            await to_thread.run_sync(file.flush)
        except BaseException:
            forget_incoming(file)
            raise
    return file


def finish_upload(
    db: Database,
    settings: Settings,
    dataset: Row[Any],
    file: IO[bytes],
    format_: Format,
    *,
    refuse_above: float | None = None,
    dry_run: bool = False,
) -> Report:
    """Encode the file and make the dataset ready, or refuse and leave nothing behind; after a dry run
    nothing is left either way.

    If the database gave no answer, it may have made the dataset ready: then the folder stays, and a
    sweep that asks again decides.
    """
    name = Path(file.name).name
    folder = dataset_folder(settings.data_dir, name)
    try:
        with _space_needed():
            result = _ingest(settings, dataset, file, format_, folder, refuse_above)
        if dry_run:
            delete_data(folder)
            return result.report
        try:
            with db.write() as connection:
                _make_ready(connection, dataset.id, name, result)
        except (Problem, NoResultFound):
            delete_data(folder)
            raise
    finally:
        forget_incoming(file)
    return result.report


def read_report(settings: Settings, dataset: Row[Any]) -> Report:
    """What ingestion did to the rows; for the owner alone."""
    if dataset.state != "ready":
        raise DatasetNotReady(f"it is {dataset.state}: there is no data to report on.")
    try:
        text = (dataset_folder(settings.data_dir, dataset.folder) / REPORT).read_text()
    except FileNotFoundError:
        raise NotFound(
            "the data was uploaded before there were reports, or is just gone."
        ) from None
    return Report.model_validate_json(text)


@contextmanager
def _space_needed() -> Iterator[None]:
    try:
        yield
    except (DiskFullError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EFBIG, *NO_SPACE):
            raise
        raise InsufficientStorage(
            "the disk is full; nothing was stored. Send the file again once an administrator has made "
            "space."
        ) from None


def _ingest(
    settings: Settings,
    dataset: Row[Any],
    file: IO[bytes],
    format_: Format,
    folder: Path,
    refuse_above: float | None,
) -> IngestResult:
    folder.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    request = IngestRequest(
        source=Path(file.name),
        format=format_.name,
        schema=Schema.model_validate_json(dataset.schema),
        out_dir=folder,
        content_key=settings.keys.derive("content").hex(),
        shuffle_key=secrets.token_hex(32),
        max_rows=settings.rows_max,
        cpu_seconds=settings.ingest_cpu_seconds,
        memory_bytes=settings.ingest_memory_bytes,
        refuse_above=refuse_above,
    )
    try:
        return run_ingest(request, (file.fileno(),))
    except ParseError as error:
        where = "" if error.row is None else f"row {error.row}: "
        where += "" if error.column is None else f"column {error.column!r}: "
        raise ParseRefused(f"{where}{error.reason}", row=error.row, column=error.column) from None
    except IngestLimitError as error:
        raise ParseRefused(
            f"reading the file exceeds the service's limit on {error.limit}."
        ) from None
    except IngestKilledError:
        raise Unavailable(
            "the process that reads the file was ended from outside; nothing was stored. Send it "
            "again; if that happens each time, the machine may lack the memory to read it."
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
    ).scalar_one()  # no row: it was deleted meanwhile
    lock(connection, principals, owner_id)
    dataset = lock(connection, datasets, dataset_id)
    _check_empty(dataset)
    known = connection.execute(
        select(datasets.c.lineage_id)
        .where(
            datasets.c.owner_id == owner_id,
            datasets.c.content_mac.in_((result.content_mac, result.earlier_mac)),
        )
        .order_by(datasets.c.created_ms, datasets.c.id)
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
                    "rows": result.rows - result.held_out,
                    "held_out": result.held_out,
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
    data, ready = settings.data_dir, datasets.c.state == "ready"
    names = uploaded_names(data)
    with db.read() as connection:
        names -= set(connection.execute(select(datasets.c.folder).where(ready)).scalars())
    for name in names:
        with abandoned(data, name) as nobodys:
            if nobodys and not _is_ready(db, name):
                remove_upload(data, name)


def _is_ready(db: Database, name: str) -> bool:
    """Whether a dataset has this folder. Under its lock: whoever was about to say so, and is gone, may
    have a commit on its way, and holds the lock until that has happened or cannot any more."""
    of = datasets.c.id == name.rpartition("_")[0]
    with db.write() as connection:
        row = connection.execute(
            select(datasets.c.state, datasets.c.folder).where(of).with_for_update(key_share=True)
        ).first()
    return row is not None and (row.state, row.folder) == ("ready", name)


def _check_empty(dataset: Row[Any]) -> None:
    if dataset.state != "empty":
        raise DataAlreadyUploaded(
            "declare another dataset for other rows (with same_people_as if they are about the "
            "same people)."
        )
