"""The attack on sensitivity: no exchange of one record moves a released sum further than was priced,
and some exchange moves it nearly that far. Runs over the catalog: see `cases.ROWS`."""

from itertools import combinations
from math import isqrt

import numpy as np
import pytest

import workers.gate
from service.datasets.encode import l2_units, quantise
from service.datasets.schema import Schema
from service.planning.algorithms.clipped_sgd import ClippedSgdSchedule
from service.planning.catalog import plan
from service.planning.plan import Plan
from service.planning.price import price_units
from service.planning.releases import Repeat
from tests.planning.cases import ROWS, facts, planned, spec
from tests.workers.exact import exact_sum
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
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.rows import WrongDataError

LOSSES = ("logistic", "squared")
algorithms = pytest.mark.parametrize("algorithm", [name for name in ROWS if ROWS[name].sums])


def small_plan(algorithm: str, storage: str, noise: str, loss: str = "logistic") -> Plan:
    clip = {"parameters": {"clip": 1.0}} if storage == "float64" else {}
    job = spec(algorithm, 1.0, MIXES[noise], **{"loss": loss, **clip})
    return plan(job, facts(storage, rows=N, columns=D))


@algorithms
@storages
@noises
@pytest.mark.parametrize("loss", LOSSES)
def test_no_exchange_moves_a_sum_beyond_its_sensitivity_and_one_comes_near(
    algorithm, storage, noise, loss
):
    rng = np.random.default_rng(5)
    made = small_plan(algorithm, storage, noise, loss)
    pool = records(made, rng)
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=N)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    farthest = 0
    for place, w in enumerate(weights(rng)):  # all of the pool in one place, every pair of them
        results = []
        for row, label in pool:
            x[place], y[place] = row, label
            results.append(exact_sum(sums(made, x, y), w, 0, N))
        farthest = max(farthest, *(movement(made, a, b) for a, b in combinations(results, 2)))
    sensitivity = made.lattice.release().sensitivity
    assert sensitivity / 1.5 <= farthest <= sensitivity


@algorithms
@storages
@noises
def test_a_run_releases_what_was_priced_and_nothing_else(algorithm, storage, noise):
    """The most releases that read any one row, priced in sequence, are the whole price."""
    made = planned(algorithm, facts(storage, rows=97, columns=D), 1.0, MIXES[noise])
    read = np.zeros(97, dtype=int)

    class Watched(Data):
        def noisy_sum(self, w, start, stop):
            assert 0 <= start < stop <= 97
            read[start:stop] += 1
            return super().noisy_sum(w, start, stop)

    x, y = data(made, 97)
    progress = Progress()
    result = RUNS[algorithm](made, sums(made, x, y, Watched), progress)
    in_sequence = Repeat(release=made.lattice.release(), times=int(read.max()))
    assert price_units(in_sequence, made.facts.account) == made.price.units
    assert progress.done == made.schedule.steps
    assert np.isfinite(result).all() and np.linalg.norm(result) <= made.spec.set.radius * (1 + 1e-9)


@pytest.fixture
def drawn(monkeypatch):
    """Every noise vector that is drawn, and every address that a stream was opened at."""
    seen = {"noise": [], "addresses": []}
    for name in ("rounded_normal", "rounded_laplace"):
        sampler = getattr(workers.gate, name)

        def spy(stream, count, bits, sampler=sampler):
            seen["noise"].append(sampler(stream, count, bits))
            return seen["noise"][-1]

        monkeypatch.setattr(workers.gate, name, spy)
    opened = Randomness.stream

    def spy_on_streams(self, use, index):
        seen["addresses"].append((self._key, use, index))
        return opened(self, use, index)

    monkeypatch.setattr(Randomness, "stream", spy_on_streams)
    return seen


@algorithms
@storages
@noises
def test_no_two_releases_share_an_address_or_a_noise_vector(algorithm, storage, noise, drawn):
    made = planned(algorithm, facts(storage, rows=97, columns=D), 1.0, MIXES[noise])
    RUNS[algorithm](made, sums(made, *data(made, 97)), Progress())
    noisy = [address for address in drawn["addresses"] if address[1] == Use.NOISE]
    assert len(drawn["noise"]) == len(noisy) == made.schedule.steps
    assert len(set(drawn["addresses"])) == len(drawn["addresses"])
    assert len({tuple(noise.tolist()) for noise in drawn["noise"]}) == len(drawn["noise"])


