"""Predictions fitted on one part of the lab, and how often they hold on the other."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from benchmarks import pictures
from benchmarks.lab.fits import Results, anchors, fit
from benchmarks.lab.report import Row
from service.planning import expected
from service.planning.catalog import CATALOG
from service.planning.expected import Curve, features_of

PATH = Path(expected.__file__).with_suffix(".json")
# an excess risk below this is as good as none, and held-out rows tell no less
LEAST = dict.fromkeys(("logistic", "softmax", "hinge", "smoothed_hinge"), 3e-4)
LEAST_OF_NUMBERS = 1e-5
WIDTH = 1.72  # standard deviations on either side: nine in ten, by Student's t for some 20 problems
PROBLEMS_MIN = 8  # a line through fewer is none
PULL = 0.5


@dataclass(frozen=True)
class Seen:
    """One run: which line it belongs to, and what was to be predicted."""

    part: str
    problem: str
    algorithm: str
    loss: str
    auto: bool
    features: tuple[float, ...]
    excess: float
    predicted: expected.Expected | None
    pure: bool = False  # delta = 0


def seen(rows: Iterable[Row], results: Results, seeds: int) -> Iterator[Seen]:
    for found in rows:
        cell = found.planned.cell
        for name, plan in found.planned.plans.items():
            place = features_of(CATALOG[name].needs, plan.spec, plan.facts)
            if place is None:
                continue
            for seed in range(seeds):
                best, _ = anchors(results, cell, seed)
                excess = fit(results, cell, plan, seed)["loss"] - best["loss"]
                auto = name == found.planned.auto
                of = cell.part, cell.problem, name, cell.loss
                yield Seen(*of, auto, place, excess, plan.expected, cell.delta == 0)


def floored(run: Seen) -> float:
    return max(run.excess, LEAST.get(run.loss, LEAST_OF_NUMBERS))


def line(runs: list[Seen]) -> Curve:
    """Least squares with slopes that are not negative. The band is that of problems left out, one
    after the other, as wide as if what is left were normal."""
    x = np.array([run.features for run in runs])
    y = np.log([floored(run) for run in runs])
    names = np.array([run.problem for run in runs])
    off = np.empty(len(y))
    for name in np.unique(names):
        out = names == name
        intercept, slopes = _least_squares(x[~out], y[~out])
        off[out] = y[out] - (intercept + x[out] @ slopes)
    count = len(np.unique(names))
    wide = WIDTH * float(np.std(off)) * sqrt(1 + 1 / count)
    intercept, slopes = _least_squares(x, y)
    return Curve(
        round(float(intercept), 4),
        tuple(round(float(slope), 4) for slope in slopes),
        round(-wide, 4),
        round(wide, 4),
    )


def _least_squares(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Slopes are pulled towards 0 a little: in some pieces there are few problems."""
    d, centre, middle = x.shape[1], x.mean(axis=0), float(y.mean())
    left = np.vstack([x - centre, PULL * np.eye(d)])
    slopes = lsq_linear(left, np.r_[y - middle, np.zeros(d)], (np.zeros(d), np.inf)).x
    return middle - float(centre @ slopes), slopes


def write(runs: Iterable[Seen], path: Path = PATH) -> None:
    """Lines of what was run; those of other algorithms and losses stay as they are."""
    lines: dict[tuple[str, str, str], list[Seen]] = {}
    for run in runs:
        if run.part == "fit":
            name = "pure" if run.pure else "curves", run.algorithm, run.loss
            lines.setdefault(name, []).append(run)
    stored = {"made_by": "make lab ARGS=--calibrate", "curves": {}, "pure": {}}
    if path.exists():
        stored |= json.loads(path.read_text())
    for (group, algorithm, loss), those in lines.items():
        if len({run.problem for run in those}) >= PROBLEMS_MIN:
            stored[group].setdefault(algorithm, {})[loss] = vars(line(those))
    path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    expected.curves.cache_clear()


def coverage(runs: Iterable[Seen]) -> Iterator[str]:
    """How many actual excess risks were within the band that their Plan gave."""
    told: dict[tuple[str, str, str], list[tuple[bool, bool]]] = {}
    for run in runs:
        if run.predicted is None:
            continue
        excess = floored(run)
        inside = run.predicted.low <= excess <= run.predicted.high
        verdict = inside, excess <= run.predicted.median
        delta = ", delta 0" if run.pure else ""
        for name in ("all", run.algorithm, *(["auto"] if run.auto else [])):
            told.setdefault((run.part, name + delta, run.loss), []).append(verdict)
    for (part, name, loss), verdicts in sorted(told.items()):
        inside, below = np.mean(verdicts, axis=0)
        yield (
            f"{part:5}{name:32}{loss:9}{len(verdicts):6} runs: {inside:.0%} within the band, "
            f"{below:.0%} below the median"
        )


def picture(runs: Iterable[Seen], path: Path) -> None:
    """Actual against expected excess risk, of the part that nothing was fitted on."""
    told = [run for run in runs if run.part == "held" and run.predicted is not None]
    panels: dict[str, list[dict[str, Any]]] = {}
    for loss in ("logistic", "squared"):
        those = [run for run in told if run.loss == loss]
        curves = []
        for name in sorted({run.algorithm for run in those}):
            own = [run for run in those if run.algorithm == name]
            medians = [run.predicted.median for run in own]
            actual = [floored(run) for run in own]
            curves.append({"label": name, "n": medians, "values": actual, "points": True})
        ends = [
            min(c for each in curves for c in each["n"]),
            max(c for each in curves for c in each["n"]),
        ]
        curves.append({"label": "as expected", "n": ends, "values": ends, "plain": True})
        panels[f"{loss}: expected and actual"] = curves
    pictures.picture(path, "actual excess risk", panels, 2, "expected (median)")
