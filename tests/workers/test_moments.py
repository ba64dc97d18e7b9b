"""Moments and derived rows: exact integers, whatever rows, labels and coordinates are, and no record
moves them beyond what was priced."""

import numpy as np
import pytest

import workers.rows
from service.planning.catalog import plan
from service.planning.shared.moments import DERIVED_UNITS, derived, sensitivity
from tests.planning.cases import facts, spec
from workers.data import Data, Frame
from workers.gate import GateError
from workers.kernels.symmetric import eigen, solve
from workers.moments import (
    derivation,
    first_moments,
    label_integers,
    label_sum,
    products,
    require_consistent,
    second_moments,
)
from workers.randomness import Randomness
from workers.rows import WrongDataError

N, D, NAME = 90, 6, "preconditioned-descent"
ODD = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 1.0, -1.0, 7.0])


def planned(delta=1e-6, label="numeric", rows=N, columns=D, **more):
    loss = "logistic" if label == "binary" else "squared"
    job = spec(NAME, 1.0, None, loss=loss, **more)
    return plan(job, facts(rows=rows, columns=columns, delta=delta, label=label))


def rows_for(made, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(-1400, 1401, (made.facts.rows, made.facts.columns)).astype(np.int16)
    return x, rng.uniform(-1, 1, made.facts.rows)


def frame(size, seed=1):
    rng = np.random.default_rng(seed)
    return Frame(rng.uniform(-0.1, 0.1, size), 0.7, 0.1, 0.8)


def sizes(x):
    return (x.astype(np.int64) ** 2).sum(axis=-1)


# --- The same integers as a reference, on any number of threads ---


@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 65, 130])
@pytest.mark.parametrize("rows", [1, 15, 16, 1023, 1025, 2100])
def test_products_of_rows_are_exact(rows, columns):
    z = np.random.default_rng(2).integers(-4095, 4096, (rows, columns)).astype(np.int16)
    z[0] = 4095
    wide = z.astype(np.int64)
    assert np.array_equal(np.tril(products(z)), np.tril(np.einsum("ri,rj->ij", wide, wide)))


def test_a_block_of_extreme_rows_stays_within_the_kernels_integers():
    z = np.full((5000, 40), 4095, dtype=np.int16)
    z[:, 20:] = -4095
    assert set(np.abs(np.tril(products(z))[np.tril_indices(40)])) == {5000 * 4095**2}


@pytest.mark.parametrize("label", ["binary", "numeric"])
def test_the_sum_of_labels_is_that_of_labels_alone(label):
    made = planned(label=label)
    lattice = made.schedule.label_sum
    assert lattice.order == 0 and lattice.entries(D) == 1
    x, y = rows_for(made)
    wanted = lattice.diagonal * int(np.trunc(y * lattice.label_units).sum())
    assert label_sum(lattice)(x, y).tolist() == [wanted]
    assert label_sum(lattice)(x, ODD).tolist() == [lattice.label_units * lattice.diagonal]


