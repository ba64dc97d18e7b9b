"""What the service adds to a computation: from POST to a finished job, kernels excluded.

    make bench-overhead

For each engine: a tiny dataset, sequential jobs, each watched by polling GET /v1/jobs/{id}. The time
of the run itself (the same Plan run in this process) is subtracted, so what is left is planning, the
ledger, the queue, the worker's bookkeeping, the audit record and HTTP. Prints medians and the 95th
percentile in milliseconds.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from sqlalchemy import select

from service.datasets.store import dataset_folder, open_arrays
from service.planning.plan import Plan
from service.tables import datasets, jobs
from tests.harness import ENGINES, job, running
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness
from workers.warm import warm


def timed(action):
    start = time.perf_counter()
    value = action()
    return value, 1000 * (time.perf_counter() - start)


def kernel_ms(service, job_id):
    """The run alone, as the worker runs it, in this process."""
    with service.db.read() as connection:
        row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
        folder = connection.execute(
            select(datasets.c.folder).where(datasets.c.id == row.dataset_id)
        ).scalar_one()
    plan = Plan.model_validate_json(row.plan)
    x, y = open_arrays(dataset_folder(service.settings.data_dir, folder))

    def run():
        return RUNS[plan.algorithm](
            plan, Data(plan, x, y, Randomness(bytes(32), "bench")), Progress()
        )

    return statistics.median(timed(run)[1] for _ in range(9))


def measure(engine, count):
    with tempfile.TemporaryDirectory() as folder, running(engine, Path(folder)) as service:
        scene = service.scene(epsilon=50.0, rows=500)
        analyst, spec = scene.analyst, job(scene.dataset, 0.01)
        for _ in range(5):  # connections, caches, the worker's first job
            first = analyst.wait(analyst.submit(spec)["id"], poll_seconds=0.002)
        kernels = kernel_ms(service, first["id"])
        posts, totals = [], []
        for _ in range(count):
            start = time.perf_counter()
            submitted, post = timed(lambda: analyst.submit(spec))
            analyst.wait(submitted["id"], poll_seconds=0.002)
            totals.append(1000 * (time.perf_counter() - start) - kernels)
            posts.append(post)
        gets = [timed(lambda: analyst.job(first["id"]))[1] for _ in range(count)]
    return posts, gets, totals, kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100)
    count = parser.parse_args().jobs
    warm()
    print(f"{count} jobs each, milliseconds; POST to finished, kernels excluded")
    print(f"{'engine':10}{'median':>9}{'p95':>9}{'POST':>9}{'GET':>9}{'kernels':>9}")
    for engine in ENGINES:
        posts, gets, totals, kernels = measure(engine, count)
        figures = (
            statistics.median(totals),
            float(np.percentile(totals, 95)),
            statistics.median(posts),
            statistics.median(gets),
            kernels,
        )
        print(f"{engine:10}" + "".join(f"{value:9.1f}" for value in figures))


if __name__ == "__main__":
    main()
