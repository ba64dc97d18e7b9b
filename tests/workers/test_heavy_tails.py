"""Heavy tails: one pass over the rows, phases with lattices of their own, and convergence."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from service.planning.catalog import plan
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_sum
from tests.workers.heavy_tails import ALL, Noiseless
from tests.workers.records import (
    KEY,
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
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

ONE_PASS = ALL[:3]


# --- rows -------------------------------------------------------------------------------------------


class Watched(Data):
    """Counts how often each row was read for a sum, and on which lattice."""

    def noisy_sum(self, w, start, stop):
        self.read = getattr(self, "read", np.zeros(self._plan.facts.rows, dtype=int))
        self.read[start:stop] += 1
        return super().noisy_sum(w, start, stop)


@pytest.mark.parametrize("algorithm", ONE_PASS)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"steps": 1},
        {"steps": 7},
        {"steps": 97},
        {"batch": 10},
        {"batch": 97},
        {"steps": 4, "batch": 5},
    ],
)
def test_linear_time_every_row_is_read_once_at_most(algorithm, asked):
    parameters = {"clip": 1.0, **asked}
    made = plan(spec(algorithm, parameters=parameters), facts("float64", rows=97, columns=D))
    guarded = sums(made, *data(made, 97), Watched)
    RUNS[algorithm](made, guarded, Progress())
    schedule = made.schedule
    assert schedule.model_dump().items() >= asked.items()
    used = schedule.steps * schedule.batch
    assert used <= 97 and made.gradients == used
    assert (guarded.read[:used] == 1).all() and (guarded.read[used:] == 0).all()


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_phases_read_disjoint_rows_as_often_as_each_paid_for(ridge):
    job = spec("localized-subgradient", ridge=ridge, parameters={"steps": 20})
    made = plan(job, facts(rows=997, columns=D))
    guarded = sums(made, *data(made, 997), Watched)
    progress = Progress()
    RUNS["localized-subgradient"](made, guarded, progress)
    end = 0
    for phase, part in zip(made.schedule.phases, made.release.parts, strict=True):
        assert phase.start == end < phase.stop
        end = phase.stop
        assert (guarded.read[phase.start : phase.stop] == phase.steps).all()
        assert (part.release, part.times) == (phase.lattice.release(), phase.steps)
    assert end <= 997 and (guarded.read[end:] == 0).all()
    assert progress.done == made.schedule.steps
    assert made.gradients == guarded.read.sum()


def test_drawn_batches_come_from_their_own_phase():
    job = spec("localized-subgradient", parameters={"steps": 9, "halvings": 2})
    made = plan(job, facts(rows=997, columns=D))
    calls = []

    class Drawn(Data):
        def noisy_batch(self, w, batch, start, stop):
            calls.append((batch, start, stop))
            return super().noisy_batch(w, batch, start, stop)

    RUNS["localized-subgradient"](made, sums(made, *data(made, 997), Drawn), Progress())
    phases = made.schedule.phases
    expected = [(f.batch, f.start, f.stop) for f in phases for _ in range(f.steps)]
    assert calls == expected
    for phase, part in zip(phases, made.release.parts, strict=True):
        drawn = part.release
        assert (drawn.batch, drawn.population) == (phase.batch, phase.stop - phase.start)


@storages
@noises
def test_no_exchange_moves_a_phase_beyond_the_lattice_that_it_paid_for(storage, noise):
    """Clips differ from phase to phase where moments set them, and so do the lattices."""
    rng = np.random.default_rng(5)
    parameters = {"moment_bound": 1.0, "moment": 2, "steps": 3}
    job = spec("localized-subgradient", 1.0, MIXES[noise], loss="squared", parameters=parameters)
    made = plan(job, facts(storage, rows=N, columns=D))
    pool = records(made, rng)
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=N)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    assert len(made.schedule.phases) == 2
    for phase in made.schedule.phases:
        farthest = 0
        for w in weights(rng):
            results = []
            for row, label in pool:
                x[phase.start], y[phase.start] = row, label
                guarded = sums(made, x, y)
                guarded.use(phase.lattice)
                results.append(exact_sum(guarded, w, phase.start, phase.stop))
            farthest = max(farthest, *(movement(made, a, b) for a, b in combinations(results, 2)))
        sensitivity = phase.lattice.release().sensitivity
        assert sensitivity / 1.5 <= farthest <= sensitivity


def test_a_phase_stays_within_its_reach_and_its_set():
    made = plan(spec("localized-subgradient"), facts(rows=997, columns=D))
    assert all(f.reach == pytest.approx(2 / f.pull, rel=1e-5) for f in made.schedule.phases)
    unbounded = plan(
        spec("localized-subgradient", parameters={"clip": 1.0}),
        facts("float64", rows=997, columns=D),
    )
    assert all(f.reach is None for f in unbounded.schedule.phases)


# --- convergence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("algorithm", ALL)
def test_without_noise_a_run_comes_near_the_optimum(algorithm, storage):
    n, ridge = 4000, 0.1
    rng = np.random.default_rng(2)
    job = spec(
        algorithm, 50.0, loss="logistic", ridge=ridge, set={"radius": 3.0}, parameters={"clip": 3.0}
    )
    made = plan(job, facts(storage, rows=n, columns=D, epsilon=50.0))
    x, _ = data(made, n)
    X = x / 4095 if storage == "fixed" else x / 1.0
    y = np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5])), 1.0, -1.0)

    def objective(w):
        return float(np.logaddexp(0, -y * (X @ w)).mean() + ridge / 2 * w @ w)

    guarded = Noiseless(made, x, y, Randomness(KEY, made.digest()))
    found = RUNS[algorithm](made, guarded, Progress())
    least = minimize(objective, np.zeros(D), tol=1e-12).fun
    assert objective(found) - least <= 0.1 * (objective(np.zeros(D)) - least) + 1e-3


@pytest.mark.parametrize("regulariser", ["none", {"kind": "l1", "strength": 0.01}])
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_without_noise_a_box_is_kept_and_its_best_point_found(storage, regulariser):
    """The box cuts off two entries of the free minimiser; the set is part of what is proximal."""
    n, ridge, box = 4000, 0.1, {"kind": "box", "lower": -0.4, "upper": 0.3}
    parameters = {"clip": 3.0, "steps": 20}
    job = spec(
        "proximal-sgd", 50.0, ridge=ridge, set=box, regulariser=regulariser, parameters=parameters
    )
    made = plan(job, facts(storage, rows=n, columns=D, epsilon=50.0))
    x, _ = data(made, n)
    X = x / 4095 if storage == "fixed" else x / 1.0
    y = np.where(
        np.random.default_rng(2).uniform(size=n) < 0.5 + 0.5 * np.tanh(X @ [2, -2, 0]), 1.0, -1.0
    )

    def objective(w):
        penalty = job.regulariser.strength * np.abs(w[1:]).sum() if regulariser != "none" else 0.0
        return float(np.logaddexp(0, -y * (X @ w)).mean() + ridge / 2 * w @ w + penalty)

    w = RUNS["proximal-sgd"](
        made, Noiseless(made, x, y, Randomness(KEY, made.digest())), Progress()
    )
    assert (w >= -0.4).all() and (w <= 0.3).all()
    least = minimize(objective, np.zeros(D), bounds=[(-0.4, 0.3)] * D, tol=1e-12).fun
    assert objective(w) - least <= 0.1 * (objective(np.zeros(D)) - least) + 1e-3
    private = RUNS["proximal-sgd"](made, sums(made, x, y), Progress())
    assert (private >= -0.4).all() and (private <= 0.3).all()


def test_the_weights_of_acceleration_telescope():
    """eta_t/Gamma_t is constant for Gamma_t = (1 - alpha_t) Gamma_(t-1), as Proposition 28 needs."""
    beta, s, gamma = 0.7, 3.0, 1.0
    for t in range(1, 50):
        alpha = 2 / (t + 1)
        gamma = gamma if t == 1 else (1 - alpha) * gamma
        c = 2 * (2 * beta + s) / (t * (t + 1))
        assert gamma == pytest.approx(2 / (t * (t + 1)))
        assert c / gamma == pytest.approx(2 * beta + s)
        assert c > beta * alpha**2
