"""Kernels and samplers against memory bandwidth and against other libraries, as ratios of one run.

    make bench-kernels                      # makes .venv/peers for the other libraries
    make bench-kernels ARGS="--no-peers"    # without them

Everything is timed several times and the best is taken, since other tenants of a machine only ever
slow things down. The bandwidth that the passes are compared with is the best plain read of the same
bytes in four streams.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numba import njit
from scipy.stats import chi2_contingency

import workers.rows
from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from tests.workers.integer_samplers import discrete_laplace
from workers.algorithms import RUNS
from workers.arrays import read_only
from workers.data import Data
from workers.kernels import simd
from workers.kernels.gradients import _quantise
from workers.kernels.losses import slope_of
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.samplers import rounded_laplace, rounded_normal

PEERS = Path(sys.prefix) / "peers"
PACKAGES = ["torch==2.13.0", "opacus", "opendp", "scikit-learn<1.6", "diffprivlib"]
COLUMNS = 100
PASS_BYTES = 40_000_000
_STEP, _SCALE, _BOUND = np.float32(1e-3), np.float32(4095.0), np.float32(4095.0)  # of slopes


def best(action, repeats=9):
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


@njit(nogil=True)
def read_int16(flat):
    quarter = flat.size // 4
    a = b = c = d = np.int32(0)
    for i in range(quarter):
        a = np.int32(a + np.int32(flat[i]))
        b = np.int32(b + np.int32(flat[quarter + i]))
        c = np.int32(c + np.int32(flat[2 * quarter + i]))
        d = np.int32(d + np.int32(flat[3 * quarter + i]))
    return a + b + c + d


@njit(nogil=True, fastmath=True)
def read_float64(flat):
    quarter = flat.size // 4
    a = b = c = d = 0.0
    for i in range(quarter):
        a += flat[i]
        b += flat[quarter + i]
        c += flat[2 * quarter + i]
        d += flat[3 * quarter + i]
    return a + b + c + d


def reading(x, threads):
    flat = x.reshape(-1)
    read = read_int16 if x.dtype == np.int16 else read_float64
    parts = np.array_split(flat, threads)
    with ThreadPoolExecutor(threads) as pool:
        return best(lambda: list(pool.map(read, parts)), 60)


def sums(rows, columns, storage, algorithm="gradient-descent", **more):
    """A dataset and a Plan on it, ready to release."""
    scale = {"feature_step": 1 / 4095, "linf_units": 4095, "l2_units": 4095}
    facts = Facts.model_validate(
        {
            "rows": rows,
            "columns": columns,
            "storage": storage,
            "label": "binary",
            "account": AccountTerms.for_ceiling(1.0, 1e-6),
            **(scale if storage == "fixed" else {}),
        }
    )
    spec = {"dataset": "ds_bench", "algorithm": algorithm, "loss": "logistic", **more}
    if storage == "float64":
        spec["parameters"] = {"clip": 1.0, **more.get("parameters", {})}
    made = plan(JobSpec.model_validate({**spec, "privacy": {"epsilon": 1.0}}), facts)
    rng = np.random.default_rng(0)
    x = rng.integers(-400, 400, (rows, columns), dtype=np.int16)
    x = x if storage == "fixed" else x / 4095
    y = rng.choice([-1.0, 1.0], rows)
    return made, x, y


@njit(nogil=True)
def margins_alone(x, weights, fast, out):
    for first in range(0, x.shape[0], out.size):
        count = min(out.size, x.shape[0] - first)
        simd.margins(x, first, weights, fast, out[:count])


@njit(nogil=True)
def sums_alone(total, x, q, fast):
    for first in range(0, x.shape[0], q.size):
        simd.accumulate(total, x, first, q[: min(q.size, x.shape[0] - first)], fast)


def passes():
    """Of as many bytes each: small enough for many runs, too large for any cache."""
    print(
        "one gradient pass, logistic: ms, GB/s of features, share of a plain read of the same bytes"
    )
    available = simd.AVAILABLE
    for storage, columns, fast in (
        ("fixed", 10, True),
        ("fixed", 100, True),
        ("fixed", 1000, True),
        ("fixed", 100, False),
        ("float64", 100, False),
    ):
        rows = PASS_BYTES // columns // (2 if storage == "fixed" else 8)
        made, x, y = sums(rows, columns, storage)
        weights = np.random.default_rng(1).normal(size=columns)
        for threads in (1, 2):
            workers.rows.thread_count = lambda count=threads: count
            simd.AVAILABLE = fast and available
            exact = Data(made, x, y, Randomness(bytes(32), "bench"))._sums
            seconds = best(lambda e=exact, w=weights, n=rows: e.gradients(w, range(n)), 60)
            simd.AVAILABLE = available
            read = reading(x, threads)
            kind = storage + (" AVX2" if fast and available else " portable")
            print(
                f"  {kind:18}{rows:9,} x {columns:4}  {threads} threads{1000 * seconds:8.2f}"
                f"{x.nbytes / seconds / 1e9:8.1f}{read / seconds:8.2f}"
            )


@njit(nogil=True)
def slopes_alone(margins, y, loss, q):
    for _ in range(0, y.size, q.size):
        _quantise(margins, y[: q.size], _STEP, loss, _SCALE, _BOUND, q)


def parts():
    """What the pass is made of, the floor under it: each step alone, on rows from memory or, for the
    slopes, on a block in the nearest cache."""
    print("parts of a pass, one thread, ns a row:   read  margins   slopes     sums  the pass")
    workers.rows.thread_count = lambda: 1
    for columns in (10, 100, 1000):
        rows = PASS_BYTES // columns // 2 // simd.BLOCK * simd.BLOCK
        made, x, y = sums(rows, columns, "fixed")
        exact = Data(made, x, y, Randomness(bytes(32), "bench"))._sums
        loss, labels = slope_of(made), read_only(y.astype(np.float32))
        x, layout, w = read_only(x), simd.Layout(columns), np.full(columns, 0.01)
        weights = layout.pad(np.full(columns, 100, dtype=np.int16))
        out, q = np.full(simd.BLOCK, 9, dtype=np.int32), np.full(simd.BLOCK, 9, dtype=np.int16)
        total = np.zeros(layout.size, dtype=np.int64)
        seconds = (
            reading(x, 1),
            best(lambda: margins_alone(x, weights, layout.fast, out), 60),  # noqa: B023 - at once
            best(lambda: slopes_alone(out, labels, loss, q), 60),  # noqa: B023
            best(lambda: sums_alone(total, x, q, layout.fast), 60),  # noqa: B023
            best(lambda: exact.gradients(w, range(rows)), 60),  # noqa: B023
        )
        told = "".join(f"{1e9 * one / rows:9.2f}" for one in seconds)
        print(f"  {rows:9,} x {columns:4}                   {told}")


def growth():
    """Exponents of time in n and in d, by least squares on logarithms."""
    workers.rows.thread_count = lambda: 1
    for name, shapes in (
        ("n", [(2**k, COLUMNS) for k in range(16, 21)]),
        ("d", [(2**17, 64 * 2**k) for k in range(5)]),
    ):
        times = []
        for rows, columns in shapes:
            made, x, y = sums(rows, columns, "fixed")
            noisy = Data(made, x, y, Randomness(bytes(32), "bench"))
            w = np.ones(columns)
            times.append(
                best(lambda noisy=noisy, w=w, rows=rows: noisy._sums.gradients(w, range(rows)), 15)
            )
        sizes = [rows * columns for rows, columns in shapes]
        exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        print(f"time grows like {name}^{exponent:.3f}")


def samplers():
    randomness = Randomness(bytes(32), "bench")
    rates = {}
    for name, sampler in (("normal", rounded_normal), ("laplace", rounded_laplace)):
        count = 1_000_000
        seconds = best(lambda s=sampler, n=count: s(randomness.stream(Use.NOISE, 0), n, 36), 5)
        rates[name] = count / seconds
    return rates


def same_law(other):
    """The p-value of a two-sample chi-square between our discrete Laplace and OpenDP's."""
    theirs = np.array(other["opendp_laplace_counts"])
    edge = len(theirs) // 2
    drawn = discrete_laplace(Randomness(bytes(32), "law").stream(Use.NOISE, 0), theirs.sum(), 7, 2)
    ours = np.bincount(np.clip(drawn, -edge, edge) + edge, minlength=len(theirs))
    return float(chi2_contingency(np.stack([ours, theirs])).pvalue)