@pytest.mark.parametrize("label", ["binary", "numeric"])
def test_first_moments_are_the_sums_that_they_say(label):
    made = planned(label=label)
    lattice, L = made.schedule.means, made.facts.l2_units
    x, y = rows_for(made)
    t = np.trunc(y * lattice.label_units).astype(np.int64)
    wide = x[:, 1:].astype(np.int64)
    squares = t**2 * L // lattice.label_units**2 if label == "numeric" else 0 * t
    wanted = [*wide.sum(axis=0), t.sum(), (sizes(x[:, 1:]) // L).sum(), squares.sum()]
    assert first_moments(made.facts, lattice)(x, y).tolist() == [
        lattice.diagonal * each for each in wanted
    ]


def test_second_moments_are_those_of_the_rows_in_the_frame():
    made = planned()
    lattice, step = made.schedule.moments, made.facts.feature_step
    x, y = rows_for(made)
    seen = frame(D - 1)
    v = (x[:, 1:] - seen.centre / step) * (step / seen.radius * DERIVED_UNITS)
    z = np.hstack([np.floor(v + 0.5), label_integers(y, 0.1, 0.8, lattice.label_units)[:, None]])
    z = z[(sizes(z[:, :-1]) <= DERIVED_UNITS**2)]  # nothing is shrunk in these
    kept = np.array([i for i in range(N) if sizes(np.floor(v[i] + 0.5)) <= DERIVED_UNITS**2])
    weights = np.where(np.eye(D, dtype=bool), lattice.diagonal, lattice.beside)
    wanted = (np.einsum("ri,rj->ij", z, z) * weights)[np.tril_indices(D)]
    assert len(kept) > 0 and np.array_equal(
        second_moments(made.facts, lattice, seen)(x[kept], y[kept]), wanted
    )


def test_threads_change_no_bit_of_moments_or_of_derived_rows(monkeypatch):
    made = planned(rows=3000, columns=40)
    x, y = rows_for(made)
    a = np.random.default_rng(3).normal(size=(39, 39))
    found = set()
    for threads in (1, 2, 3):
        monkeypatch.setattr(workers.rows, "thread_count", lambda threads=threads: threads)
        monkeypatch.setattr(workers.rows, "THREADED", 1)
        data = Data(made, x, y, Randomness(bytes(32), "x"))
        seen = data.noisy_means().tobytes() + data.noisy_moments(frame(39)).tobytes()
        data.derive(np.zeros(39), a, 3.0)
        found.add(seen + data.noisy_sum(np.ones(40), 0, 3000).tobytes())
    assert len(found) == 1


def test_rows_that_are_too_many_to_keep_are_derived_again_to_the_same_sums(monkeypatch):
    made, sums = planned(), []
    x, y = rows_for(made)
    for limit in (0, 1 << 30):
        monkeypatch.setattr(workers.rows, "KEPT_BYTES", limit)
        data = Data(made, x, y, Randomness(bytes(32), "x"))
        data.derive(np.zeros(D - 1), np.eye(D - 1) * 3.0, 2.0)
        sums.append(data.noisy_sum(np.linspace(-1, 1, D), 0, N).tobytes())
    assert sums[0] == sums[1]


# --- Bounds that hold whatever is asked ---


def hostile(rng, size):
    """Coordinates that no honest run would ask for."""
    yield np.zeros(size), np.zeros((size, size)), 1.0
    yield np.full(size, 1e300), np.eye(size), 1.0
    yield np.full(size, np.nan), np.eye(size), 1e-300
    yield rng.normal(size=size), np.full((size, size), np.inf), 1.0
    yield rng.normal(size=size), rng.normal(size=(size, size)) * 1e300, 1e-9
    yield np.zeros(size), np.full((size, size), 1e-320), 1e300
    for _ in range(20):
        yield rng.normal(size=size), rng.normal(size=(size, size)) * 10 ** rng.uniform(-9, 9), 0.01


@pytest.mark.parametrize("columns", [2, 6, 40])
def test_derived_rows_keep_to_their_bound_whatever_the_coordinates(columns):
    made, rng = planned(columns=columns), np.random.default_rng(5)
    constant = made.schedule.constant
    of = derived(made.facts, constant)
    x = rng.integers(-4095, 4096, (200, columns)).astype(np.int16)  # longer than stored rows are
    for centre, a, radius in hostile(rng, columns - 1):
        with np.errstate(all="ignore"):
            block, _ = derivation(made.facts, constant, centre, a, radius)
            rows = block(x)
        assert (rows[:, 0] == constant).all()
        assert sizes(rows[:, 1:]).max() <= DERIVED_UNITS**2
        assert sizes(rows).max() <= of.l2_units**2 and np.abs(rows).max() <= of.linf_units


def test_labels_are_integers_within_their_bound_whatever_they_were():
    for centre, radius in [(0.0, 1.0), (0.3, 0.01), (1e300, 1e-300), (np.nan, 1.0), (0.0, np.inf)]:
        found = label_integers(ODD, centre, radius, 2047)
        assert found.dtype == np.int64 and np.abs(found).max() <= 2047
    assert label_integers(ODD, 0.0, 1.0, 10).tolist() == [0, 0, 0, 0, 0, 0, 0, 10, -10, 10]


# --- Sensitivity ---


def moved(add, one, other):
    """By how much the moments differ between worlds with one record or the other."""
    (x, y), (u, v) = one, other
    rest = np.zeros((0, x.size), dtype=np.int16)
    worlds = [add(np.vstack([rest, r[None]]), np.array([t])) for r, t in ((x, y), (u, v))]
    return (worlds[0] - worlds[1]).astype(object)


def longest_rows(rng, bound, size):
    """A row at its bound along an axis, a diagonal or at random, with 0 for its constant."""
    kind = rng.integers(3)
    v = np.eye(size)[rng.integers(size)] if kind == 0 else np.ones(size)
    v = rng.normal(size=size) if kind == 2 else v * rng.choice([-1, 1], size)
    return np.concatenate([[0], np.trunc(v / np.linalg.norm(v) * bound)]).astype(np.int16)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("label", ["binary", "numeric"])
def test_no_pair_of_records_moves_moments_further_than_was_priced_and_one_nearly_does(delta, label):
    made = planned(delta, label)
    near = {0: 0.0, 1: 0.0, 2: 0.0}
    plain = Frame(np.zeros(D - 1), 1.0, 0.0, 1.0)
    for lattice in made.moments:
        add = (
            label_sum(lattice),
            first_moments(made.facts, lattice),
            second_moments(made.facts, lattice, plain),
        )[lattice.order]
        rng = np.random.default_rng(6)
        for _ in range(300):
            pair = [
                (longest_rows(rng, 4095, D - 1), float(rng.choice([-1.0, 1.0, 0.0])))
                for _ in range(2)
            ]
            change = moved(add, *pair)
            size = sum(change**2) if delta else sum(abs(change)) ** 2
            assert size <= lattice.sensitivity_units**2
            near[lattice.order] = max(near[lattice.order], size / lattice.sensitivity_units**2)
    # the bound on means has squares besides, which a pair at its longest does not move
    assert near[0] == 1.0 and min(near.values()) > (0.7 if delta else 0.3)
    assert not delta or near[2] > 0.95


def test_a_pair_at_right_angles_moves_second_moments_by_all_that_is_priced():
    made = planned()
    lattice, plain = made.schedule.moments, Frame(np.zeros(D - 1), 1.0, 0.0, 1.0)
    add = second_moments(made.facts, lattice, plain)
    t = lattice.label_units / DERIVED_UNITS  # <x, u> = -t^2 makes up for labels of one sign
    one, other = np.zeros((2, D), dtype=np.int16)
    one[1], other[1:3] = 4095, np.trunc([-(t**2) * 4095, np.sqrt(1 - t**4) * 4095])
    change = moved(add, (one, 1.0), (other, 1.0))
    share = float(np.sqrt(float(sum(change**2)))) / lattice.sensitivity_units
    assert 0.99 < share <= 1


def test_sensitivity_is_rounded_up_and_grows_with_the_weight():
    about = facts(rows=N, columns=D, label="numeric")
    for order, exact in (
        (1, 4 * (4095**2 + 2047**2) + 2 * 4095**2),
        (2, 2 * (4095**2 + 2047**2) ** 2),
    ):
        for a in (1, 3, 1000):
            found = sensitivity(about, order, "l2", 2047, a)
            assert (found - 1) ** 2 < a**2 * exact <= found**2


# --- What a Plan lets a run ask ---


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda m: {"sensitivity_units": m.sensitivity_units - 1},
        lambda m: {"label_units": m.label_units + 1},
        lambda m: {"diagonal": m.diagonal + 1},
        lambda m: {"beside": m.beside + 1},
        lambda m: {"norm": "l1"},
        lambda m: {"noise": "laplace"},
    ],
)
def test_a_lattice_of_moments_that_says_another_sensitivity_is_refused(order, change):
    made = planned()
    lattice = made.moments[order]
    require_consistent(made.facts, lattice)
    with pytest.raises(WrongDataError):
        require_consistent(made.facts, lattice.model_copy(update=change(lattice)))


