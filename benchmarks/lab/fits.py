"""Cells of the lab, and the fits in them, one line of JSON each, kept until a Plan is another one.

A cell is a problem, a loss and an epsilon, asked for as a user would who sets nothing: every algorithm
makes its Plan, and `auto` takes one of these. A fit is one run of a Plan, by the worker's own code, on
the rows of one seed.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from benchmarks.lab import losses, problems
from benchmarks.lab.problems import NAMES, Problem, load, part
from service.config import Settings
from service.errors import PlanRefused
from service.planning.choose import choose, compare
from service.planning.losses import Loss
from service.planning.plan import Plan
from service.planning.spec import JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

DELTA = 1e-6
EPSILONS = (0.05, 0.1, 0.5, 1.0, 2.0, 8.0)
FIRST = {"binary": "logistic", "numeric": "squared", "categorical": "softmax"}
OTHERS = {
    "binary": ["hinge", "smoothed_hinge"],
    "numeric": ["absolute", "huber", "pinball"],
    "categorical": [],
}
QUICK = ("mortgage", "credit", "churn", "wages", "linear-off-centre", "storms", "few", "plain")
# of each part and kind of label a few, with the other losses too
OTHERS_OF = ("credit", "union", "votes", "loans", "wages", "diamonds", "hotels", "linear-skew")
GRADIENTS_MAX = Settings.model_fields["gradients_max"].default
CEILING, CONSTANT, REFUSED = "not private", "constant", "refused"


@dataclass(frozen=True)
class Cell:
    problem: str
    loss: str
    epsilon: float
    delta: float = DELTA

    @property
    def part(self) -> str:
        return part(self.problem)

    @property
    def title(self) -> str:
        return Path(self.problem).stem


@dataclass(frozen=True)
class Planned:
    cell: Cell
    plans: dict[str, Plan]
    auto: str  # which of them
    seconds: float  # of planning

    def without(self, names: tuple[str, ...]) -> "Planned":
        plans = {k: v for k, v in self.plans.items() if k == self.auto or k not in names}
        return replace(self, plans=plans)


def cells(
    names: tuple[str, ...] = NAMES,
    epsilons=EPSILONS,
    others: bool = True,
    losses: tuple[str, ...] = (),
    delta: float = DELTA,
) -> Iterator[Cell]:
    """Problem by problem, so that each is loaded once. Of losses that are named, those that fit."""
    for name in names:
        kind = load(name).kind
        more = OTHERS[kind] if losses or (others and name in OTHERS_OF) else []
        for loss in [FIRST[kind], *more]:
            if not losses or loss in losses:
                yield from (Cell(name, loss, epsilon, delta) for epsilon in epsilons)


def loss_of(cell: Cell) -> Any:
    given = {"kind": cell.loss, **({"quantile": 0.9} if cell.loss == "pinball" else {})}
    return TypeAdapter(Loss).validate_python(given)


def planned(cell: Cell, only: tuple[str, ...] = ()) -> Planned:
    """All Plans of a cell; `only` keeps those whose names begin so, besides auto's."""
    start = time.perf_counter()
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_lab",
            "algorithm": "auto",
            "loss": loss_of(cell),
            "privacy": {"epsilon": cell.epsilon, "delta": cell.delta},
        }
    )
    candidates = compare(spec, load(cell.problem).facts(cell.epsilon, cell.delta), GRADIENTS_MAX)
    seconds = time.perf_counter() - start
    try:
        auto = choose(candidates)[0].algorithm
    except PlanRefused:
        auto = REFUSED
    plans = {c.algorithm.name: c.plan for c in candidates if c.plan is not None}
    kept = {k: v for k, v in plans.items() if not only or k == auto or k.startswith(only)}
    return Planned(cell, kept, auto, seconds)


class Results:
    """Every fit there ever was, by its problem, Plan and seed."""

    def __init__(self) -> None:
        self.path = path = problems.HOME / "fits.jsonl"
        self.lines: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for line in path.read_text().splitlines():
                found = json.loads(line)
                self.lines[found["key"]] = found

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.lines.clear()

    def add(self, line: dict[str, Any]) -> None:
        self.lines[line["key"]] = line
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def key(problem: str, plan: Plan | str, seed: int) -> str:
    """A prediction changes no run, so a Plan's digest without it."""
    text = plan
    if isinstance(plan, Plan):
        told = plan.model_dump(mode="json", exclude={"prediction", "expected", "planner"})
        text = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:24]
    return f"{problem}/{text}/{seed}"


def anchors(results: Results, cell: Cell, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is possible without privacy, and without columns."""
    found = []
    for name in (CEILING, CONSTANT):
        k = key(cell.problem, f"{name}:{cell.loss}", seed)
        if k not in results.lines:
            problem, loss = load(cell.problem), loss_of(cell)
            train, test = rows(problem, seed)
            if name == CEILING:
                w = losses.ceiling(loss, train, test)
            else:
                best = losses.constant(loss, train[1])
                w = np.zeros((len(best), train[0].shape[1]))
                w[:, 0] = best / problem.constant
                w = w.ravel()
            results.add({"key": k, **judged(problem, loss, test, w)})
        found.append(results.lines[k])
    return tuple(found)


def rows(problem: Problem, seed: int) -> tuple[tuple, tuple]:
    """((x, y) to fit on, (x, y) to judge by)"""
    x, (train, test) = problem.x, problem.split(seed)
    return (x[train], problem.y[train]), (x[test], problem.y[test])


def judged(problem: Problem, loss: Any, test: tuple, w: np.ndarray) -> dict[str, Any]:
    return {"loss": losses.value(loss, *test, w), **losses.scores(*test, w, problem.kind)}


def fit(results: Results, cell: Cell, plan: Plan, seed: int) -> dict[str, Any]:
    k = key(cell.problem, plan, seed)
    if k in results.lines:
        return results.lines[k]
    problem = load(cell.problem)
    train, test = problem.split(seed)
    secret = hashlib.sha256(f"lab {seed}".encode()).digest()
    data = Data(plan, problem.z[train], problem.y[train], Randomness(secret, plan.digest()))
    start = time.perf_counter()
    w = RUNS[plan.algorithm](plan, data, Progress())
    seconds = time.perf_counter() - start
    found = judged(problem, loss_of(cell), (problem.x[test], problem.y[test]), w)
    results.add({"key": k, "seconds": round(seconds, 3), **found})
    return results.lines[k]
