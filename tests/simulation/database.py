"""A real SQLite database with a simulated clock, whose every write transaction has a fate.

Who writes is a greenlet. Before each of its transactions it hands control back, and it goes on when
the scheduler resumes it, with the fate of that transaction: so one thread plays any interleaving of
transactions, and a crash between any two of them, as it is told and again when it is told again.
"""

import random
import secrets
import sqlite3
from contextlib import contextmanager
from enum import Enum
from unittest.mock import patch

from greenlet import getcurrent, greenlet
from sqlalchemy import event

from service.db import Database, away

DAY_MS = 86_400_000
EPOCH_DAYS = 2440587.5  # the Julian day of 1970
START_MS = 1_800_000_000_000


class Died(BaseException):
    """The process is gone: nothing of it runs any more."""


class Fate(Enum):
    FINE = "fine"
    DIES_BEFORE = "dies before the commit"
    DIES_AFTER = "dies after the commit"
    AWAY = "the database is away"
    ANSWER_LOST = "commits, and the answer is lost"


BEFORE = {Fate.DIES_BEFORE: Died, Fate.AWAY: lambda: away("simulated: away")}
AFTER = {Fate.DIES_AFTER: Died, Fate.ANSWER_LOST: lambda: away("simulated: no answer to COMMIT")}


class SimulatedDatabase(Database):
    def __init__(self, path):
        super().__init__(f"sqlite:///{path}", pool_size=1)
        self.now_ms, self.changes = START_MS, 0
        for engine in (self._writer, self._reader):
            event.listen(engine, "connect", self._simulate)

    def _simulate(self, connection, record):
        """The clock behind `now_ms`; and no wait for a disk, as nothing here survives the process."""

        def julianday(when):
            assert when == "now"
            return EPOCH_DAYS + (self.now_ms + 0.5) / DAY_MS  # the half: it is cut to milliseconds

        connection.create_function("julianday", 1, julianday)
        for pragma in ("journal_mode=MEMORY", "synchronous=OFF"):
            connection.execute(f"PRAGMA {pragma}")

    @contextmanager
    def write(self):
        actor = getcurrent()
        fate = actor.parent.switch() if isinstance(actor, Actor) else Fate.FINE
        with super().write() as connection:
            yield connection
            if fate in BEFORE:
                raise BEFORE[fate]()
            changed = connection.connection.driver_connection.total_changes
        self.changes = changed
        if fate in AFTER:
            raise AFTER[fate]()

    def load(self, content):
        """Become a copy of another database, with the clock at its start."""
        connection = self._writer.raw_connection()
        content.backup(connection.driver_connection)
        connection.close()
        self.now_ms, self.changes = START_MS, 0

    def content(self):
        copy = sqlite3.connect(":memory:")
        connection = self._writer.raw_connection()
        connection.driver_connection.backup(copy)
        connection.close()
        return copy


class Lock:
    """In place of a thread's: who waits for it hands control back, and looks again when resumed."""

    def __init__(self):
        self._held = False

    def __enter__(self):
        while self._held:
            if getcurrent().parent.switch() in (Fate.DIES_BEFORE, Fate.DIES_AFTER):
                raise Died
        self._held = True

    def __exit__(self, *error):
        self._held = False


class Actor(greenlet):
    """A process of the service, or of a client, between two of its transactions."""

    def __init__(self, name, run):
        super().__init__(run)
        self.name = name
        assert not isinstance(self.parent, Actor)  # whom it hands control back to: the scheduler

    def go(self, fate=Fate.FINE):
        """Up to its next transaction, or its end."""
        self.switch() if not self else self.switch(fate)


@contextmanager
def seeded(seed):
    """Ids and keys as the seed has them: a history that is played again is the same to the bit."""
    drawn = random.Random(seed)
    with (
        patch.object(secrets, "token_bytes", drawn.randbytes),
        patch.object(secrets, "token_hex", lambda count: drawn.randbytes(count).hex()),
    ):
        yield
