"""Heavy tails: the choice of a clip under attack, one pass over the rows, phases with lattices of
their own, and the proximal operators."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from service.planning.catalog import plan
from service.planning.draft import PrivateClip
from service.planning.plan import Plan
from service.planning.regularisers.elastic_net import ElasticNet
from service.planning.regularisers.group_lasso import GroupLasso
from service.planning.regularisers.l1 import L1
from service.planning.regularisers.none import NoRegulariser
from service.planning.sets.all import AllSpace
from service.planning.sets.box import Box
from service.planning.sets.l2_ball import L2Ball
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_counts, exact_sum
from tests.workers.test_sensitivity import (
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
from workers.data import Data, clip_scores
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError

ALL = ("clipped-sgd", "accelerated-clipped-sgd", "proximal-sgd", "localized-subgradient")
ONE_PASS = ALL[:3]
algorithms = pytest.mark.parametrize("algorithm", ALL)
EXTREME_LABELS = (-1.0, 1.0, 0.0)


def chosen(algorithm, storage, noise, rows=N, epsilon=1.0, **more) -> Plan:
    """A plan whose clip is chosen from the data."""
    parameters = {"clip": "private", **more.pop("parameters", {})}
    job = spec(algorithm, epsilon, MIXES[noise], **more, parameters=parameters)
    return plan(job, facts(storage, rows=rows, columns=D, epsilon=epsilon))


class Noiseless(Data):
    def _vector(self, exact, step, rows, **how):
        self._gate.number += 1
        return exact.astype(np.float64) * step


# --- the choice of a clip ----------------------------------------------------------------------------


@storages
@noises
@pytest.mark.parametrize("loss", ["logistic", "squared", "smoothed_hinge"])
def test_no_exchange_moves_two_scores_apart_by_more_than_two_and_one_does(storage, noise, loss):
    """Among the records: zero, subnormal, 1e300, infinities, NaN, labels of any size."""
    rng = np.random.default_rng(3)
    made = chosen("clipped-sgd", storage, noise, loss=loss)
    pool = [(row, y) for row, y in records(made, rng) if y > 0]
    pool += [(row, y) for row, _ in pool[:3] for y in (0.0, 1e300, np.inf, np.nan, 5e-324)]
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=N)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    ranks = range(N + 1)
    farthest = 0
    for place in range(N):
        counts = []
        for row, label in pool:
            x[place], y[place] = row, label
            counts.append(exact_counts(sums(made, x, y)))
        assert all(c.dtype == np.int64 and (np.diff(c) >= 0).all() for c in counts)
        assert all(c[0] >= 0 and c[-1] <= N for c in counts)
        for a, b in combinations(counts, 2):
            assert np.abs(a - b).max() <= 1
            for rank in ranks:
                change = clip_scores(a, rank) - clip_scores(b, rank)
                farthest = max(farthest, int(change.max() - change.min()))
    limit = PrivateClip.SENSITIVITY
    varied = storage == "float64" or loss == "squared"  # else all slopes at 0 are alike
    assert farthest <= limit and (farthest == limit or not varied)


def test_lengths_are_those_of_gradients_at_zero():
    made = chosen("clipped-sgd", "float64", "gaussian", loss="squared", rows=5)
    x = np.array([[3.0, 4, 0], [1e300, 0, 0], [np.nan, 1, 1], [2.0**-30, 0, 0], [0, 0, 0]])
    counts = exact_counts(
        sums(made, x, np.array([2.0, 1, 1, 1, 1])),
    )
    clips = 2.0 ** (np.array(PrivateClip.CHOICES) / 4)
    assert counts[0] == 2 and counts[-1] == 4  # zero and NaN; all but 1e300
    assert clips[np.argmax(counts >= 3)] == 2.0**-30
    assert clips[np.argmax(counts >= 4)] == pytest.approx(10, rel=0.19)
    assert (counts[clips < 10] < 4).all() and (counts[clips >= 10] == 4).all()


def test_the_chosen_clip_is_near_the_quantile():
    rng = np.random.default_rng(1)
    made = chosen("clipped-sgd", "float64", "gaussian", rows=20_000, loss="logistic")
    x = rng.standard_t(3, size=(20_000, D)) * 1000.0
    lengths = np.sort(np.linalg.norm(x, axis=1) / 2)
    rank, scale = made.private_clip.rank, made.private_clip.scale
    for i in range(20):
        guarded = Data(made, x, np.ones(20_000), Randomness(bytes([i] * 32), made.digest()))
        clip = guarded.settle_clip()
        missed = abs(np.searchsorted(lengths, clip) - rank)
        step = np.searchsorted(lengths, clip * 2**0.25) - np.searchsorted(lengths, clip / 2**0.25)
        assert missed <= step + 20 * scale
        assert guarded._sums.lattice.clip == clip * made.lattice.clip
        assert guarded._sums.lattice.step == clip * made.lattice.step


@pytest.mark.parametrize("length", [1e-6, 1.05, 3.0, 1e9])
def test_a_clip_is_chosen_well_where_all_gradients_are_of_one_length(length):
    """No candidate has a number of records near the rank below it, and hundreds have all of them."""
    made = chosen("clipped-sgd", "float64", "gaussian", rows=20_000, loss="logistic")
    x = np.zeros((20_000, D))
    x[:, 1] = 2 * length
    for i in range(20):
        guarded = Data(made, x, np.ones(20_000), Randomness(bytes([i] * 32), made.digest()))
        assert length <= guarded.settle_clip() <= length * 2**0.2501


def test_the_clip_wanted_is_the_first_that_enough_records_do_not_exceed():
    counts = np.array([0, 2, 2, 7, 9, 9, 9])
    assert clip_scores(counts, 5).tolist() == [5, 3, 3, 0, 2, 4, 4]
    assert clip_scores(counts, 9).tolist() == [9, 7, 7, 2, 0, 0, 0]
    assert clip_scores(counts + 1, 1).tolist() == [0, 0, 2, 2, 7, 9, 9]


@algorithms
@storages
@noises
def test_no_sum_leaves_before_its_clip_was_chosen(algorithm, storage, noise):
    made = chosen(algorithm, storage, noise, rows=97)
    guarded = sums(made, *data(made, 97))
    with pytest.raises(WrongDataError):
        guarded.noisy_sum(np.zeros(D), 0, 10)


@algorithms
@storages
@noises
def test_a_chosen_clip_scales_what_a_unit_is_worth_and_no_integer(algorithm, storage, noise):
    """No exchange moves a sum further than priced, at the least, a middling and the largest clip."""
    rng = np.random.default_rng(5)
    made = chosen(algorithm, storage, noise, loss="squared")
    pool = records(made, rng)
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=N)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    for clip in (2.0**-40, 1.0, 2.0**40):
        farthest = 0
        for w in weights(rng)[:3]:
            results = []
            for row, label in pool:
                x[0], y[0] = row, label
                guarded = sums(made, x, y)
                guarded._clip = clip
                guarded.use(made.lattice)
                results.append(exact_sum(guarded, w, 0, N))
            farthest = max(farthest, *(movement(made, a, b) for a, b in combinations(results, 2)))
        sensitivity = made.lattice.release().sensitivity
        assert farthest <= sensitivity
        assert clip == 2.0**40 or farthest >= sensitivity / 1.5


@algorithms
@storages
@noises
def test_a_run_with_a_chosen_clip_releases_what_was_priced(algorithm, storage, noise):
    made = chosen(algorithm, storage, noise, rows=97)
    assert made.release.parts[0] == made.private_clip.release()
    x, y = data(made, 97)
    models = [RUNS[algorithm](made, sums(made, x, y), Progress()) for _ in range(2)]
    assert np.isfinite(models[0]).all() and np.array_equal(*models)
    guarded = sums(made, x, y)
    RUNS[algorithm](made, guarded, Progress())
    with pytest.raises(GateError):
        guarded.noisy_sum(np.zeros(D), 0, 10)


def test_softmax_takes_a_chosen_clip():
    about = facts("float64", rows=97, columns=D).model_copy(
        update={"label": "categorical", "classes": 3}
    )
    made = plan(spec("clipped-sgd", loss="softmax", parameters={"clip": "private"}), about)
    x, _ = data(made, 97)
    w = RUNS["clipped-sgd"](made, sums(made, x, np.arange(97.0) % 3), Progress())
    assert w.shape == (9,) and np.isfinite(w).all()


# --- labels without bounds --------------------------------------------------------------------------

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


# --- proximal operators ------------------------------------------------------------------------------

REGULARISERS = [
    NoRegulariser(),
    L1(strength=0.7),
    ElasticNet(l1=0.4, l2=2.0),
    GroupLasso(strength=0.5, groups=(2, 1, 3)),
]


def value(h, w):
    w = w[1:]
    match h.kind:
        case "none":
            return 0.0
        case "l1":
            return h.strength * np.abs(w).sum()
        case "elastic_net":
            return h.l1 * np.abs(w).sum()
        case "group_lasso":
            parts = np.split(w, np.cumsum(h.groups)[:-1])
            return h.strength * sum(np.sqrt(p.size) * np.linalg.norm(p) for p in parts)


FEASIBLE = [AllSpace(), L2Ball(radius=1.0), Box(lower=-0.6, upper=0.5)]


@pytest.mark.parametrize(
    ("h", "feasible"),
    [  # the plan refuses group lasso over a box
        pytest.param(h, feasible, id=f"{h.kind}-{feasible.kind}")
        for h in REGULARISERS
        for feasible in FEASIBLE
        if (h.kind, feasible.kind) != ("group_lasso", "box")
    ],
)
def test_the_operator_minimises_what_it_should(h, feasible):
    """No point of the set near or far does better than the operator followed by the projection. An
    elastic net's square is no part of it."""
    rng = np.random.default_rng(4)
    for eta in (0.1, 1.0):
        for _ in range(20):
            z = rng.normal(size=7) * 2

            def objective(w, z=z, eta=eta):
                return eta * value(h, w) + (w - z) @ (w - z) / 2

            found = feasible.project(h.prox(z, eta, 7))
            least = objective(found)
            scales = 10.0 ** rng.uniform(-6, 1, size=(200, 1))
            for other in found + scales * rng.normal(size=(200, 7)):
                assert objective(feasible.project(other)) >= least - 1e-12


