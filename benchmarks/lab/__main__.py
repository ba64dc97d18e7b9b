"""The defaults lab: what somebody gets who sets nothing, on problems of every kind.

    make lab ARGS=--quick                      # a few minutes
    make lab                                   # hours; goes on where it was stopped
    make lab ARGS="--part held --epsilons 1"
    make lab ARGS="--calibrate"                # writes service/planning/expected.json

Every problem belongs, by its name, to a part that rules and predictions were fitted on, or to one that
is only ever reported. Fits are kept beside the virtual environment and repeated when a Plan changes;
`--fresh` forgets them (after a change of what runs a Plan).
"""

import argparse
from functools import partial
from pathlib import Path

from benchmarks.lab import calibrate, fits, report
from benchmarks.lab.problems import NAMES, part

SLOW = (
    "localized-subgradient",
    "phased-sgd",
)  # minutes for what others do in seconds, and never best
show = partial(print, flush=True)


def options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="eight problems, two epsilons")
    parser.add_argument("--part", choices=("fit", "held"))
    parser.add_argument("--problems", default="", help="names, with commas; otherwise all")
    parser.add_argument("--epsilons", default="", help="with commas")
    parser.add_argument(
        "--losses", default="", help="names, with commas, on every problem they fit"
    )
    parser.add_argument("--delta", type=float, default=fits.DELTA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="beginnings of algorithms' names, with commas")
    parser.add_argument("--slow", action="store_true", help=f"also {', '.join(SLOW)}")
    parser.add_argument("--first", action="store_true", help="one loss per kind of label")
    parser.add_argument("--fresh", action="store_true", help="forget earlier fits")
    parser.add_argument("--calibrate", action="store_true", help="fit predictions and write them")
    parser.add_argument("--plot", type=Path, help="a picture of what was expected and what came")
    return parser.parse_args(arguments)


def chosen(asked) -> tuple[tuple[str, ...], tuple[float, ...]]:
    names = tuple(filter(None, asked.problems.split(","))) or NAMES
    epsilons = tuple(map(float, filter(None, asked.epsilons.split(",")))) or fits.EPSILONS
    if asked.quick:
        names, epsilons = fits.QUICK, (0.1, 1.0)
    return tuple(name for name in names if asked.part in (None, part(name))), epsilons


def main(arguments=None):
    asked = options(arguments)
    results = fits.Results()
    if asked.fresh:
        results.forget()
    names, epsilons = chosen(asked)
    only = tuple(filter(None, asked.only.split(",")))
    rows = []
    show(f"{'part':5}{'problem':22}{'loss':9}{'eps':>5}  {'best':>6}  auto, skill")
    losses = tuple(filter(None, asked.losses.split(",")))
    for cell in fits.cells(names, epsilons, not asked.first, losses, asked.delta):
        planned = fits.planned(cell, only)
        if not asked.slow:
            planned = planned.without(SLOW)
        found = report.row(results, planned, asked.seeds)
        if found is None:
            show(f"{cell.part:5}{cell.problem:22}{cell.loss:9}{cell.epsilon:>5g}  auto refuses")
            continue
        rows.append(found)
        show(report.line(found))
    show("\nauto, by part and loss (skill is 1 - loss/loss of the best constant)")
    for text in report.summary(rows):
        show(text)
    show("\nregret of always taking one (median, in 90 %, largest)")
    for text in report.fixed(rows):
        show(text)
    if asked.calibrate:
        calibrate.write(calibrate.seen(rows, results, asked.seeds))
        show(f"\nwrote {calibrate.PATH}; Plans predict by it from now on")
        return
    show("\nactual excess risks within the band that the Plan predicts")
    seen = list(calibrate.seen(rows, results, asked.seeds))
    for text in calibrate.coverage(seen):
        show(text)
    if asked.plot:
        calibrate.picture(seen, asked.plot)


if __name__ == "__main__":
    main()
