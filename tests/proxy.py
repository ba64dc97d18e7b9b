"""A TCP proxy between the service and a real server that can refuse, hang and heal.

`pass` forwards. `hang` accepts and keeps every byte, in either direction, until it heals: what a
stopped server or a dropped network looks like. `refuse` resets what is connected and refuses what
connects: what a server that is down looks like. Its port stays its own all the while.
"""

import socket
import struct
import threading
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    def __init__(self, url):
        """In front of the server of a URL; `url` is then the same one by way of this proxy."""
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        self._server = (parts.hostname, parts.port)
        # bound and never listening: it keeps the port, and alone it refuses
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._port.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{self._port.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=f"{user}@{here}" if user else here))
        self._passing, self._lock = threading.Event(), threading.Lock()
        self._listener, self._sockets = None, set()
        self.accepted = 0  # connections, ever
        self.heal()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.refuse()
        self._port.close()

    def heal(self):
        if self._listener is None:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._listener.bind(self._port.getsockname())
            self._listener.listen(128)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._passing.set()

    def hang(self):
        self.heal()
        self._passing.clear()

    def refuse(self):
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept, which close does not
            self._listener.close()
            self._listener = None
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            _reset(each)
        self._passing.set()  # whoever holds bytes finds its socket closed

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                server = socket.create_connection(self._server)
            except OSError:
                _reset(client)
                continue
            with self._lock:
                if listener is not self._listener:
                    _reset(client)
                    _reset(server)
                    return
                self._sockets |= {client, server}
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._passing.wait()
                sink.sendall(data)
        self._passing.wait()  # the end of a connection is held like its bytes
        with self._lock:
            self._sockets -= {source, sink}
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _reset(connection):
    """Close with RST: the peer gets an error, not an end of file."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)  # wakes the thread that reads it
    connection.close()
