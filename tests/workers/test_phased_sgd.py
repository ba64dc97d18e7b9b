"""Phased SGD: no exchange of one record moves a phase's mean beyond its sensitivity, and it learns."""

from itertools import combinations
from math import isqrt, sqrt

import numpy as np
import pytest

from service.planning.catalog import plan
from tests.planning.cases import facts, spec
from tests.workers.phased import JOBS, KEY, NAME, UNIT, D, made_for, means, phases_of
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress, Stopped
from workers.randomness import Randomness


def records() -> list[tuple[np.ndarray, float]]:
    axes = [UNIT * row for row in np.eye(D)]
    diagonal = np.full(D, isqrt(UNIT**2 // D))
    rows = [np.zeros(D), axes[0], -axes[0], axes[1], diagonal, -diagonal]
    return [(row, label) for row in rows for label in (-1.0, 1.0)]


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("rows", [2, 11])
def test_no_exchange_moves_a_mean_beyond_its_sensitivity_and_one_comes_near(job, rows):
    """Every phase and every position in it, over starts, companies and pairs of records; and an
    exchange leaves every other phase's mean, given its start, the same to the last bit."""
    made, pool, rng = made_for(rows, **job), records(), np.random.default_rng(3)
    radius = made.schedule.radius
    along = np.array([radius, 0.0, 0.0])
    starts = [np.zeros(D), along, -along, radius * np.ones(D) / sqrt(D)]
    companies = [[pool[0]] * rows, [pool[i] for i in rng.integers(len(pool), size=rows)]]
    nearest = dict.fromkeys(range(len(phases_of(made))), 0.0)
    for company in companies:
        x, y = np.array([r for r, _ in company]), np.array([label for _, label in company])
        for start in starts:
            for place in range(rows):
                results = []
                for row, label in pool:
                    there_x, there_y = x.copy(), y.copy()
                    there_x[place], there_y[place] = row, label
                    results.append(means(made, there_x, there_y, start))
                for k, (positions, sensitivity) in enumerate(phases_of(made)):
                    of_phase = [result[k] for result in results]
                    moved = max(float(np.linalg.norm(a - b)) for a, b in combinations(of_phase, 2))
                    assert moved <= sensitivity
                    if place not in positions:
                        assert moved == 0.0
                    nearest[k] = max(nearest[k], moved / sensitivity)
    print(f"{job}, {rows} rows: movement over sensitivity by phase", nearest)
    if rows == 11 and made.spec.set.kind == "l2_ball" and made.schedule.radius <= 1:
        assert min(nearest.values()) > 0.98  # slopes at their bound wherever a phase starts


def test_the_means_movement_falls_with_the_exchanged_records_place():
    """A record in place t moves T - t + 1 of T iterates: exactly that share, where nothing shrinks."""
    made = made_for(8, **JOBS["hinge"])
    positions, sensitivity = phases_of(made)[0]
    assert positions == range(4)
    for place in positions:
        x, y = np.zeros((8, D)), np.ones(8)
        x[place, 0], y[place] = UNIT, 1.0
        there = y.copy()
        there[place] = -1.0
        moved = np.linalg.norm(means(made, x, y, x[0])[0] - means(made, x, there, x[0])[0])
        assert moved == pytest.approx(sensitivity * (4 - place) / 4, rel=1e-9)


# --- the run ----------------------------------------------------------------------------------------


def drawn_data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.integers(-2300, 2300, (rows, D)).astype(np.int16)
    return x, np.where(x[:, 0] + 300 * rng.normal(size=rows) > 0, 1.0, -1.0)


@pytest.mark.parametrize("block", [1, 3, 7, 10**6])
@pytest.mark.parametrize("delta", [None, 0.0])
def test_progress_in_blocks_of_any_size_gives_the_same_bits(block, delta):
    made = made_for(50, delta, **JOBS["hinge"])
    cut = made.model_copy(update={"schedule": made.schedule.model_copy(update={"block": block})})
    results = []
    for one in (made, cut):
        progress = Progress()
        data = Data(one, *drawn_data(50), Randomness(KEY, "same"))
        results.append(RUNS[NAME](one, data, progress))
        assert progress.done == one.schedule.steps
    assert np.array_equal(*results)
    assert np.linalg.norm(results[0]) <= made.schedule.radius * (1 + 1e-12)


def test_a_run_stops_within_a_phase():
    made = made_for(50, **JOBS["hinge"])
    cut = made.model_copy(update={"schedule": made.schedule.model_copy(update={"block": 4})})

    class Impatient(Progress):
        def step(self):
            self.stopped = self.done >= 2
            super().step()

    progress = Impatient()
    with pytest.raises(Stopped):
        RUNS[NAME](cut, Data(cut, *drawn_data(50), Randomness(KEY, "stop")), progress)
    assert progress.done == 3


@pytest.mark.parametrize("where", [{"radius": 3.0}, "all"])
def test_it_learns(where):
    """With hardly any noise the hinge of its output is near the best."""
    about = facts(rows=40_000, columns=D, epsilon=50.0)
    made = plan(spec(NAME, 50.0, loss="hinge", set=where), about)
    x, y = drawn_data(40_000)
    w = RUNS[NAME](made, Data(made, x, y, Randomness(KEY, made.digest())), Progress())

    def risk(weights):
        return float(np.maximum(0, 1 - y * (x / UNIT @ weights)).mean())

    assert risk(w) < 0.75 * risk(np.zeros(D))
    best = min(risk(s * np.array([1.0, 0.0, 0.0])) for s in np.linspace(0, 3, 61))
    assert risk(w) <= best + made.prediction.excess_risk


def test_the_rank_changes_the_step_and_never_the_price():
    jobs = [{}, {"rank": 5}, {"rank": 1}]
    about = facts(rows=1000, columns=40, epsilon=0.1)
    plans = [plan(spec(NAME, 0.1, set="all", parameters=job), about) for job in jobs]
    sizes = [made.schedule.phases[0].step_size for made in plans]
    assert sizes[0] < sizes[1] < sizes[2]
    assert len({made.price.units for made in plans}) == 1
