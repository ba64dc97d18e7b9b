"""The embedded worker: woken by bytes on its standard input, gone when that ends, and saying on its
standard output which job it holds."""

import logging
import os
import select
import sys
import threading

from service.config import Settings
from workers.worker import Worker


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    # whatever else may be printed goes where logs go
    said = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    worker = Worker(Settings(), lambda line: os.write(said, line))
    threading.Thread(target=_listen, args=(worker,), daemon=True).start()
    worker.run()


def _listen(worker: Worker) -> None:
    """Wake on every byte; exit at once when the parent is gone (a retry repeats the same noise)."""
    while True:
        select.select([sys.stdin], [], [])
        if not os.read(sys.stdin.fileno(), 4096):
            os._exit(0)
        worker.wake()


if __name__ == "__main__":
    main()