def data_of(made):
    return Data(made, *rows_for(made), Randomness(bytes(32), made.digest()))


def test_moments_are_let_out_once():
    for ask in (
        lambda d: d.noisy_label_sum(),
        lambda d: d.noisy_means(),
        lambda d: d.noisy_moments(frame(D - 1)),
    ):
        data = data_of(planned())
        ask(data)
        with pytest.raises(GateError, match="left of what was paid for"):
            ask(data)
        with pytest.raises(GateError, match="nothing of it is published"):
            data.close()


def test_a_vector_of_another_length_than_the_lattices_is_refused():
    made = planned()
    data = data_of(made)
    for lattice, size in ((made.schedule.moments, D), (made.lattice, D * (D + 1) // 2)):
        with pytest.raises(GateError, match="one per weight or moment"):
            data._gate.vector(np.zeros(size, dtype=np.int64), lattice, range(N))


def test_sums_of_a_plan_for_derived_rows_wait_for_these():
    data = data_of(planned())
    with pytest.raises(WrongDataError, match="none of rows as they are now"):
        data.noisy_sum(np.zeros(D), 0, N)


def test_rows_are_derived_and_clips_settled_only_where_a_plan_says_so():
    made = plan(spec("gradient-descent"), facts(rows=N, columns=D))
    for ask in (
        lambda d: d.derive(np.zeros(D - 1), np.eye(D - 1), 1.0),
        lambda d: d.set_clip(2.0),
        lambda d: d.noisy_label_sum(),
        lambda d: d.noisy_means(),
        lambda d: d.noisy_moments(frame(D - 1)),
    ):
        with pytest.raises(WrongDataError):
            ask(data_of(made))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 1e-300])
def test_a_clip_is_some_positive_number_of_the_plans(factor):
    data = data_of(planned())
    data.derive(np.zeros(D - 1), np.eye(D - 1), 1.0)
    with pytest.raises(WrongDataError, match="some number of the Plan's"):
        data.set_clip(factor)


def test_a_settled_clip_changes_what_units_are_worth_and_no_integer():
    made, seen = planned(), []
    for factor in (1.0, 0.5):
        data = data_of(made)
        data.derive(np.zeros(D - 1), np.eye(D - 1) * 100.0, 1.0)
        data.set_clip(factor)
        seen.append(data.noisy_sum(np.full(D, 1e6), 0, N))  # every slope is at its bound
    np.testing.assert_allclose(seen[1], seen[0] / 2, rtol=1e-12)


# --- Linear algebra of our own ---


@pytest.mark.parametrize("size", [0, 1, 2, 3, 17, 60])
def test_eigenvalues_are_those_of_lapack(size):
    a = np.random.default_rng(size).normal(size=(size, size))
    a += a.T
    if size > 3:
        a[2], a[:, 2] = 0.0, 0.0  # a value of 0, and a reflection of nothing
    values, vectors = eigen(a)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(a), atol=1e-12)
    np.testing.assert_allclose(vectors.T * values @ vectors, a, atol=1e-12)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(size), atol=1e-12)
    definite, right = a @ a + np.eye(size), np.ones(size)
    np.testing.assert_allclose(definite @ solve(definite, right), right, atol=1e-9)
