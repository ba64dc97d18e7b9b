"""What `auto` loses, cell by cell: against the best of our algorithms, and against the constant.

Losses are given as skill, 1 - loss/(loss of the best constant): R^2 for the squared loss, McFadden's
for the logistic one. 0 is as good as looking at no column.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from benchmarks.lab.fits import REFUSED, Planned, Results, anchors, fit

QUANTILES = (0.5, 0.9, 1.0)


@dataclass(frozen=True)
class Row:
    planned: Planned
    ceiling: float  # skills
    skills: dict[str, np.ndarray]  # of every algorithm, by seed
    scores: dict[str, float]  # of auto, means

    @property
    def auto(self) -> np.ndarray:
        return self.skills[self.planned.auto]

    @property
    def best(self) -> str:
        return max(self.skills, key=lambda name: self.skills[name].mean())

    @property
    def regret(self) -> tuple[float, float]:
        """Against the best of ours, and its standard error; 0 where auto is the best."""
        return spread(self.skills[self.best] - self.auto)

    @property
    def close(self) -> bool:
        regret, error = self.regret
        return regret <= error + 1e-9

    @property
    def harmful(self) -> bool:
        """Worse than the constant by more than chance."""
        mean, error = spread(self.auto)
        return mean < -max(2 * error, 1e-3)


def spread(values: np.ndarray) -> tuple[float, float]:
    error = float(np.std(values, ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), error


def row(results: Results, planned: Planned, seeds: int) -> Row | None:
    """None where auto refuses."""
    if planned.auto == REFUSED:
        return None
    cell = planned.cell
    bounds = [anchors(results, cell, seed) for seed in range(seeds)]
    fits = {
        name: [fit(results, cell, plan, seed) for seed in range(seeds)]
        for name, plan in planned.plans.items()
    }
    constants = np.array([constant["loss"] for _, constant in bounds])
    skills = {
        name: 1 - np.array([f["loss"] for f in each]) / constants for name, each in fits.items()
    }
    ceiling = float(np.mean(1 - np.array([best["loss"] for best, _ in bounds]) / constants))
    told = [k for k in fits[planned.auto][0] if k not in ("key", "seconds", "loss")]
    means = {k: float(np.mean([f[k] for f in fits[planned.auto]])) for k in told}
    return Row(planned, ceiling, skills, means)


def line(found: Row) -> str:
    cell, (mean, error) = found.planned.cell, spread(found.auto)
    regret, of_regret = found.regret
    best = (
        "the best" if regret == 0 else f"{found.best} is better by {regret:.3f} +- {of_regret:.3f}"
    )
    scores = ", ".join(f"{name} {value:.3f}" for name, value in found.scores.items())
    harm = "  BELOW THE CONSTANT" if found.harmful else ""
    return (
        f"{cell.part:5}{cell.title:22}{cell.loss:9}{cell.epsilon:>5g}  {found.ceiling:6.3f}  "
        f"{mean:7.3f} +- {error:.3f}  {found.planned.auto}: {scores}; {best}{harm}"
    )


def summary(rows: Iterable[Row]) -> list[str]:
    """By part and loss: how often auto is close to our best, and how far off it is."""
    rows, told = list(rows), []
    for part in sorted({found.planned.cell.part for found in rows}):
        for loss in dict.fromkeys(found.planned.cell.loss for found in rows):
            asked = [(found, found.planned.cell) for found in rows]
            those = [found for found, cell in asked if (cell.part, cell.loss) == (part, loss)]
            if those:
                told.append(f"{part}, {loss}: " + told_of(those))
    return told


def told_of(rows: list[Row]) -> str:
    regrets = [found.regret[0] for found in rows]
    names = [found.planned.auto for found in rows]
    middle, most, all_of_them = np.quantile(regrets, QUANTILES)
    worst = rows[int(np.argmax(regrets))].planned.cell
    taken = ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names)))
    return (
        f"{len(rows)} cells; within one standard error of our best in "
        f"{np.mean([found.close for found in rows]):.0%}; below the constant in "
        f"{np.mean([found.harmful for found in rows]):.0%}; regret {middle:.3f} (median), {most:.3f} "
        f"(in 90 %), {all_of_them:.3f} (largest: {worst.title}, epsilon {worst.epsilon:g}); "
        f"takes {taken}"
    )


def fixed(rows: Iterable[Row]) -> list[str]:
    """The regret of every algorithm, were it always taken: the smallest maximum comes first."""
    regrets: dict[str, list[float]] = {}
    cells = 0
    for found in rows:
        cells += 1
        best = found.skills[found.best].mean()
        for name, skills in found.skills.items():
            regrets.setdefault(name, []).append(float(best - skills.mean()))
        regrets.setdefault("auto", []).append(found.regret[0])
    ranked = sorted(regrets.items(), key=lambda item: (-len(item[1]), max(item[1])))
    return [
        f"{name:32}{len(each):4} of {cells} cells; regret "
        + ", ".join(f"{q:.3f}" for q in np.quantile(each, QUANTILES))
        for name, each in ranked
    ]
