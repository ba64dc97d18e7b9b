"""What each long campaign measured last: docs/campaigns/NAME.json, written by the campaign itself when
it is told to `--record`. `make docs` makes the tables of docs/reliability.md of them."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "campaigns"


def record(name: str, **result: Any) -> None:
    """As it stands now, with the day, the commit and the machine."""
    commit = ["git", "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=False)
    about = {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": done.stdout.strip(),
        "processors": os.cpu_count(),
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**about, **result}, indent=1) + "\n")
    partial.replace(path)


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found
