"""One look at the database per tick, however many clients listen.

While anybody listens, one task of the process reads what is new in the feed (service/changes.py) and
the progress of running jobs, writes each event once as text, and hands it to the listeners that may
see it. With several processes each looks for itself; the database is what they share.

Events say what GET job and GET ledger say, to the same people: who sees an event is decided by the
grants at the moment it is read.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakSet

from anyio import CapacityLimiter, to_thread
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from sqlalchemy import Connection, Row, select, tuple_

from service.api.auth import Caller
from service.api.credentials import valid_credentials
from service.changes import assign_positions, changes_after, position_range, unread_changes
from service.db import Database, iso
from service.errors import InvalidRequest, TooManyRequests, Unavailable
from service.jobs.states import ENDED
from service.keys import Keys
from service.planning.plan import canonical_json
from service.tables import accounts, datasets, entries, grants, jobs

log = logging.getLogger("epsilond.api")

TICK_SECONDS = 0.25
HEARTBEAT_SECONDS = 15.0
RETRY_MS = 2000
_READY_SECONDS = 5.0  # to wait for a first look at the database
_CREDENTIALS_EVERY = 4  # ticks
_WAITING_MAX = 1000  # events that a slow client may leave unread before its stream ends
_MISSED_MAX = 10_000  # everyone's changes that are searched for what one client missed
EVERYTHING = ("admin", "auditor")


@dataclass(frozen=True)
class Event:
    text: str  # as it goes over the wire, but for its id
    audience: frozenset[str]  # principals, beside administrators and auditors
    job_id: str | None = None
    number: int | None = None  # of a job's event
    position: int | None = None  # in the feed; progress has none
    ends: bool = False  # nothing will follow for this job

    def seen_by(self, me: Caller) -> bool:
        return me.role in EVERYTHING or me.id in self.audience


@dataclass(eq=False)
class Listener:
    """One open stream or waiting request. None in its queue means: end."""

    me: Caller
    job_id: str | None
    queue: asyncio.Queue[Event | None] = field(
        default_factory=lambda: asyncio.Queue(_WAITING_MAX + 1)
    )
    revoked: bool = False

    def offer(self, event: Event) -> None:
        wanted = self.job_id in (None, event.job_id) and event.seen_by(self.me)
        if self.revoked or not wanted:
            return
        if self.queue.qsize() < _WAITING_MAX:
            self.queue.put_nowait(event)
        else:
            self.end()

    def end(self) -> None:
        if not self.queue.full():
            self.queue.put_nowait(None)

    async def next(self, seconds: float) -> Event | None:
        """The next event, or None at the end; TimeoutError if neither comes in time."""
        return await asyncio.wait_for(self.queue.get(), seconds)


@dataclass(frozen=True)
class _Look:
    position: int
    events: list[Event]
    running: dict[str, Event]


class Feed:
    def __init__(self, db: Database, keys: Keys, streams_max: int, streams_max_each: int) -> None:
        self._db, self._streams_max, self._streams_max_each = db, streams_max, streams_max_each
        self._cipher = Cipher(AES(keys.derive("event ids")), ECB())  # noqa: S305 - of one block
        self._listeners: WeakSet[Listener] = WeakSet()
        self._wanted, self._ready = asyncio.Event(), asyncio.Event()
        self._thread = CapacityLimiter(1)  # of its own: busy requests do not delay it
        self._position: int | None = None
        self._running: dict[str, Event] = {}
        self.stopping = False

    # --- for those who listen

    async def join(self, me: Caller, job_id: str | None = None) -> Listener:
        """From here on, what comes after the feed's position arrives in the listener's queue."""
        if self.stopping or len(self._listeners) >= self._streams_max:
            raise Unavailable(
                "this process holds as many streams as it may, or is stopping; try again shortly."
            )
        own = sum(listener.me.id == me.id for listener in self._listeners)
        if own >= self._streams_max_each:
            raise TooManyRequests(
                f"{own} of your streams and waiting requests are open here; close one first."
            )
        listener = Listener(me, job_id)
        self._listeners.add(listener)
        self._wanted.set()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._ready.wait()
        except asyncio.CancelledError:  # it waited long enough, or nobody waits any more
            self.leave(listener)
            raise
        except TimeoutError:
            self.leave(listener)
            raise Unavailable("the database does not answer; try again shortly.") from None
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    @property
    def position(self) -> int:
        return self._position or 0

    def in_progress(self, me: Caller, job_id: str | None = None) -> list[Event]:
        """The running jobs as last seen, for a stream that begins."""
        return [
            event
            for event in self._running.values()
            if job_id in (None, event.job_id) and event.seen_by(me)
        ]

    async def since(self, position: int, me: Caller) -> list[Event] | None:
        """The events after a position up to the present one, or None if the feed has forgotten some of
        them. The caller has joined already, so what comes later is in its queue."""
        until = self.position

        def read() -> list[Event] | None:
            events: list[Event] = []
            after = position
            with self._db.read() as connection:
                oldest, newest = position_range(connection)
                if not oldest - 1 <= position <= newest or until - position > _MISSED_MAX:
                    return None
                while after < until:
                    batch = [r for r in changes_after(connection, after) if r.position <= until]
                    events += [e for e in _events(connection, batch) if e.seen_by(me)]
                    after = batch[-1].position
                    if len(events) > _WAITING_MAX:
                        return None
            return events

        return await to_thread.run_sync(read)

    def event_id(self, position: int, salt: bytes = bytes(4)) -> str:
        """A position as clients see it: plain numbers would tell everyone how much others do. One that
        is not that of an event which the client sees is salted, so that two of them tell nothing."""
        block = position.to_bytes(8) + bytes(4) + salt
        return self._cipher.encryptor().update(block).hex()

    def present_id(self) -> str:
        """For a stream that begins; were it the same for the same position, whoever connects twice
        would know whether anybody did anything in between."""
        return self.event_id(self.position, secrets.token_bytes(4))

    def position_of(self, event_id: str) -> int:
        try:
            block = bytes.fromhex(event_id)
        except ValueError:
            block = b""
        plain = self._cipher.decryptor().update(block) if len(block) == 16 else b""
        position, check = int.from_bytes(plain[:8]), plain[8:12]
        if check != bytes(4) or position >= 2**48:
            raise InvalidRequest(
                "Last-Event-ID is not the id of an event of this stream; leave it out to begin now."
            )
        return position

    def open_streams(self) -> int:
        return len(self._listeners)

    # --- the task

    async def run(self) -> None:
        """Look, deliver, sleep; sleep until somebody comes while nobody listens."""
        ticks = 0
        while not self.stopping:
            await self._wanted.wait()
            ticks += 1
            try:
                look = await to_thread.run_sync(self._look, limiter=self._thread)
                if look.events or ticks % _CREDENTIALS_EVERY == 0:
                    await self._end_revoked()  # after the look: no event that came later is heard
                self._deliver(look)
            except Exception as error:  # whatever it was, those who listen wait for the next look
                log.warning("the feed will look again: %s", type(error).__name__)
            if not self._listeners:
                self._wanted.clear()
                self._ready.clear()
                self._position = None
            await asyncio.sleep(TICK_SECONDS)
        self.end()

    def end(self) -> None:
        """Every stream ends, and no other begins."""
        self.stopping = True
        self._ready.set()
        for listener in list(self._listeners):
            listener.end()

    async def _end_revoked(self) -> None:
        credentials = {listener.me.credential for listener in self._listeners}

        def read() -> set[str]:
            with self._db.read() as connection:
                return credentials - valid_credentials(connection, credentials)

        gone = await to_thread.run_sync(read, limiter=self._thread)
        for listener in list(self._listeners):
            if listener.me.credential in gone:
                listener.revoked = True
                listener.end()

    def _look(self) -> _Look:
        position, events = self._position, list[Event]()
        while True:
            with self._db.read() as connection:
                batch = unread_changes(connection, position)
                if all(row.position is not None for row in batch):
                    if position is None:
                        position = position_range(connection)[1]
                    if not batch:
                        return _Look(position, events, _progress(connection))
                    events += _events(connection, batch)
                    position = batch[-1].position
                    continue
            assign_positions(self._db)

    def _deliver(self, look: _Look) -> None:
        events = list(look.events)
        if self._position is not None:
            events += [e for id_, e in look.running.items() if self._running.get(id_) != e]
        self._position, self._running = look.position, look.running
        self._ready.set()
        for listener in list(self._listeners):
            for event in events:
                listener.offer(event)


def wire(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {canonical_json(data)}\n"


def job_event(row: Any, *, number: int, type_: str, created_ms: int) -> Event:
    """`row` is a job with its dataset's owner. Only what never changes, so that a stream that resumes
    says the same; how far a job is comes as progress."""
    data = {
        "object": "event",
        "id": number,
        "type": type_,
        "job": row.id,
        "dataset": row.dataset_id,
        "created_at": iso(created_ms),
    }
    audience = frozenset((row.principal_id, row.owner_id))
    return Event(wire("job", data), audience, row.id, number, ends=type_ in ENDED)


_JOB = select(
    jobs.c.id,
    jobs.c.dataset_id,
    jobs.c.principal_id,
    jobs.c.state,
    jobs.c.steps_done,
    jobs.c.steps_total,
    jobs.c.opened_ms,
    datasets.c.owner_id,
).join(datasets, datasets.c.id == jobs.c.dataset_id)


def _progress(connection: Connection) -> dict[str, Event]:
    """The jobs that run now: no feed, only how far each is."""
    running = {}
    for row in connection.execute(_JOB.where(jobs.c.state.in_(("running", "cancelling")))):
        data = {
            "object": "progress",
            "job": row.id,
            "dataset": row.dataset_id,
            "state": row.state,
            "progress": {"steps_done": row.steps_done, "steps_total": row.steps_total},
            "data_opened": row.opened_ms is not None,
        }
        audience = frozenset((row.principal_id, row.owner_id))
        running[row.id] = Event(wire("progress", data), audience, row.id)
    return running


def _events(connection: Connection, batch: Sequence[Row[Any]]) -> list[Event]:
    """Rows of the feed as events, with those who may see them."""
    job_ids = {row.job_id for row in batch if row.job_id is not None}
    account_ids = {row.account_id for row in batch if row.account_id is not None}
    by_id = {row.id: row for row in connection.execute(_JOB.where(jobs.c.id.in_(job_ids)))}
    spenders = _spenders(connection, account_ids)
    written = _entries(connection, batch)
    events = []
    for row in batch:
        if row.job_id is not None:
            made = job_event(
                by_id[row.job_id], number=row.number, type_=row.type, created_ms=row.created_ms
            )
            events.append(replace(made, position=row.position))
            continue
        everyone = frozenset[str]()
        shared = spenders[row.account_id]
        for dataset, granted in shared:
            dataset_id = dataset.dataset_id
            entry = written[row.account_id, row.number]
            theirs = entry.job_id is None or (
                dataset.shared_ledger and entry.dataset_id == dataset_id
            )
            seen = granted if theirs else granted & {entry.principal_id}
            audience = seen | {dataset.owner_id}
            data = {
                "object": "event",
                "type": "budget",
                "dataset": dataset_id,
                "entry": row.number,
                "kind": row.type,
                "created_at": iso(row.created_ms),
            }
            position = row.position if len(shared) == 1 else None
            events.append(Event(wire("budget", data), audience, position=position))
            everyone |= audience
        if len(shared) > 1:  # the id comes after all of them, so that none is lost in between
            events.append(Event("", everyone, position=row.position))
    return events


def _entries(connection: Connection, batch: Sequence[Row[Any]]) -> dict[tuple[str, int], Row[Any]]:
    """The ledger's entries that these rows are about."""
    wanted = [(row.account_id, row.number) for row in batch if row.account_id is not None]
    if not wanted:
        return {}
    of = tuple_(entries.c.account_id, entries.c.seq)
    query = select(entries).where(of.in_(wanted))
    return {(row.account_id, row.seq): row for row in connection.execute(query)}


def _spenders(
    connection: Connection, account_ids: set[str]
) -> dict[str, list[tuple[Any, frozenset[str]]]]:
    """The datasets that spend from each account, and whom each is granted to. They see of its budget
    what GET ledger shows them."""
    if not account_ids:
        return {}
    rows = connection.execute(
        select(
            accounts.c.id,
            datasets.c.id.label("dataset_id"),
            datasets.c.owner_id,
            datasets.c.shared_ledger,
            grants.c.principal_id,
        )
        .join(datasets, datasets.c.lineage_id == accounts.c.lineage_id)
        .outerjoin(grants, grants.c.dataset_id == datasets.c.id)
        .where(accounts.c.id.in_(account_ids))
        .order_by(datasets.c.id)
    )
    found: dict[str, dict[str, tuple[Any, set[str]]]] = defaultdict(dict)
    for row in rows:
        _, granted = found[row.id].setdefault(row.dataset_id, (row, set()))
        granted |= {row.principal_id} - {None}
    return defaultdict(
        list,
        {
            account: [(row, frozenset(granted)) for row, granted in spending.values()]
            for account, spending in found.items()
        },
    )
