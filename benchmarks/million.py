"""Every algorithm through HTTP on a million rows by a hundred columns, on both engines.

    make bench-million

Prints how long the upload took (received, encoded, shuffled, stored) and, for the example job of
each algorithm, the time from POST to the finished job.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from service.planning.catalog import CATALOG
from tests.harness import ENGINES, job, numeric_schema, running


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    options = parser.parse_args()
    rows, columns = options.rows, options.columns
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder, running(engine, Path(folder)) as service:
            rng = np.random.default_rng(0)
            x = rng.uniform(-1, 1, (rows, columns)).astype(np.float32)
            path = Path(folder) / "rows.npz"
            np.savez(path, X=x, y=(x[:, 0] > 0).astype(np.int8))
            owner = service.person("owner")
            dataset = owner.declare_dataset("rows", numeric_schema(columns))["id"]
            start = time.perf_counter()
            owner.upload(dataset, path)
            print(f"{engine}: upload of {rows:,} x {columns}: {time.perf_counter() - start:.1f} s")
            owner.set_budget(dataset, 2.0, 1e-6)
            for algorithm, entry in CATALOG.items():
                spec = job(dataset, 0.1, algorithm, **{"parameters": {}, **entry.example})
                start = time.perf_counter()
                done = owner.wait(owner.submit(spec)["id"])
                seconds, steps = time.perf_counter() - start, done["progress"]["steps_total"]
                print(f"{engine}: {algorithm}, {steps} steps: {done['state']} in {seconds:.1f} s")


if __name__ == "__main__":
    main()
