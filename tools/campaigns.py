"""What each long campaign measured last: docs/campaigns/NAME.json, written by the campaign itself when
it is told to `--record`. `make docs` makes the tables of docs/reliability.md of them.

python -m tools.campaigns REPORT EXAMPLES    pytest's JUnit report of `make fuzz`
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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


def record_fuzz(report: str, examples: str) -> None:
    """What was played to its end: a role on a database says how many requests it made."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    wrong = [case.get("name", "") for case in cases if case.find("failure") is not None]
    wrong += [case.get("name", "") for case in cases if case.find("error") is not None]
    said = "".join(output.text or "" for output in ElementTree.parse(report).iter("system-out"))
    generated = [int(number) for number in re.findall(r"\w+ on \w+: ([0-9]+) generated", said)]
    record(
        "fuzz",
        command=f"make fuzz ARGS={examples}",
        examples=int(examples),
        roles=len(generated),
        generated=sum(generated),
        parsers=len(cases) - len(generated),
        findings=wrong,
    )


if __name__ == "__main__":
    record_fuzz(*sys.argv[1:])
