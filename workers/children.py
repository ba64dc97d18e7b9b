"""The Celery worker's parent and its children: a socket between them, in a folder of the parent's.

A child says which job it holds, so that the parent can give it back when the child dies; the parent
hangs up when it is to stop, and the child takes no more jobs.
"""

import socket
import tempfile
import threading
from pathlib import Path

from service.config import Settings
from service.db import Database
from service.jobs.supervise import follow
from workers.worker import Worker


class Children:
    """In the parent: made before the first fork, so that every child knows where to connect."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="epsilond-")
        self._path = str(Path(self._folder.name) / "parent")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen(128)
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="epsilond-children", daemon=True).start()

    def start_worker(self) -> Worker:
        """In a child: its worker, which is stopped when the parent hangs up."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        worker = Worker(self._settings, connection.sendall)

        def listen() -> None:
            connection.recv(1)
            worker.stop()

        for target in (listen, worker.run):
            threading.Thread(target=target, daemon=True).start()
        return worker

    def stop(self) -> None:
        for connection in list(self._connections):
            connection.shutdown(socket.SHUT_WR)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self._connections.add(connection)
            threading.Thread(target=self._follow, args=(connection,), daemon=True).start()

    def _follow(self, connection: socket.socket) -> None:
        db = Database(self._settings.url, 1, self._settings.database_seconds)
        with connection, connection.makefile("rb") as lines:
            follow(lines, db, self._settings)
        self._connections.discard(connection)
        db.dispose()  # so that no connection crosses the next fork