@algorithms
@storages
@noises
def test_neighbouring_data_draw_the_same_noise_and_a_retry_the_same_model(
    algorithm, storage, noise, drawn
):
    """Noise is addressed, never conditioned on data; so a run repeats to the last bit."""
    made = planned(algorithm, facts(storage, rows=97, columns=D), 1.0, MIXES[noise])
    x, y = data(made, 97)
    there_x, there_y = x.copy(), y.copy()
    there_x[40], there_y[40] = 0, -y[40]
    models = [
        RUNS[algorithm](made, sums(made, *rows), Progress())
        for rows in ((x, y), (x, y), (there_x, there_y))
    ]
    steps = made.schedule.steps
    first, again, neighbour = (drawn["noise"][i * steps : (i + 1) * steps] for i in range(3))
    assert np.array_equal(first, again) and np.array_equal(first, neighbour)
    assert np.array_equal(models[0], models[1]) and not np.array_equal(models[0], models[2])


@algorithms
def test_another_plan_under_the_same_key_draws_other_noise(algorithm, drawn):
    """Else the difference of two sums over neighbouring rows would be free of noise."""
    x, y = np.zeros((97, D), dtype=np.int16), np.ones(97)
    for ridge in (0.5, 0.25):
        made = plan(
            spec(algorithm, ridge=ridge, parameters={"steps": 4}), facts(rows=97, columns=D)
        )
        sums(made, x, y).noisy_sum(np.zeros(D), 0, 10)
    assert not np.array_equal(*drawn["noise"])


@storages
@noises
def test_a_noisy_sum_is_the_exact_sum_plus_the_noise_in_gradient_units(storage, noise, drawn):
    made = planned("gradient-descent", facts(storage, rows=97, columns=D), 1.0, MIXES[noise])
    noisy = sums(made, *data(made, 97))
    w = np.array([0.3, -0.2, 0.1])
    released = noisy.noisy_sum(w, 3, 50)
    integers = exact_sum(noisy, w, 3, 50) + drawn["noise"][0]
    assert np.array_equal(released, integers.astype(np.float64) * made.lattice.step)


