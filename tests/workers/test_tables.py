"""Tables of counts: exact, each record in one cell of each, and no record moves them beyond what was
priced."""

from itertools import product
from math import sqrt

import numpy as np
import pytest

from service.planning.catalog import plan
from service.planning.estimates import ranges_for
from service.planning.spec import JobSpec
from service.planning.summaries import ColumnFacts
from service.planning.tables import (
    LABEL,
    MOMENT_UNITS,
    Bins,
    Categories,
    Classes,
    Crossed,
    Magnitudes,
    Moments,
    Products,
)
from tests.planning.cases import facts
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError
from workers.tables import add_tables, cells_of, counted
from workers.transcript import Rowless, run_privately

NAME, N, D = "column-summaries", 500, 9
COLUMNS = (
    ColumnFacts(name="age", kind="numeric", position=1),
    ColumnFacts(name="city", kind="categorical", position=2, cells=4),
    ColumnFacts(name="pay", kind="unbounded", position=6),
)
SUMMARIES = [
    "counts",
    {"kind": "counts", "column": "city"},
    {"kind": "counts", "column": "city", "by": "city"},
    {"kind": "histogram", "column": "age", "bins": 7},
    {"kind": "histogram", "column": "pay", "lower": -1, "upper": 1, "bins": 5},
]
ODD = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 1.0, -1.0, 0.3])


def planned(storage="fixed", delta=1e-6, summaries=SUMMARIES):
    about = facts(storage, N, D, delta=delta)
    about = about.model_copy(update={"described": COLUMNS})
    job = {"dataset": "d", "algorithm": NAME, "privacy": {"epsilon": 1.0}, "summaries": summaries}
    return plan(JobSpec.model_validate(job), about)


def rows_for(made, seed=0):
    rng = np.random.default_rng(seed)
    n, fixed = made.facts.rows, made.facts.storage == "fixed"
    x = np.zeros((n, D), dtype=np.int16 if fixed else np.float64)
    full = 4095 if fixed else 1.0
    x[:, 0] = full
    x[:, 1] = rng.uniform(size=n) * full
    x[np.arange(n), 2 + rng.integers(0, 4, n)] = full
    x[:, 6] = rng.normal(size=n) * full / 5
    return x, np.where(rng.uniform(size=n) < 0.3, 1.0, -1.0)


def exact(made, x, y):
    (counts,) = made.counted
    return add_tables(made.facts, counts)(x, y)


@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_each_record_is_in_one_cell_of_every_table(storage):
    made = planned(storage)
    x, y = rows_for(made)
    (counts,) = made.counted
    lattice = counts.lattice
    ends = np.cumsum(lattice.sizes)[:-1]
    for part, weight in zip(np.split(exact(made, x, y), ends), lattice.weights, strict=True):
        assert part.sum() == N * weight and (part % weight == 0).all() and (part >= 0).all()
    assert np.array_equal(exact(made, x, y), sum(exact(made, *pair) for pair in halves(x, y)))


def halves(x, y):
    return ((x[:200], y[:200]), (x[200:], y[200:]))


@pytest.mark.parametrize("ends", [False, True])
def test_whatever_floats_are_stored_a_record_is_in_one_cell(ends):
    made = planned("float64")
    x, y = rows_for(made)
    x[:100, 6], x[100:200, 1], y[:100] = np.tile(ODD, 10), np.tile(ODD, 10), np.tile(ODD, 10)
    table = Bins(column=LABEL, low=-1.0, high=1.0, cells=5, open=ends)
    for column in (table, *made.counted[0].tables):
        cells = cells_of(made.facts, column, x, y)
        assert cells.dtype == np.int64 and cells.min() >= 0 and cells.max() < column.size


def test_a_category_is_the_indicator_that_is_set_even_where_a_bound_made_the_row_shorter():
    x = np.zeros((4, D), dtype=np.int16)
    for row, (cell, size) in enumerate([(0, 4095), (3, 1), (2, 4094), (1, 70)]):
        x[row, 0] = x[row, 2 + cell] = size
    found = cells_of(facts(columns=D), Categories(column=2, cells=4), x, np.ones(4))
    assert found.tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("cells", [2, 7, 10, 100, 1000])
def test_whole_numbers_on_the_edge_of_two_cells_stay_on_the_upper_side(cells):
    """Stored entries were truncated, so 0.37 of the range is kept as a little less."""
    x = np.zeros((cells, D), dtype=np.int16)
    x[:, 0] = 4095
    x[:, 1] = (np.arange(cells) / cells * 4095).astype(np.int16)
    found = cells_of(facts(columns=D), Bins(column=1, low=0, high=1, cells=cells), x, x[:, 0])
    assert found.tolist() == list(range(cells))


