"""docs/reliability.md: its tables of campaigns, from what each measured last (docs/campaigns).

Between `<!-- campaigns -->` and `<!-- end -->` stands what was played and what came of it, between
`<!-- recovery -->` and `<!-- end -->` how long the service took to recover from each kind of fault."""

import re
from typing import Any

from tools.campaigns import FOLDER, recorded
from tools.docs.markdown import ROOT, table

PAGE = "docs/reliability.md"
_BLOCK = re.compile(r"(<!-- (campaigns|recovery) -->\n).*?(<!-- end -->\n)", re.S)
Result = dict[str, Any]


def pages() -> dict[str, str]:
    text = (ROOT / PAGE).read_text()
    made = {"campaigns": campaigns(), "recovery": recovery()}
    return {PAGE: _BLOCK.sub(lambda found: found[1] + made[found[2]] + found[3], text)}


def campaigns() -> str:
    rows = []
    for path in sorted(FOLDER.glob("*.json")):
        result = recorded(path.stem)
        name = path.stem.split("-")[0]
        played, now = ROWS[name](result)
        where = f"{result['day']}, {result['commit']}, {result['processors']} processors"
        if "load_average" in result:
            where += f" at a load of {result['load_average']:.0f}"
        rows.append([f"`{result['command']}`", played, now, where])
    return table(["command", "played", "result", "when, what, where"], rows)


def chaos(result: Result) -> tuple[str, str]:
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(result["states"].items()))
    without = f"; without {', '.join(result['without'])}" if result["without"] else ""
    return (
        f"{result['kills']} kill -9 among {result['faults']} faults of {result['kinds']} kinds in "
        f"{result['seconds'] / 60:.0f} minutes{without}; {result['jobs']:,} jobs accepted, "
        f"{result['started_again']} of them started again, up to {result['most_starts']} times",
        f"{states}; {result['recomputed']} models computed again, bit for bit the same; "
        + _found(result["findings"]),
    )


def simulate(result: Result) -> tuple[str, str]:
    faults = sum(result["faults"].values())
    return (
        f"{result['lifecycles']:,} lifecycles of jobs in {result['seeds']:,} histories and "
        f"{result['steps']:,} steps, {faults:,} faults of {len(result['faults'])} kinds; "
        f"{result['cpu_seconds'] / 60:.0f} minutes of one processor",
        "every invariant held after every step",
    )


def linearise(result: Result) -> tuple[str, str]:
    return (
        "; ".join(
            f"{kind}: {one['histories']} histories, {one['calls']:,} calls by {one['threads']} "
            f"threads, {one['unknown']} without an answer"
            for kind, one in result["kinds"].items()
        ),
        "each has an order that a sequential ledger could have had",
    )


def fuzz(result: Result) -> tuple[str, str]:
    return (
        f"{result['examples']} examples an operation and role; {result['generated']:,} requests by "
        f"{result['roles']} pairs of a role and a database, {result['parsers']} tests of parsers",
        _found(result["findings"]),
    )


def _found(findings: list[str]) -> str:
    return "found nothing" if not findings else f"found {len(findings)}: {findings[0]}"


ROWS = {"chaos": chaos, "simulate": simulate, "linearise": linearise, "fuzz": fuzz}


def recovery() -> str:
    """The longest of each form first; what a job takes without any fault is beside."""
    rows = []
    for path in sorted(FOLDER.glob("chaos-*.json")):
        result = recorded(path.stem)
        found = result["recovery"].items()
        for name, one in sorted(found, key=lambda item: -item[1]["median"]):
            numbers = [str(one["times"]), f"{one['median']:.1f}", f"{one['max']:.1f}"]
            rows.append([result["engine"], name, *numbers])
    return table(["form", "fault", "times", "median, s", "longest, s"], rows)
