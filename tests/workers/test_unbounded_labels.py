"""Labels without bounds: none moves a sum beyond its sensitivity, and large ones are fitted."""

from itertools import combinations

import numpy as np
import pytest

from service.planning.catalog import plan
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_sum
from tests.workers.heavy_tails import ALL
from tests.workers.records import (
    MIXES,
    D,
    N,
    data,
    movement,
    noises,
    records,
    storages,
    sums,
    weights,
)
from workers.algorithms import RUNS
from workers.progress import Progress

LABELS = (0.0, 1.0, -1.0, 1e6, -1e6, 3e38, 1e300, -1e300, 5e-324, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("algorithm", [*ALL, "gradient-descent", "accelerated-sgd"])
@storages
@noises
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_no_label_moves_a_sum_beyond_its_sensitivity_and_one_comes_near(
    algorithm, storage, noise, loss
):
    """In silence: an overflow on the way to float32 would be a warning, which is an error here."""
    rng = np.random.default_rng(7)
    job = spec(algorithm, 1.0, MIXES[noise], loss=loss, parameters={"clip": 0.05})
    made = plan(job, facts(storage, rows=N, columns=D, label="unbounded"))
    pool = [(row, y) for row, sign in records(made, rng) if sign > 0 for y in LABELS]
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=N)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    farthest = 0
    for w in weights(rng):
        results = set()
        for row, label in pool:
            x[0], y[0] = row, label
            results.add(tuple(exact_sum(sums(made, x, y), w, 0, N).tolist()))
        farthest = max(farthest, 0, *(movement(made, a, b) for a, b in combinations(results, 2)))
    sensitivity = made.lattice.release().sensitivity
    assert sensitivity / 1.5 <= farthest <= sensitivity


@pytest.mark.parametrize("algorithm", [*ALL, "gradient-descent", "accelerated-sgd"])
@storages
def test_a_run_survives_labels_of_any_size(algorithm, storage):
    clip = {"clip": "private"} if algorithm in ALL else {"clip": 1.0}
    parameters = {**clip, "steps": 3}
    job = spec(algorithm, loss="squared", parameters=parameters)
    made = plan(job, facts(storage, rows=97, columns=D, label="unbounded"))
    x, _ = data(made, 97)
    w = RUNS[algorithm](made, sums(made, x, np.resize(LABELS, 97)), Progress())
    assert np.isfinite(w).all()


@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_labels_far_beyond_one_are_fitted(storage):
    """Medians of about 5000, by the absolute loss, with one record at 10^300."""
    n, rng = 2000, np.random.default_rng(6)
    job = spec(
        "accelerated-sgd",
        8.0,
        loss="absolute",
        set={"radius": 20_000},
        parameters={"steps": 500, "clip": 1.0},
    )
    made = plan(job, facts(storage, rows=n, columns=2, epsilon=8.0, label="unbounded"))
    x = np.tile([2895, 0] if storage == "fixed" else [0.7, 0.0], (n, 1))
    y = 5000 + rng.standard_t(2.5, n)
    y[7] = 1e300
    w = RUNS[job.algorithm](
        made, sums(made, x.astype(np.int16 if storage == "fixed" else float), y), Progress()
    )
    assert 0.7 * w[0] == pytest.approx(5000, rel=0.05)
