"""The first job of a new installation: from the start of the service, with no kernel compiled, to a
published model, in seconds.

    make bench-cold

Each round has an empty cache of kernels. A logistic job that names no algorithm on a table of 20,000
rows by 20 columns; then one of another loss, right after it. In brackets what the worker's process has
used by then since it began, which other tenants of a machine change less: it compiles from its start
on, whether a job waits or not.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from benchmarks.quotes import processor_ms
from tests.harness import running


def first_jobs():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = str(Path(folder) / "kernels")
        start = time.monotonic()
        with running("embedded", Path(folder)) as service:
            started = time.monotonic() - start
            seconds = []
            scene = service.scene(epsilon=50.0, rows=20_000, columns=20)
            for loss in ("logistic", "hinge"):
                spec = {"dataset": scene.dataset, "algorithm": "auto", "loss": loss}
                asked = time.monotonic()
                job = scene.analyst.submit({**spec, "privacy": {"epsilon": 1.0}})
                scene.analyst.wait(job["id"], poll_seconds=0.01)
                seconds.append((time.monotonic() - asked, of_the_worker(service)))
    return started, seconds


def of_the_worker(service):
    """Processor seconds of the API's only child."""
    tasks = Path(f"/proc/{service.processes['api'].pid}/task").glob("*/children")
    (worker,) = " ".join(task.read_text() for task in tasks).split()
    return processor_ms(worker) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    print("seconds: the service's start; from POST to a model: logistic, hinge")
    for _ in range(parser.parse_args().rounds):
        started, jobs = first_jobs()
        told = "".join(f"{seconds:8.1f} ({used:.1f})" for seconds, used in jobs)
        print(f"  {started:8.1f}{told}", flush=True)


if __name__ == "__main__":
    main()
