"""Programs that are started, killed, stopped and started again, as a machine's init would."""

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress

PAUSE_SECONDS = 0.3  # before a program that ended is started again


def running():
    """(process, its parent, its command) of all that are alive."""
    listed = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,stat=,command="], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        pid, parent, state, *command = line.split(maxsplit=3)
        if not state.startswith("Z"):
            yield int(pid), int(parent), "".join(command)


def children(pid, command=""):
    """Processes that this one started; those whose command has this in it."""
    return sorted(p for p, parent, words in running() if parent == pid and command in words)


def send(number, targets):
    for pid in targets:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Program:
    """One command, in a session of its own. `wanted` says that it should be running."""

    def __init__(self, name, command, log, environment, prefix=(), cwd=None):
        self.name, self.log = name, log
        self._command = [str(word) for word in (*prefix, *command)]
        self._environment, self._cwd = environment, cwd
        self.process, self.wanted, self.ended_by_itself = None, False, 0
        self._lock = threading.Lock()

    @property
    def pid(self):
        return self.process.pid

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        with self._lock:
            self.wanted = True
            self._launch()

    def _launch(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep(self):
        """Start it again if it ended although it is wanted."""
        with self._lock:
            if self.wanted and not self.alive:
                self.ended_by_itself += 1
                time.sleep(PAUSE_SECONDS)
                self._launch()

    def all(self):
        """Itself, its children and theirs; PostgreSQL's are in sessions of their own."""
        family, found = [self.pid], [(pid, parent) for pid, parent, _ in running()]
        for pid in family:
            family += [child for child, parent in found if parent == pid]
        return family

    def kill(self):
        """kill -9 of all of it. Stopped first, so that it starts nothing more meanwhile."""
        with self._lock:
            self.wanted = False
            if not self.alive:
                return
            os.kill(self.pid, signal.SIGSTOP)
            send(signal.SIGKILL, reversed(self.all()))
            self.process.wait()

    def kill_parent(self):
        """kill -9 of the process that was started, and not of what it started."""
        with self._lock:
            self.wanted = False
            if self.alive:
                os.kill(self.pid, signal.SIGKILL)
                self.process.wait()

    @contextmanager
    def stopped(self, targets=None):
        """SIGSTOP, and at the end SIGCONT."""
        held = self.all() if targets is None else targets
        send(signal.SIGSTOP, held)
        try:
            yield
        finally:
            send(signal.SIGCONT, held)


class Keeper(threading.Thread):
    """Starts what ended, whether it was killed or gave up: Docker's `restart: always`."""

    def __init__(self, programs):
        super().__init__(name="keeper", daemon=True)
        self._programs, self._over = programs, threading.Event()

    def run(self):
        while not self._over.wait(0.1):
            for program in self._programs:
                program.keep()

    def stop(self):
        self._over.set()
        if self.is_alive():
            self.join()
