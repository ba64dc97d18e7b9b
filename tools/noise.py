"""Write docs/noise.md: for every algorithm, the noise that the accountant calibrates next to what the
paper prints, at the same privacy; `--check` only says whether the file is current."""

import sys
from math import ceil, sqrt
from pathlib import Path

from service.planning.catalog import CATALOG, plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec

PATH = Path(__file__).resolve().parent.parent / "docs" / "noise.md"
ROWS, COLUMNS, EPSILON, DELTA = 100_000, 100, 1.0, 1e-6


def rows() -> list[tuple[str, str, float, float, float]]:
    """(algorithm, where the paper has it, delta, calibrated noise, printed noise)."""
    found = []
    for name, algorithm in sorted(CATALOG.items()):
        for delta in (DELTA, 0.0):
            facts = Facts(
                rows=ROWS,
                held_out=ROWS // 4,
                columns=COLUMNS,
                storage="fixed",
                feature_step=1 / 4095 / sqrt(COLUMNS),
                linf_units=4095,
                l2_units=ceil(4095 * sqrt(COLUMNS)),
                label="binary",
                account=AccountTerms.for_ceiling(EPSILON, delta),
            )
            job = {"dataset": "d", "algorithm": name, "privacy": {"epsilon": EPSILON}}
            spec = JobSpec.model_validate({**job, **algorithm.example})
            p = plan(spec, facts).prediction
            where = f"{algorithm.paper.split(':')[0]}, algorithm {algorithm.algorithm}"
            found.append((name, where, delta, p.our_noise, p.paper_noise))
    return found


def document() -> str:
    lines = [
        "# Calibrated noise beside the papers'",
        "",
        "Written by `make noise`, for the example job of each algorithm (`epsilond algorithms`): "
        f"{ROWS:,} rows by {COLUMNS} columns of norm at most 1, epsilon {EPSILON:g}. The noise is the "
        "standard deviation of one release, in the units of what is released (for a selection, of the "
        "Gumbel noise that it amounts to); the paper's is its printed formula at the "
        "same (epsilon, delta), unknown constants taken as 1. A dash: the paper prints none for that "
        "delta. A paper's number below ours is not a saving missed: several printed formulas do not "
        "give the privacy they claim (see the errata in each plan's docstring), and all are for the "
        "paper's own composition theorem.",
        "",
        "| algorithm | paper | delta | calibrated | printed | printed / calibrated |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, where, delta, ours, papers in rows():
        printed, ratio = (f"{papers:.3g}", f"{papers / ours:.2f}") if papers > 0 else ("-", "-")
        lines.append(f"| {name} | {where} | {delta:g} | {ours:.3g} | {printed} | {ratio} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PATH.read_text() == document() else "docs/noise.md is stale: make noise")
    PATH.write_text(document())
