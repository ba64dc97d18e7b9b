"""Secret batches: the attack on their sums, and how they are drawn."""

from collections import Counter
from itertools import combinations, cycle, product
from math import comb

import numpy as np
import pytest
from scipy.stats import chi2

import workers.gate
import workers.rows
from service.planning.catalog import plan
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_batch, exact_sum
from tests.workers.records import D, data, movement, records, sums, weights
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.rows import WrongDataError
from workers.samplers import sample

KEY = bytes(range(32))
AC, LOCAL, GD = "accelerated-sgd", "localized-accelerated-sgd", "gradient-descent"


NOISES = {"gaussian": None, "laplace": 0.0}


def drawing_plan(storage="fixed", noise="gaussian", rows=6, batch=3, steps=4, **more):
    clip = {"clip": 1.0} if storage == "float64" else {}
    parameters = {"steps": steps, "batch": batch} | clip
    job = spec(AC, 1.0, NOISES[noise], parameters=parameters, **more)
    return plan(job, facts(storage, rows=rows, columns=D))


# --- sensitivity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_an_exchange_moves_a_batch_within_its_sensitivity_and_no_batch_without_it(
    storage, noise, loss
):
    rng = np.random.default_rng(3)
    made = drawing_plan(storage, noise, loss=loss)
    pool = records(made, rng)
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=6)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    sensitivity = made.lattice.release().sensitivity
    farthest = 0
    for batch, w in zip(combinations(range(6), 3), cycle(weights(rng)[:3]), strict=False):
        place, outside = batch[1], next(i for i in range(6) if i not in batch)
        positions = np.array(batch)
        results = []
        for row, label in pool:
            there_x, there_y = x.copy(), y.copy()
            there_x[place], there_y[place] = row, label
            results.append(exact_batch(sums(made, there_x, there_y), w, positions))
            there_x[outside], there_y[outside] = row, -label
            after = exact_batch(sums(made, there_x, there_y), w, positions)
            assert np.array_equal(results[-1], after)
        farthest = max(farthest, *(movement(made, a, b) for a, b in combinations(results, 2)))
    assert 0.95 * sensitivity <= farthest <= sensitivity


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("batch", [1, 5, 40, 97])
def test_a_batch_sums_the_rows_at_its_positions(storage, batch, monkeypatch):
    made = drawing_plan(storage, rows=97, batch=batch)
    x, y = data(made, 97)
    w = np.array([0.3, -0.2, 0.1])
    noisy = sums(made, x, y)
    one_by_one = [exact_sum(noisy, w, i, i + 1) for i in range(97)]
    stream = Randomness(KEY, "batch").stream(Use.SAMPLING, batch)
    positions = sample(stream, batch, 97)
    exact = exact_batch(noisy, w, positions)
    assert np.array_equal(exact, sum(one_by_one[i] for i in positions))
    monkeypatch.setattr(workers.rows, "BLOCK_BYTES", 1)  # sixteen rows at a time
    monkeypatch.setattr(workers.rows, "THREADED", 1)
    assert np.array_equal(exact_batch(noisy, w, positions), exact)


def test_a_batch_beyond_the_rows_is_refused():
    made = drawing_plan(rows=97, batch=5)
    noisy = sums(made, *data(made, 97))
    for batch, start, stop in ((5, -1, 97), (5, 0, 98), (6, 0, 5), (0, 0, 97), (1, 5, 5)):
        with pytest.raises(WrongDataError):
            noisy.noisy_batch(np.zeros(D), batch, start, stop)


@pytest.mark.parametrize("noise", NOISES)
def test_what_was_priced_over_drawn_batches_leaves_over_no_other_rows(noise):
    """Nor the other way round: whole sums were not drawn, and larger batches are a larger share."""
    made = drawing_plan(noise=noise, rows=97, batch=5)
    w = np.zeros(D)
    for start, stop in ((0, 97), (0, 5)):
        with pytest.raises(GateError):
            sums(made, *data(made, 97)).noisy_sum(w, start, stop)
    for batch, start, stop in ((6, 0, 97), (5, 0, 96), (97, 0, 97)):
        with pytest.raises(GateError):
            sums(made, *data(made, 97)).noisy_batch(w, batch, start, stop)
    sums(made, *data(made, 97)).noisy_batch(w, 5, 0, 97)
    whole = drawing_plan(noise=noise, rows=97, batch=97)
    with pytest.raises(GateError):
        sums(whole, *data(whole, 97)).noisy_batch(w, 5, 0, 97)


# --- the draw ---------------------------------------------------------------------------------------


def stream(index):
    return Randomness(KEY, "draw").stream(Use.SAMPLING, index)


def unlikely(counts, expected, freedom):
    """Chi-square above what happens once in 10^7 keys."""
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    return statistic > chi2.isf(1e-7, freedom)


@pytest.mark.parametrize(("batch", "count"), [(1, 5), (2, 5), (3, 6), (5, 6), (4, 8), (2, 9)])
def test_every_subset_is_equally_likely(batch, count):
    rounds = 200 * comb(count, batch)
    seen = Counter(tuple(sample(stream(i), batch, count)) for i in range(rounds))
    assert set(seen) == set(combinations(range(count), batch))
    assert not unlikely(seen.values(), 200, len(seen) - 1)


@pytest.mark.parametrize("position", [0, 63, 64, 129])
def test_every_position_of_a_larger_population_is_as_likely(position):
    """Across the words of the bit map, at its ends and within."""
    rounds, hits = 4000, 0
    for i in range(rounds):
        hits += position in sample(stream(i), 13, 130)
    assert abs(hits - rounds / 10) < 5.5 * (rounds * 0.09) ** 0.5