def fit_seconds(algorithm, rows=200_000, **more):
    workers.rows.thread_count = lambda: 2
    made, x, y = sums(rows, COLUMNS, "fixed", algorithm, **more)

    def run():
        noisy = Data(made, x, y, Randomness(bytes(32), "bench"))
        RUNS[algorithm](made, noisy, Progress())

    return best(run, 3), made.schedule.steps


def large(gigabytes):
    """Peak resident memory of a pass over a file that does not fit, in a process of its own."""
    code = f"from benchmarks.kernels import peak; peak({gigabytes})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(done.stdout.strip())


def peak(gigabytes):
    rows = int(gigabytes * 1e9 / 2 / COLUMNS)
    made, _, _ = sums(16, COLUMNS, "fixed")
    made = made.model_copy(update={"facts": made.facts.model_copy(update={"rows": rows})})
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        files = [Path(folder) / name for name in ("x.npy", "y.npy")]
        shapes = (np.int16, (rows, COLUMNS)), (np.float64, (rows,))
        for path, (dtype, shape) in zip(files, shapes, strict=True):
            np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()
        x, y = (np.load(path, mmap_mode="r") for path in files)
        noisy = Data(made, x, y, Randomness(bytes(32), "bench"))
        start = time.perf_counter()
        noisy.noisy_sum(np.ones(COLUMNS), 0, rows)
        seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent's memory too
    peak_mb = int(status.split("VmHWM:")[1].split()[0]) / 1000
    print(
        f"a pass over {gigabytes} GB ({rows:,} rows): {seconds:.1f} s, peak {peak_mb:.0f} MB resident"
    )


