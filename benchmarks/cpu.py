"""How many seconds of processor a group of processes took, as Linux counts them.

Rates depend on whatever else a machine does; these hardly do.
"""

import os
from pathlib import Path

from sqlalchemy import text

TICKS = os.sysconf("SC_CLK_TCK")


def used(pids):
    """User and system time of these processes so far; those that are gone count nothing."""
    return sum(_of(pid) for pid in pids) / TICKS


def _of(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def with_children(pid):
    """A process and all below it."""
    found = [pid]
    for parent in found:
        lists = Path(f"/proc/{parent}/task").glob("*/children")
        found += [int(child) for path in lists for child in path.read_text().split()]
    return found


def backends(db):
    """PostgreSQL's processes that serve this database, where they run on this machine; none for
    SQLite, whose work is its callers'."""
    if db.is_sqlite:
        return []
    mine = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    with db.read() as connection:
        pids = connection.execute(text(mine)).scalars().all()
    return [pid for pid in pids if _is_postgres(pid)]


def _is_postgres(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("postgres")
    except OSError:
        return False


class Meter:
    """Processor time of named groups between `begin` and `end`. Groups are asked for at both ends; a
    process that came in between counts from its start."""

    def __init__(self, **groups):
        self._groups = groups

    def begin(self):
        self._before = {
            name: {pid: used([pid]) for pid in pids()} for name, pids in self._groups.items()
        }

    def end(self):
        self.seconds = {
            name: sum(used([pid]) - self._before[name].get(pid, 0.0) for pid in pids())
            for name, pids in self._groups.items()
        }

    def per(self, count):
        """Milliseconds each, by group."""
        return {name: 1000 * seconds / max(1, count) for name, seconds in self.seconds.items()}
