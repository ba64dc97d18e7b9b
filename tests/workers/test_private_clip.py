"""The choice of a clip from the data, under attack."""

from itertools import combinations

import numpy as np
import pytest

from service.planning.catalog import plan
from service.planning.draft import PrivateClip
from service.planning.plan import Plan
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_counts, exact_sum
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
from workers.clip import clip_scores
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError

algorithms = pytest.mark.parametrize("algorithm", ALL)


def chosen(algorithm, storage, noise, rows=N, epsilon=1.0, **more) -> Plan:
    """A plan whose clip is chosen from the data."""
    parameters = {"clip": "private", **more.pop("parameters", {})}
    job = spec(algorithm, epsilon, MIXES[noise], **more, parameters=parameters)
    return plan(job, facts(storage, rows=rows, columns=D, epsilon=epsilon))


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
