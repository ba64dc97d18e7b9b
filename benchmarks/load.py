"""A client that costs little, so that a service on the same processors shows what it can do.

Every connection sends the bytes it was given, waits for the answer, and sends them again. One thread,
non-blocking sockets, no parsing but the status and the length of the body.
"""

import selectors
import socket
import time
from collections import Counter
from urllib.parse import urlsplit


def post(url, path, key, body):
    """A request as bytes, to be sent as often as wanted over one connection."""
    head = (
        f"POST {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*head, "", "")).encode() + body


class _Connection:
    def __init__(self, url, request):
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request, self.sent, self.received = request, 0.0, b""

    def send(self):
        self.received, self.sent = b"", time.perf_counter()
        self.socket.sendall(self.request)

    def answer(self):
        """The status, once all of the answer has arrived."""
        more = self.socket.recv(65536)
        if not more:
            raise ConnectionError("the service closed a connection")
        self.received += more
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return None
        length = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        return int(head[9:12]) if len(body) >= length else None


def repeat(requests, warm, seconds, begin=lambda: None, end=lambda: None):
    """Send each (URL, request) again and again. What took how long of the answers within `seconds`
    after `warm` seconds, by status; `begin` and `end` are called at the ends of that time."""
    connections = [_Connection(url, request) for url, request in requests]
    times, refused = [], Counter()
    with selectors.DefaultSelector() as ready:
        for connection in connections:
            ready.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        first = time.perf_counter() + warm
        last, begun, waiting = first + seconds, False, len(connections)
        while waiting:
            for key, _ in ready.select():
                connection = key.data
                status = connection.answer()
                if status is None:
                    continue
                now = time.perf_counter()
                if not begun and now >= first:
                    begun = True
                    begin()
                if status != 202:
                    refused[status] += 1
                elif first <= now < last:
                    times.append(now - connection.sent)
                if now < last:
                    connection.send()
                    continue
                if waiting == len(connections):
                    end()
                waiting -= 1
    for connection in connections:
        connection.socket.close()
    return times, refused
