"""What a row and a step cost, in the terms of service/planning/shared/pace.py: its constants.

    make bench-pace

Processor time of one thread, the least of many runs, for a million numbers of either storage: a pass
over all rows; a quarter of them drawn, positions included; and what else a step takes, from runs of
accelerated-sgd that draw one row. Lines through 10 and 1,000 columns give a row's and a column's.
"""

import time

import numpy as np

import workers.rows
from benchmarks.kernels import sums
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.samplers import sample

ENTRIES, COLUMNS, STEPS = 2**25, (10, 100, 1000), 256


def least(action, repeats=9):
    action()
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        action()
        times.append(time.thread_time() - start)
    return min(times)


def of_rows(storage, columns):
    """Nanoseconds of a row: passed over, and drawn."""
    rows = ENTRIES // columns // (1 if storage == "fixed" else 4)
    made, x, y = sums(rows, columns, storage)
    randomness, w, batch = Randomness(bytes(32), "bench"), np.ones(columns), rows // 4
    exact = Data(made, x, y, randomness)._sums
    positions = sample(randomness.stream(Use.SAMPLING, 0), batch, rows)
    passed = least(lambda: exact.gradients(w, range(rows))) / rows
    drawn = least(lambda: exact.gradients(w, positions))
    drawn += least(lambda: sample(randomness.stream(Use.SAMPLING, 0), batch, rows))
    return 1e9 * passed, 1e9 * drawn / batch


def of_a_step(columns):
    parameters = {"steps": STEPS, "batch": 1}
    made, x, y = sums(1000, columns, "fixed", "accelerated-sgd", parameters=parameters)
    run = RUNS["accelerated-sgd"]
    data = lambda: Data(made, x, y, Randomness(bytes(32), "bench"))  # noqa: E731
    return 1e3 * least(lambda: run(made, data(), Progress()), 3) / STEPS


def main():
    workers.rows.thread_count = lambda: 1
    print("nanoseconds of a row, by columns; one thread")
    print(f"{'':18}" + "".join(f"{columns:9}" for columns in COLUMNS) + "      row + column")
    for storage in ("fixed", "float64"):
        figures = np.array([of_rows(storage, columns) for columns in COLUMNS]).T
        for kind, found in zip(("passed", "drawn"), figures, strict=True):
            each = (found[-1] - found[0]) / (COLUMNS[-1] - COLUMNS[0])
            print(
                f"{storage:8}  {kind:8}"
                + "".join(f"{value:9.1f}" for value in found)
                + f"{found[0] - each * COLUMNS[0]:10.1f} + {each:.3f}"
            )
    print("milliseconds of a step: " + ", ".join(f"{of_a_step(c):.2f}" for c in COLUMNS))


if __name__ == "__main__":
    main()
