"""What it takes to read a file, encode and fingerprint its rows, shuffle and store them, by format.

    make bench-ingest                        # 1,000,000 rows by 100 columns
    make bench-ingest ARGS="--rows 200000"

Processor seconds of the process that reads, imports included, and the most memory that was resident
in it; beside them what pyarrow takes to read the same CSV into a table, on one thread.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from service.datasets.formats import guess
from service.datasets.ingest import IngestRequest, run_ingest
from service.datasets.schema import Schema

PYARROW = """
import sys, pyarrow as pa, pyarrow.csv as csv
pa.set_cpu_count(1)
csv.read_csv(sys.argv[1], read_options=csv.ReadOptions(use_threads=False))
"""


def write_files(folder, rows, columns):
    """The same table in each format, of numbers with six decimals."""
    rng = np.random.default_rng(1)
    table = {f"x{j}": rng.normal(size=rows).round(6) for j in range(columns)}
    table["y"] = rng.integers(0, 2, rows)
    rows_of = pa.table(table)
    arrow_csv.write_csv(rows_of, folder / "rows.csv")
    with pa.CompressedOutputStream(str(folder / "rows.csv.zst"), "zstd") as out:
        arrow_csv.write_csv(rows_of, out)
    pq.write_table(rows_of, folder / "rows.parquet")
    with pa.ipc.new_file(folder / "rows.arrow", rows_of.schema) as out:
        out.write_table(rows_of)
    np.savez(folder / "rows.npz", **table)


def child(act):
    """(processor seconds, megabytes resident at most) of a process that does this, and of its own."""
    pid = os.fork()
    if not pid:
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit("a child failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    options = parser.parse_args()
    columns = [
        {"name": f"x{j}", "kind": "numeric", "lower": -6, "upper": 6}
        for j in range(options.columns)
    ]
    label = {"name": "y", "kind": "binary", "positive": "1", "negative": "0"}
    schema = Schema.model_validate({"columns": columns, "label": label})
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        child(lambda: write_files(folder, options.rows, options.columns))  # whose memory is its own
        print(f"{options.rows:,} rows by {options.columns} columns")
        print(f"{'':<18}{'file, MB':>10}{'CPU, s':>8}{'of pyarrow':>12}{'resident, MB':>14}")
        command = [sys.executable, "-c", PYARROW, str(folder / "rows.csv")]
        pyarrow, resident = child(lambda: subprocess.run(command, check=True))
        show("pyarrow, rows.csv", folder / "rows.csv", pyarrow, 1, resident)
        for path in sorted(folder.glob("rows.*")):
            seconds, resident = child(partial(ingest, path, schema, folder / path.suffix))
            show(path.name, path, seconds, seconds / pyarrow, resident)


def show(name, path, seconds, ratio, resident):
    size = path.stat().st_size / 1e6
    print(f"{name:<18}{size:>10.0f}{seconds:>8.1f}{ratio:>12.2f}{resident:>14.0f}", flush=True)


def ingest(path, schema, out):
    """As the service does."""
    run_ingest(
        IngestRequest(
            source=path,
            format=guess(path).name,
            schema=schema,
            out_dir=out,
            content_key="ab" * 32,
            shuffle_key="cd" * 32,
            max_rows=10**9,
            cpu_seconds=3600,
            memory_bytes=4 << 30,
        )
    )


if __name__ == "__main__":
    main()