def test_intercepts_are_left_alone_one_per_class():
    z = np.arange(1.0, 9.0)
    w = L1(strength=100.0).prox(z, 1.0, 4)
    assert w.tolist() == [1, 0, 0, 0, 5, 0, 0, 0]
    w = GroupLasso(strength=100.0, groups=(2, 1)).prox(z, 1.0, 4)
    assert w.tolist() == [1, 0, 0, 0, 5, 0, 0, 0]
    assert GroupLasso(strength=1.0, groups=(3,)).prox(np.zeros(4), 1.0, 4).tolist() == [0] * 4


def test_the_smooth_part_of_an_elastic_net_is_its_square():
    w = np.arange(1.0, 7.0)
    assert ElasticNet(l1=1.0, l2=2.0).smooth_gradient(w, 3).tolist() == [0, 4, 6, 0, 10, 12]
    assert L1(strength=3.0).smooth_gradient(w, 3).tolist() == [0] * 6


def test_a_noiseless_lasso_finds_the_support():
    """Squared loss, 3 of 12 features matter: the others are exactly zero."""
    n, d = 20_000, 13
    rng = np.random.default_rng(8)
    job = spec(
        "proximal-sgd",
        50.0,
        loss="squared",
        ridge=0.0,
        set="all",
        regulariser={"kind": "l1", "strength": 0.2},
        parameters={"clip": 100.0, "steps": 40},
    )
    made = plan(job, facts("float64", rows=n, columns=d, epsilon=50.0, label="numeric"))
    x = np.c_[np.ones(n), rng.normal(size=(n, d - 1)) / 2]
    y = 0.3 + x[:, [2, 5, 7]] @ [2.0, -2.0, 1.5] + rng.normal(size=n) / 2
    w = RUNS["proximal-sgd"](made, Noiseless(made, x, y, Randomness(KEY, "")), Progress())
    assert np.flatnonzero(w).tolist() == [0, 2, 5, 7]
    assert np.sign(w[[0, 2, 5, 7]]).tolist() == [1, 1, -1, 1]


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