def test_a_sample_is_sorted_without_repetition_and_may_be_everything():
    for batch, count in ((1, 1), (7, 7), (64, 64), (65, 65), (500, 1000), (1000, 10**6)):
        drawn = sample(stream(batch), batch, count)
        assert len(drawn) == batch and (np.diff(drawn) > 0).all()
        assert drawn[0] >= 0 and drawn[-1] < count
    for batch, count in ((0, 5), (6, 5), (-1, 5)):
        with pytest.raises(ValueError, match="at most all"):
            sample(stream(0), batch, count)


@pytest.mark.parametrize(("batch", "count"), [(1, 3), (30, 100), (100, 100), (999, 5000)])
def test_a_sample_is_floyds_word_for_word(batch, count):
    words = iter(stream(count).words(8 * batch + 64))
    taken = set()
    for i in range(count - batch, count):
        bound = i + 1
        word = int(next(words))
        while word >= 2**64 - 2**64 % bound:
            word = int(next(words))
        taken.add(i if word % bound in taken else word % bound)
    assert sample(stream(count), batch, count).tolist() == sorted(taken)


@pytest.fixture
def drawn(monkeypatch):
    """Every batch that is drawn, and every address that a stream was opened at."""
    seen = {"batches": [], "addresses": []}

    def spy(stream, batch, count):
        seen["batches"].append(tuple(sample(stream, batch, count)))
        return np.array(seen["batches"][-1])

    monkeypatch.setattr(workers.gate, "sample", spy)
    opened = Randomness.stream

    def spy_on_streams(self, use, index):
        seen["addresses"].append((use, index))
        return opened(self, use, index)

    monkeypatch.setattr(Randomness, "stream", spy_on_streams)
    return seen


def test_steps_draw_fresh_batches_independent_of_each_other_and_of_the_data(drawn):
    made = drawing_plan(rows=4, batch=1, steps=2)
    pairs = Counter()
    for i in range(1600):
        key = i.to_bytes(32, "big")
        x, y = np.zeros((4, D), dtype=np.int16), np.ones(4)
        if i % 2:
            x[:] = 2000
        RUNS[AC](made, Data(made, x, y, Randomness(key, made.digest())), Progress())
        pairs[drawn["batches"][-2] + drawn["batches"][-1]] += 1
    assert set(pairs) == set(product(range(4), repeat=2))
    assert not unlikely(pairs.values(), 100, 15)


def test_a_run_draws_each_batch_and_its_noise_at_addresses_of_their_own(drawn):
    made = drawing_plan(rows=97, batch=10, steps=9)
    x, y = data(made, 97)
    models = []
    for rows in ((x, y), (x, y), (x[::-1].copy(), -y)):
        models.append(RUNS[AC](made, sums(made, *rows), Progress()))
    assert drawn["batches"][:9] == drawn["batches"][9:18] == drawn["batches"][18:]
    assert len(set(drawn["batches"][:9])) == 9
    expected = [(use, t) for t in range(9) for use in (Use.SAMPLING, Use.NOISE)]
    assert drawn["addresses"][:18] == expected
    assert np.array_equal(models[0], models[1]) and not np.array_equal(models[0], models[2])


@pytest.mark.parametrize("algorithm", [AC, LOCAL, GD])
def test_a_run_reads_what_was_priced_and_nothing_else(algorithm, monkeypatch):
    """Every step draws its batch from the rows that its release names, as often as it names them."""
    parameters = {"steps": 20, **({"halvings": 3} if algorithm == LOCAL else {"batch": 12})}
    made = plan(spec(algorithm, parameters=parameters), facts(rows=97, columns=D))
    calls = Counter()

    class Watched(Data):
        def noisy_batch(self, w, batch, start, stop):
            calls[batch, start, stop] += 1
            return super().noisy_batch(w, batch, start, stop)

    progress = Progress()
    result = RUNS[algorithm](made, sums(made, *data(made, 97), Watched), progress)
    parts = made.release.parts if algorithm == LOCAL else (made.release,)
    named = [(part.release.batch, part.release.population, part.times) for part in parts]
    assert [(batch, stop - start, times) for (batch, start, stop), times in calls.items()] == named
    ranges = [range(start, stop) for _, start, stop in calls]
    assert sum(map(len, ranges)) == len(set().union(*ranges)) <= 97
    assert progress.done == made.schedule.steps == sum(calls.values())
    assert np.linalg.norm(result) <= 10 * (1 + 1e-9)


def test_a_phase_is_pulled_towards_the_last_one_and_reads_its_own_rows_only():
    """With a record changed in phase two, everything that phase one released stays as it was."""
    made = plan(spec(LOCAL, parameters={"steps": 6}), facts(rows=97, columns=D))
    first, second = made.schedule.phases[:2]
    assert second.pull == pytest.approx(8 * first.pull, rel=1e-5)
    x, y = data(made, 97)
    there = x.copy()
    there[second.start] = -there[second.start] + 1
    released = []

    class Watched(Data):
        def _vector(self, exact, step, rows, **how):
            released.append(super()._vector(exact, step, rows, **how))
            return released[-1]

    for rows in (x, there):
        RUNS[LOCAL](made, sums(made, rows, y, Watched), Progress())
    before, after = released[: made.schedule.steps], released[made.schedule.steps :]
    same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert same[:6] == [True] * 6 and same[6] is False