@storages
@noises
def test_replacing_a_record_changes_no_batch_but_its_own(storage, noise):
    made = planned("clipped-sgd", facts(storage, rows=97, columns=D), 1.0, MIXES[noise])
    schedule = made.schedule
    assert isinstance(schedule, ClippedSgdSchedule)
    assert schedule.steps * schedule.batch <= 97
    x, y = data(made, 97)
    w = np.array([0.3, -0.2, 0.1])

    def batches(rows, labels):
        noisy = sums(made, rows, labels)
        return [
            tuple(exact_sum(noisy, w, t * schedule.batch, (t + 1) * schedule.batch))
            for t in range(schedule.steps)
        ]

    before = batches(x, y)
    for i in range(97):
        there_x, there_y = x.copy(), y.copy()
        there_x[i], there_y[i] = x[i] // 2 + 1, -y[i]
        after = batches(there_x, there_y)
        changed = [
            t for t, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]
        ]
        inside = i < schedule.steps * schedule.batch
        assert changed == ([i // schedule.batch] if inside else [])


@storages
def test_rows_of_the_other_storage_are_refused(storage):
    """An unbounded row in the kernel that trusts row norms would have no sensitivity at all."""
    made = planned("gradient-descent", facts(storage, rows=N, columns=D), 1.0)
    wrong = np.float64 if storage == "fixed" else np.int16
    for x in (np.zeros((N, D), dtype=wrong), np.zeros((N, D), dtype=np.float32)):
        with pytest.raises(WrongDataError):
            sums(made, x, np.zeros(N))


def test_rows_in_another_memory_order_are_refused():
    """The vector kernels read rows one after the other: transposed, a record would be in many."""
    made = planned("gradient-descent", facts("fixed", rows=N, columns=D), 1.0)
    with pytest.raises(WrongDataError):
        sums(made, np.asfortranarray(np.zeros((N, D), dtype=np.int16)), np.zeros(N))


@storages
def test_no_row_beyond_the_data_and_no_release_beyond_the_plan(storage):
    made = planned("clipped-sgd", facts(storage, rows=97, columns=D), 1.0)
    x, y = data(made, 97)
    noisy, batch, steps = sums(made, x, y), made.schedule.batch, made.schedule.steps
    for start, stop in ((-3, 97), (0, 98), (96, 200), (5, 5), (7, 3)):
        with pytest.raises(WrongDataError):
            sums(made, x, y).noisy_sum(np.zeros(D), start, stop)
    for t in range(steps):
        noisy.noisy_sum(np.zeros(D), t * batch, (t + 1) * batch)
    with pytest.raises(GateError, match="0 parts to begin"):
        noisy.noisy_sum(np.zeros(D), steps * batch, 97)


@storages
@pytest.mark.parametrize("change", [{"bits": -1}, {"contribution_units": 1}])
def test_no_release_with_less_noise_or_more_sensitivity_than_was_priced(storage, change):
    made = planned("gradient-descent", facts(storage, rows=97, columns=D), 1.0)
    wrong = {name: getattr(made.lattice, name) + by for name, by in change.items()}
    other = made.lattice.model_copy(update=wrong)
    noisy = sums(made, *data(made, 97))
    noisy.noisy_sum(np.zeros(D), 0, 97)
    noisy._lattices.append(other)  # or it would not come so far
    noisy.use(other)
    with pytest.raises(GateError, match="asked for gaussian noise of scale"):
        noisy.noisy_sum(np.zeros(D), 0, 97)
    noisy.use(made.lattice)  # which comes too late
    with pytest.raises(GateError):
        noisy.noisy_sum(np.zeros(D), 0, 97)
    with pytest.raises(GateError, match="nothing of it is published"):
        noisy.close()


# --- stored rows ------------------------------------------------------------------------------------


COLUMNS = [{"name": f"c{i}", "kind": "numeric", "lower": 0, "upper": 1} for i in range(6)]
LABEL = {"name": "y", "kind": "binary", "positive": "1", "negative": "0"}


@pytest.mark.parametrize("width", [1, 3, 6])
@pytest.mark.parametrize(
    "bounds",
    [{}, {"l2": 0.7}, {"linf": 0.1}, {"linf": 1e-9}, {"l2": 1e-9}, {"l2": 0.5, "linf": 0.2}],
)
def test_a_stored_row_keeps_the_norms_that_the_lattice_assumes(width, bounds):
    """For any finite matrix, in Python's integers: l2, and the l1 that Laplace noise rests on."""
    schema = Schema.model_validate({"columns": COLUMNS[:width], "label": LABEL, **bounds})
    rng = np.random.default_rng(width)
    limit, d = l2_units(schema), schema.width
    X = np.concatenate(
        [
            rng.normal(size=(200, d)) * 10.0 ** rng.uniform(-12, 300, size=(200, 1)),
            np.full((1, d), 1.7e308),
            np.full((1, d), schema.linf_bound),
            np.full((1, d), schema.l2_bound / np.sqrt(d)),
            np.zeros((1, d)),
        ]
    )
    for row in quantise(schema, X).tolist():
        assert max(map(abs, row)) <= 4095
        assert sum(v * v for v in row) <= limit**2
        assert sum(map(abs, row)) <= isqrt(d * limit**2)
    assert limit * (schema.linf_bound / 4095) <= schema.l2_bound * (1 + 1e-15)


@storages
@noises
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_the_noise_of_a_step_is_the_scale_that_its_price_needs(storage, noise, epsilon):
    """sigma/clip from the finished lattice against the textbook: rho = (2C)^2/(2 sigma^2)."""
    made = planned("clipped-sgd", facts(storage, N, D, epsilon), epsilon, MIXES[noise])
    lattice = made.lattice
    ratio = lattice.noise_scale / lattice.clip
    if noise == "gaussian":
        assert 2 / ratio**2 == pytest.approx(made.price.units / 1e12, rel=1e-3)
    else:
        assert 2 / ratio == pytest.approx(epsilon, rel=1e-3)
    assert lattice.step * lattice.contribution_units == pytest.approx(lattice.clip, rel=1e-12)