def in_peers(script, *arguments):
    """The lines that a script of this folder prints, run in the other libraries' environment."""
    return in_environment(PEERS, PACKAGES, script, *arguments)


def in_environment(folder, packages, script, *arguments):
    """The same in any environment, made on first use."""
    python, stamp, wanted = folder / "bin" / "python", folder / "packages", " ".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for package in packages:  # torch first: asked for by another package, it brings CUDA along
            subprocess.run([str(python), "-m", "pip", "install", "-q", package], check=True)
        stamp.write_text(wanted)
    command = [str(python), str(Path(__file__).parent / script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield from process.stdout
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--gigabytes", type=float, default=10.0)
    options = parser.parse_args()
    passes()
    parts()
    growth()
    large(options.gigabytes)
    rates = samplers()
    steps_seconds, steps = fit_seconds("gradient-descent")
    one_pass, batches = fit_seconds("clipped-sgd", ridge=0.001)
    print(
        f"samples/s: normal {rates['normal'] / 1e6:.1f} M, Laplace {rates['laplace'] / 1e6:.1f} M"
    )
    print(
        f"a private fit of 200,000 x {COLUMNS}: gradient-descent, {steps} steps, {steps_seconds:.2f} s"
    )
    print(f"                              clipped-sgd, {batches} steps, {one_pass:.3f} s")
    if options.no_peers:
        return
    other = json.loads(list(in_peers("peers.py"))[-1])
    rows_per_second = 200_000 * steps / steps_seconds
    print(f"discrete Laplace of scale 7/2, ours against OpenDP's: p = {same_law(other):.3f}")
    print("ratios to other libraries, same machine, same run")
    for name, ratio in (
        (
            "gradients/s, gradient-descent / Opacus DP-SGD",
            rows_per_second / other["opacus_rows_per_second"],
        ),
        (
            "time of scikit-learn's fit / gradient-descent's",
            other["sklearn_seconds"] / steps_seconds,
        ),
        ("time of scikit-learn's fit / clipped-sgd's", other["sklearn_seconds"] / one_pass),
        ("normal samples/s / OpenDP's", rates["normal"] / other["opendp_normal"]),
        ("Laplace samples/s / OpenDP's", rates["laplace"] / other["opendp_laplace"]),
    ):
        print(f"  {name:50}{ratio:10.1f}")


if __name__ == "__main__":
    main()