def test_a_row_that_a_bound_made_shorter_keeps_its_share_of_the_range():
    x = np.zeros((3, D), dtype=np.int16)
    x[:, 0], x[:, 1] = [4095, 2000, 333], [2047, 1000, 166]
    found = cells_of(facts(columns=D), Bins(column=1, low=0, high=1, cells=10), x, x[:, 0])
    assert set(found) <= {4, 5}


def test_cells_outside_the_range_are_counted_apart():
    v = np.array([-5.0, -1.0, -0.99, 0.0, 0.99, 1.0, 7.0])
    table = Bins(column=LABEL, low=-1.0, high=1.0, cells=2, open=True)
    x = np.zeros((7, D))
    assert cells_of(facts("float64", columns=D), table, x, v).tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_pairs_of_cells_and_classes_are_counted():
    about = facts("float64", columns=D, label="binary")
    x, y = np.zeros((4, D)), np.array([1.0, -1.0, 1.0, -1.0])
    x[np.arange(4), 2 + np.array([0, 1, 3, 3])] = 1.0
    city = Categories(column=2, cells=4)
    table = Crossed(first=Classes(cells=2), second=city)
    assert cells_of(about, table, x, y).tolist() == [4, 1, 7, 3]


def test_the_cell_of_a_number_is_that_of_its_sign_and_power_of_two():
    table = Magnitudes(column=LABEL, least=-2, most=2)
    v = np.array([-1e300, -4.0, -3.9, -0.3, -0.2, 0.0, -0.0, 0.24, 0.25, 1.0, 4.0, 1e9, np.nan])
    cells = cells_of(facts("float64", columns=D), table, np.zeros((13, D)), v)
    assert cells.tolist() == [0, 0, 1, 4, 5, 5, 5, 5, 6, 8, 10, 10, 5]
    for value, cell in zip(v[2:10], cells[2:10], strict=True):
        low, high = table.edges(int(cell))
        assert low <= value <= high


MEAN = Moments(column=LABEL, low=-2.0, high=6.0)


