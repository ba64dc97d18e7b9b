"""What a new user of the Python client waits for: installing, importing, a first private model.

An empty environment is made, the client is installed into it from a wheel (and pandas, for the
table), and docs/quickstart-python.md is run in it against a service on this machine, which was just
started and has compiled its kernels. Seconds are of the clock; an import's are of the processor too.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.harness import running

ROOT = Path(__file__).parents[1]
IMPORTING = """
import resource, sys, time
t = time.perf_counter()
import epsilond
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"{time.perf_counter() - t:.2f} s, all of the process {used.ru_utime + used.ru_stime:.2f} s CPU")
"""


def timed(*command: object) -> float:
    started = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - started


def size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def printed(python: Path, code: str, folder: Path | None = None) -> str:
    command = [python, "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=folder
    ).stdout.strip()


def visits(path: Path, rows: int = 2000) -> None:
    rng = np.random.default_rng(5)
    age, ward = rng.integers(0, 110, rows), rng.choice(["A", "B", "C"], rows)
    returned = (age + 20 * (ward == "C") + rng.normal(0, 10, rows) > 60).astype(int)
    lines = (f"{a},{w},{r}\n" for a, w, r in zip(age, ward, returned, strict=True))
    path.write_text("age,ward,returned\n" + "".join(lines))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        timed(*pip, "wheel", "--no-deps", "-w", folder, "clients/python")
        (wheel,) = folder.glob("*.whl")
        timed(sys.executable, "-m", "venv", folder / "empty")
        python = folder / "empty" / "bin" / "python"
        (packages,) = (folder / "empty" / "lib").glob("python*/site-packages")
        before = size(packages)
        seconds = timed(python, "-m", "pip", "install", wheel)
        print(f"wheel {wheel.stat().st_size / 1e3:.0f} kB; pip install {seconds:.1f} s,", end=" ")
        print(f"{size(packages) - before:.0f} MB with httpx and numpy")
        for which in ("first", "again"):
            print(f"import, {which}: {printed(python, IMPORTING)}")
        print(f"pip install pandas: {timed(python, '-m', 'pip', 'install', 'pandas'):.1f} s")
        visits(folder / "visits.csv")
        page = (ROOT / "docs" / "quickstart-python.md").read_text()
        first, second = re.findall(r"```python\n(.*?)```", page, re.S)
        with running("embedded", folder) as service:
            for which in (
                "first",
                "another",
            ):  # who compiles kernels
                key = service.person("owner").key
                code = f"url, owner_key = {service.url!r}, {key!r}\n{first}{second}"
                started = time.perf_counter()
                score = printed(
                    python, code + "print(model.score(frame, frame['returned']))", folder
                )
                took = time.perf_counter() - started
                print(f"quickstart, {which} user: {took:.1f} s, accuracy {float(score):.3f}")


if __name__ == "__main__":
    main()
