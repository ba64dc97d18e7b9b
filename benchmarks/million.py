"""Every algorithm through HTTP on a million rows by a hundred columns, on both engines.

    make bench-million
    make bench-million ARGS="--rows 100000 --only frank-wolfe"

Prints how long the upload took (received, encoded, shuffled, stored) and, for the example job of
each algorithm, for a network and for an oracle of values, the time from POST to the finished job.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from service.planning.catalog import CATALOG
from tests.harness import ENGINES, job, numeric_schema, running

NETWORK = {"model": {"kind": "relu_network", "width": 16}, "loss": "logistic", "set": "all"}
BESIDES = {
    "gradient-descent": {"a network": NETWORK},
    "online-to-nonconvex": {"zero-order": {"parameters": {"oracle": "zero-order"}}},
}
show = partial(print, flush=True)  # a line as soon as its job is done


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--only", default="", help="part of an algorithm's name")
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
            show(f"{engine}: upload of {rows:,} x {columns}: {time.perf_counter() - start:.1f} s")
            owner.set_budget(dataset, 2.0, 1e-6)
            linear = ""
            for algorithm, entry in CATALOG.items():
                if options.only not in algorithm:
                    continue
                of = {"of": linear} if entry.certifies else {}
                for kind, more in {"": {}, **BESIDES.get(algorithm, {})}.items():
                    given = {"parameters": {}, **entry.example, **of, **more}
                    start = time.perf_counter()
                    asked = job(dataset, 0.1, algorithm, **given)
                    if entry.summarises:
                        del asked["loss"]
                    made = owner.submit(asked)
                    done = owner.wait(made["id"])
                    seconds, steps = time.perf_counter() - start, done["progress"]["steps_total"]
                    name = f"{algorithm}, {kind}" if kind else algorithm
                    show(f"{engine}: {name}, {steps} steps: {done['state']} in {seconds:.1f} s")
                    linear = linear if kind else done["id"]


if __name__ == "__main__":
    main()