def test_moments_are_those_of_places_in_the_range_and_values_beyond_are_clipped():
    v = np.array([-2.0, 2.0, 6.0, 4.0, -100.0, np.inf, -np.inf, np.nan])
    B, about = MOMENT_UNITS, facts("float64", columns=D)
    one = [counted(about, MEAN, np.zeros((1, D)), v[i : i + 1]).tolist() for i in range(len(v))]
    ends = [[-B, B], [0, 0], [B, B], [B // 2, B // 4], [-B, B]]
    assert one[:5] == ends and all(-B <= t <= B and 0 <= q <= B for t, q in one)
    assert counted(about, MEAN, np.zeros((8, D)), v).tolist() == np.sum(one, axis=0).tolist()


def test_no_pair_of_records_moves_moments_further_than_their_sensitivity():
    """Every 61st place, the ends among them; one pair comes within a part in a thousand."""
    B = MOMENT_UNITS
    t = np.unique([*range(-B, B + 1, 61), -B // 2, 0, B // 2, B])
    about, v = facts("float64", columns=D), t / B * 4 + 2.0
    a = np.array([counted(about, MEAN, np.zeros((1, D)), v[i : i + 1]) for i in range(len(v))])
    assert np.array_equal(a[:, 0], t)
    moved = a[:, None, :] - a[None, :, :]
    squared, absolute = (moved**2).sum(axis=2).max(), np.abs(moved).sum(axis=2).max()
    assert squared <= MEAN.squared <= 1.001 * squared
    assert absolute <= MEAN.absolute <= 1.001 * absolute


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_no_pair_of_records_moves_products_further_than_their_sensitivity(p):
    """Signs, noughts and places between; the furthest pair comes within a half of the bound."""
    rng, about = np.random.default_rng(p), facts("float64", columns=p + 1)
    z = [np.ones(p), -np.ones(p), np.where(np.arange(p) % 2, 1.0, -1.0), np.full(p, -0.5)]
    z = np.vstack([z, rng.choice([-1.0, 1.0], (60, p)), rng.uniform(-1, 1, (60, p))])
    x = np.hstack([np.ones((len(z), 1)), z])
    table = Products(columns=tuple(range(1, p + 1)), ranges=((-1.0, 1.0),) * p)
    a = np.array([counted(about, table, row[None], row[:1]) for row in x]).astype(float)
    assert a.shape[1] == table.size and np.abs(a).max() <= table.largest
    moved = a[:, None, :] - a[None, :, :]
    squared, absolute = (moved**2).sum(axis=2).max(), np.abs(moved).sum(axis=2).max()
    assert squared <= table.squared <= 1.5**2 * squared
    assert absolute <= table.absolute <= 1.5 * absolute


def test_a_range_is_given_to_tables_that_have_none_and_to_no_other():
    made = planned("float64", summaries=[{"kind": "mean", "column": "pay"}])
    x, y = rows_for(made)
    second = made.counted[1]
    for ranges in (None, np.zeros(0), np.array([-1.0, 1.0, 0.0, 1.0])):
        with pytest.raises(WrongDataError, match="range"):
            add_tables(made.facts, second, ranges)
    found = add_tables(made.facts, second, np.array([-1.0, 1.0]))(x, y)
    fixed = Moments(column=6, low=-1.0, high=1.0)
    assert np.array_equal(found, second.lattice.weights[0] * counted(made.facts, fixed, x, y))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_range_of_a_mean_follows_from_the_first_release(delta):
    made = planned("float64", delta, [{"kind": "mean", "column": "pay"}])
    x, y = rows_for(made)
    randomness = Randomness(bytes(32), made.digest())
    data, rowless = Data(made, x, y, randomness), Rowless(made, randomness, None)
    told = run_privately(RUNS[NAME], made, data, rowless, Progress())
    sizes = made.counted[0].lattice.sizes[0]
    ((low, high),) = ranges_for(made.schedule, told[:sizes])
    assert (
        low < 0 < high <= 1 and -low in 2.0 ** np.arange(-4, 1) and high in 2.0 ** np.arange(-4, 1)
    )
    mean = (low + high) / 2 + (high - low) / 2 * told[sizes] / MOMENT_UNITS / N
    assert mean == pytest.approx(np.clip(x[:, 6], low, high).mean(), abs=0.05)


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_worst_pair_of_records_moves_tables_by_their_sensitivity_and_none_further(
    storage, delta
):
    made = planned(storage, delta)
    x, y = rows_for(made)
    (counts,) = made.counted
    base, furthest = exact(made, x, y), 0.0
    for row, other in product(range(0, 60), repeat=2):
        changed, labels = x.copy(), y.copy()
        changed[row], labels[row] = x[other], y[other]
        moved = (exact(made, changed, labels) - base).astype(float)
        size = np.abs(moved).sum() if delta == 0 else sqrt(moved @ moved)
        furthest = max(furthest, size)
    assert furthest <= counts.lattice.sensitivity_units <= furthest * (1 + 1e-4) + 1


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_what_is_told_is_the_counts_plus_noise_and_without_rows_the_same(storage, delta):
    made = planned(storage, delta)
    x, y = rows_for(made)
    randomness = Randomness(bytes(32), made.digest())
    rowless = Rowless(made, randomness, None)
    told = run_privately(RUNS[NAME], made, Data(made, x, y, randomness), rowless, Progress())
    (counts,) = made.counted
    lattice = counts.lattice
    weights = np.repeat(lattice.weights, lattice.sizes)
    noise = told - exact(made, x, y) / weights
    assert told.shape == (made.dimension,) and np.abs(noise).min() > 0
    assert np.std(noise) == pytest.approx(lattice.deviation(0), rel=0.5)
    units = told * weights
    assert np.allclose(units, np.rint(units), rtol=0, atol=1e-3)


def test_tables_that_the_plan_does_not_name_are_refused_and_shut_the_gate():
    made, other = planned(), planned(summaries=["counts"])
    data = Data(made, *rows_for(made), Randomness(bytes(32), "a"))
    with pytest.raises(WrongDataError, match="those of the Plan"):
        data.noisy_counts(other.counted[0])
    with pytest.raises(GateError):
        data.noisy_counts(made.counted[0])


def test_a_table_leaves_once():
    made = planned()
    data = Data(made, *rows_for(made), Randomness(bytes(32), "a"))
    data.noisy_counts(made.counted[0])
    with pytest.raises(GateError, match="left of what was paid for"):
        data.noisy_counts(made.counted[0])


def test_a_table_more_than_was_priced_is_refused_by_the_meter():
    """A mutant whose schedule has a second release, charged for the first alone."""
    made, more = planned(summaries=["counts"]), planned(summaries=["counts", "counts"])
    schedule = made.schedule.model_copy(update={"counts": (*made.counted, *more.counted)})
    mutant = made.model_copy(update={"schedule": schedule})
    data = Data(mutant, *rows_for(made), Randomness(bytes(32), "a"))
    data.noisy_counts(mutant.counted[0])
    with pytest.raises(GateError, match="left of what was paid for"):
        data.noisy_counts(mutant.counted[1])
