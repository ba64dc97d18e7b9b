"""What somebody gets who sets nothing, beside what others give who may choose by the test set.

    make bench-default ARGS="--data FOLDER"                 # makes .venv/peers for the other libraries
    make bench-default ARGS="--data FOLDER --only ours"     # or opacus, diffprivlib, baselines
    make bench-default ARGS="--data FOLDER --runs 3 --problems adult,churn,hotels --epsilons 1"
    make bench-default ARGS=--time

FOLDER holds .npz files of encoded rows: X_train, y_train, X_test, y_test, column 0 constant. To these
come the problems of the lab that no rule was fitted on. Loss: logistic or squared, by the label. Skill
is 1 - loss/(loss of the best constant) on test rows. Every fit is kept, so a run may be stopped.

Every private method guarantees (epsilon, 1e-6) or more for replaced records, but for
"Opacus, add or remove": at the same epsilon that is weaker, and only for show.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import default_baselines, default_time
from benchmarks.kernels import in_peers
from benchmarks.lab import fits, report
from benchmarks.lab.fits import DELTA, Cell, Results, cells, judged, loss_of, planned, rows
from benchmarks.lab.problems import NAMES, load, part

EPSILONS = (0.1, 0.5, 1.0, 2.0, 8.0)
PEERS = {"opacus": ("Opacus, replace", "Opacus, add or remove"), "diffprivlib": ("diffprivlib",)}
SLOW = ("localized-subgradient", "phased-sgd")
show = partial(print, flush=True)


def key(cell: Cell, method: str, seed: int) -> str:
    return f"{cell.problem}/{method}:{cell.loss}:{cell.epsilon:g}/{seed}"


def add(results: Results, cell: Cell, method: str, seed: int, by_setting: dict) -> None:
    """Held-out losses of every setting of one fit."""
    problem, loss = load(cell.problem), loss_of(cell)
    _, test = rows(problem, seed)
    told = {setting: judged(problem, loss, test, w) for setting, w in by_setting.items()}
    results.add({"key": key(cell, method, seed), "settings": told})


def missing(results: Results, cell: Cell, method: str, runs: int) -> list[int]:
    return [seed for seed in range(runs) if key(cell, method, seed) not in results.lines]


def run_baselines(results: Results, cell: Cell, runs: int) -> None:
    for method, loss in default_baselines.METHODS.items():
        if loss == cell.loss:
            for seed in missing(results, cell, method, runs):
                train, _ = rows(load(cell.problem), seed)
                found = default_baselines.fits(method, *train, cell.epsilon, DELTA, seed)
                add(results, cell, method, seed, dict(found))


def run_peers(results: Results, those: list[Cell], methods: tuple[str, ...], runs: int) -> None:
    """All cells of one problem in one process of the other environment."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for cell in those:
            for method in methods:
                for seed in missing(results, cell, method, runs):
                    path = Path(folder) / f"{seed}.npz"
                    if not path.exists():
                        (x, y), _ = rows(load(cell.problem), seed)
                        np.savez(path, x=x, y=y)
                    jobs.append(
                        {
                            "rows": str(path),
                            "loss": cell.loss,
                            "method": method,
                            "epsilon": cell.epsilon,
                            "delta": DELTA,
                            "seed": seed,
                        }
                    )
        if not jobs:
            return
        asked = Path(folder) / "jobs.json"
        asked.write_text(json.dumps(jobs))
        of_epsilon, job, found = {cell.epsilon: cell for cell in those}, None, {}
        for line in [*in_peers("default_peers.py", str(asked)), None]:
            fit = line if line is None else json.loads(line)
            now = fit and (fit["epsilon"], fit["method"], fit["seed"])
            if job is not None and now != job:
                add(results, of_epsilon[job[0]], job[1], job[2], found)
                found = {}
            if fit is not None:
                job = now
                found[fit["setting"]] = np.array(fit["weights"])


def peer_skill(results: Results, cell: Cell, method: str, runs: int) -> np.ndarray | None:
    """By seed, at the setting that is best on the test rows; None until every run is there."""
    if missing(results, cell, method, runs):
        return None
    told = [results.lines[key(cell, method, seed)]["settings"] for seed in range(runs)]
    floors = [fits.anchors(results, cell, seed)[1]["loss"] for seed in range(runs)]
    settings = {
        setting: np.array([1 - t[setting]["loss"] / f for t, f in zip(told, floors, strict=True)])
        for setting in told[0]
    }
    return max(settings.values(), key=np.mean)


def behind(auto: np.ndarray, other: np.ndarray) -> bool:
    """By more than one standard error of the difference."""
    mean, error = report.spread(other - auto)
    return mean > error


def lines(results: Results, cell: Cell, runs: int) -> Iterator[tuple[str, bool, report.Row]]:
    """The cell's line, whether a peer with our guarantee is ahead of auto, and our own row."""
    found = report.row(results, planned(cell).without(SLOW), runs)
    if found is None:
        show(f"{cell.title}, epsilon {cell.epsilon:g}: auto refuses")
        return
    told, ahead = [], False
    for method in (*PEERS["diffprivlib"], *PEERS["opacus"], *default_baselines.METHODS):
        skill = peer_skill(results, cell, method, runs)
        if skill is not None:
            better = behind(found.auto, skill) and not method.endswith("remove")
            ahead |= better
            mean, error = report.spread(skill)
            told.append(f"{method} {mean:.3f} +- {error:.3f}{' AHEAD' if better else ''}")
    own = ", ".join(f"{name} {skill.mean():.3f}" for name, skill in sorted(found.skills.items()))
    yield f"{report.line(found)}\n      ours: {own}\n      {'; '.join(told)}", ahead, found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of .npz files")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", choices=("ours", "baselines", *PEERS), help="run no others")
    parser.add_argument("--problems", default="", help="names, with commas; otherwise all")
    parser.add_argument("--epsilons", default="", help="with commas")
    parser.add_argument(
        "--time", nargs="*", metavar="ROWSxCOLUMNS", help="seconds, and nothing else"
    )
    options = parser.parse_args(arguments)
    if options.time is not None:
        default_time.main(options.time or default_time.SIZES)
        return
    files = sorted(options.data.glob("*.npz")) if options.data else []
    names = [*map(str, files), *(name for name in NAMES if part(name) == "held")]
    asked = set(filter(None, options.problems.split(",")))
    names = [name for name in names if not asked or Path(name).stem in asked]
    epsilons = tuple(map(float, filter(None, options.epsilons.split(",")))) or EPSILONS
    results, all_rows, overtaken = Results(), [], []
    for name in names:
        those = list(cells((name,), epsilons, others=False))
        if load(name).kind == "categorical":  # no peer has several classes
            continue
        for peer, methods in PEERS.items():
            if options.only in (None, peer):
                run_peers(results, those, methods, options.runs)
        for cell in those:
            if options.only in (None, "baselines"):
                run_baselines(results, cell, options.runs)
            for text, ahead, found in lines(results, cell, options.runs):
                show(text)
                all_rows.append(found)
                overtaken.append(ahead)
    show("\n" + "\n".join(report.summary(all_rows)))
    show("\nregret of always taking one of ours (median, in 90 %, largest)")
    show("\n".join(report.fixed(all_rows)))
    if overtaken:
        show(
            f"\nof {len(overtaken)} cells a private peer with our guarantee is ahead of auto by more "
            f"than a standard error in {sum(overtaken)}"
        )


if __name__ == "__main__":
    main()
