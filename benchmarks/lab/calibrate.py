"""Predictions fitted on one part of the lab, and how often they hold on the other."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
LEAST = 1e-5  # an excess risk below this is as good as none, and held-out rows tell no less
BAND = 0.95  # and as much from below: nine in ten are within
PROBLEMS_MIN = 8  # a line through fewer is none
RIDGE = 0.3


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
                yield Seen(
                    cell.part, cell.problem, name, cell.loss, auto, place, excess, plan.expected
                )


def line(runs: list[Seen]) -> Curve:
    """Least squares, every problem with the same weight; no slope in a term of the theory is negative.
    The band is of problems left out, one after the other."""
    x = np.array([run.features for run in runs])
    y = np.log(np.maximum([run.excess for run in runs], LEAST))
    names = np.array([run.problem for run in runs])
    weights = np.array([1 / np.sum(names == name) for name in names])
    off = np.empty(len(y))
    for name in np.unique(names):
        out = names == name
        intercept, slopes = _least_squares(x[~out], y[~out], weights[~out])
        off[out] = y[out] - (intercept + x[out] @ slopes)
    count = len(np.unique(names))
    outer = min(1.0, BAND * (count + 1) / count)  # a problem to come is one more: conformal
    low, middle, high = (_quantile(off, weights, q) for q in (1 - outer, 0.5, outer))
    intercept, slopes = _least_squares(x, y, weights)
    return Curve(
        round(float(intercept + middle), 4),
        tuple(round(float(slope), 4) for slope in slopes),
        round(low - middle, 4),
        round(high - middle, 4),
    )


def _least_squares(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Slopes are pulled towards 0 a little: of some terms there are few different values."""
    d = x.shape[1]
    shares = weights / weights.sum()
    centre, middle = shares @ x, float(shares @ y)
    scale = np.sqrt(shares)[:, None]
    left = np.vstack([scale * (x - centre), RIDGE * np.sqrt(1 / 40) * np.eye(d)])
    right = np.r_[scale[:, 0] * (y - middle), np.zeros(d)]
    lower = np.r_[np.zeros(4), np.full(d - 4, -np.inf)]
    slopes = lsq_linear(left, right, (lower, np.full(d, np.inf))).x
    return middle - float(centre @ slopes), slopes


def _quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(np.searchsorted(below, q), len(values) - 1)])


def write(runs: Iterable[Seen], path: Path = PATH) -> None:
    lines: dict[str, dict[str, list[Seen]]] = {}
    for run in runs:
        if run.part == "fit":
            lines.setdefault(run.algorithm, {}).setdefault(run.loss, []).append(run)
    curves = {
        algorithm: {
            loss: vars(line(those))
            for loss, those in sorted(losses.items())
            if len({run.problem for run in those}) >= PROBLEMS_MIN
        }
        for algorithm, losses in sorted(lines.items())
    }
    stored = {"made_by": "make lab ARGS=--calibrate", "curves": curves}
    path.write_text(json.dumps(stored, indent=1) + "\n")
    expected.curves.cache_clear()


def coverage(runs: Iterable[Seen]) -> Iterator[str]:
    """How many actual excess risks were within the band that their Plan gave."""
    told: dict[tuple[str, str, str], list[tuple[bool, bool]]] = {}
    for run in runs:
        if run.predicted is None:
            continue
        excess = max(run.excess, LEAST)
        inside = run.predicted.low <= excess <= run.predicted.high
        verdict = inside, excess <= run.predicted.median
        for name in ("all", run.algorithm, *(["auto"] if run.auto else [])):
            told.setdefault((run.part, name, run.loss), []).append(verdict)
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
            actual = [max(run.excess, LEAST) for run in own]
            curves.append({"label": name, "n": medians, "values": actual, "points": True})
        ends = [
            min(c for each in curves for c in each["n"]),
            max(c for each in curves for c in each["n"]),
        ]
        curves.append({"label": "as expected", "n": ends, "values": ends, "plain": True})
        panels[f"{loss}: expected and actual"] = curves
    pictures.picture(path, "actual excess risk", panels, 2, "expected (median)")
