"""The benchmarks run: on made-up rows, once, without the other libraries."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind

from benchmarks import (
    adult,
    california,
    frank_wolfe_nonconvex,
    goldstein,
    heavy_tails,
    network,
    phase_retrieval,
    reservations,
    timing,
)
from service.datasets.schema import CategoricalColumn, NumericColumn
from tests.harness import DATABASES

ROWS = 400


def cell(column, rng):
    if isinstance(column, CategoricalColumn):
        return str(rng.choice([*column.categories, "?", "Atlantis"]))
    upper = column.upper if isinstance(column, NumericColumn) else 10**6
    return str(rng.integers(0, int(upper) + 1))


def table(seed, kind=adult.ADULT):
    rng = np.random.default_rng(seed)
    label, lines = kind.schema.label, []
    for _ in range(ROWS):
        cells = [cell(column, rng) for column in kind.schema.columns]
        old = int(cells[0]) + rng.integers(-20, 20) > 45
        lines.append([*cells, label.positive if old else label.negative])
    return lines


def with_header(folder, kind=adult.ADULT):
    names = [*(column.name for column in kind.schema.columns), kind.schema.label.name]
    for seed, part in enumerate(("train", "test")):
        text = "\n".join(",".join(row) for row in [names, *table(seed, kind)])
        (folder / f"{kind.packed}_{part}.csv.gz").write_bytes(gzip.compress(text.encode()))


def as_published(folder, kind=adult.ADULT):
    incomes = {v.decode(): k.decode() for k, v in adult.UCI_INCOMES.items()}
    train, test = (
        "\n".join(
            ", ".join([*row[:-1], incomes[row[-1]] if kind is adult.KDD else row[-1]]) + dot
            for row in table(seed, kind)
        )
        + "\n\n"
        for seed, dot in enumerate(("", "."))
    )
    (folder / f"{kind.published}.data").write_text(train)
    (folder / f"{kind.published}.test").write_text("|1x3 Cross validator\n" + test)


@pytest.mark.parametrize("kind", adult.TABLES.values(), ids=adult.TABLES)
def test_a_census_is_read_alike_in_both_layouts(kind, tmp_path):
    parts = []
    for write in (with_header, as_published):
        folder = tmp_path / write.__name__
        folder.mkdir()
        write(folder, kind)
        parts.append([*adult.load(folder, "train", kind), *adult.load(folder, "test", kind)])
    for one, other in zip(*parts, strict=True):
        np.testing.assert_array_equal(one, other)
        assert len(one) == ROWS
    assert set(parts[0][1]) == {-1.0, 1.0}


@pytest.mark.parametrize("write", [with_header, as_published])
def test_adult_prints_a_line_for_every_fit(write, tmp_path, capsys):
    write(tmp_path)
    adult.main(["--data", str(tmp_path), "--no-peers", "--runs", "1"])
    printed = capsys.readouterr().out
    for loss in adult.SETTINGS:
        for algorithm in adult.ALGORITHMS:
            taken = (algorithm, loss) != ("objective-perturbation", "hinge")  # it has a corner
            assert printed.count(f"{algorithm}, {loss} ") == taken * len(adult.EPSILONS)


def test_adult_takes_one_algorithm_and_another_radius(tmp_path, capsys):
    with_header(tmp_path)
    chosen = ["--only", "phased-sgd", "--radius-times", "0.5"]
    adult.main(["--data", str(tmp_path), "--runs", "1", *chosen])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == len(adult.SETTINGS) * len(adult.EPSILONS)
    assert all(line.startswith("phased-sgd") for line in lines)
    made = [adult.planned("phased-sgd", "hinge", 1.0, 400, times) for times in (1.0, 0.5)]
    assert made[0].spec.set.radius == 2 * made[1].spec.set.radius


def test_a_score_is_judged_by_its_sign_and_its_order():
    x, y = np.array([[1.0], [2.0], [-1.0], [3.0]]), np.array([-1.0, 1.0, -1.0, 1.0])
    assert adult.score(x, y, np.array([1.0])) == (0.75, 1.0)
    assert adult.score(x, y, np.array([0.0])) == (0.5, 0.5)


def test_a_network_on_adult_prints_a_line_for_every_fit(tmp_path, capsys, monkeypatch):
    with_header(tmp_path)
    for job in network.JOBS.values():
        monkeypatch.setitem(job, "steps", 5)
    network.main(["--data", str(tmp_path), "--no-peers", "--runs", "1", "--epsilons", "1.0"])
    printed = capsys.readouterr().out
    assert printed.count("linear, ") == 1 and printed.count("network, ") == len(network.JOBS)


def test_stationarity_is_that_of_the_start_at_the_start_and_none_where_the_loss_is_flat():
    rng = np.random.default_rng(0)
    w = np.zeros(4)
    assert goldstein.stationarity(w, rng) == pytest.approx(0.64, abs=0.02)
    w[0] = 5.0
    assert goldstein.stationarity(w, rng) == 0.0


def test_rates_are_fitted_and_errors_of_prefixes_compared(capsys):
    regime = goldstein.Regime("first-order", 8.0, 3, (64, 128), 1 / 3, "none")
    goldstein.rates(2, None, [regime])
    goldstein.release_error((4, 8), repeats=3)
    printed = capsys.readouterr().out
    assert "exponent" in printed and printed.count("bound") == 2


def housing(rows):
    """Made-up block groups under the published header; some lack their bedrooms."""
    rng = np.random.default_rng(5)
    names = ["longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms"]
    names += ["population", "households", "median_income", "median_house_value", "ocean_proximity"]
    lines = [",".join(names)]
    for i in range(rows):
        households, income = rng.integers(50, 1000), rng.uniform(1, 10)
        bedrooms = "" if i % 50 == 0 else f"{households * 1.1:.1f}"
        cells = [-120.0, 36.0, 30.0, households * 5.0, bedrooms, households * 3.0, households]
        lines.append(",".join(map(str, [*cells, income, 40_000 * income, "INLAND"])))
    return "\n".join(lines)


def test_california_prints_a_line_for_every_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(california, "STEPS", 32)
    (tmp_path / "housing.csv").write_text(housing(ROWS))
    heavy_tails.main(["--data", str(tmp_path), "--only", "california", "--runs", "1"])
    plain = capsys.readouterr().out
    for loss in california.CLIPS:
        assert plain.count(f"{loss}, accelerated-sgd") == len(california.EPSILONS)
        assert plain.count(f"{loss}, not private") == 1
    (tmp_path / "california_housing.csv.gz").write_bytes(gzip.compress(housing(ROWS).encode()))
    packed = california.load(tmp_path)
    (tmp_path / "california_housing.csv.gz").unlink()
    for one, other in zip(packed, california.load(tmp_path), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_clip_for_heavy_tails_beats_a_lipschitz_constant(loss):
    problem = heavy_tails.Problem(loss, heavy_tails.TAILS[0])
    found = heavy_tails.excesses(problem, [2**13, 2**15], 3).mean(axis=(3, 4))
    moment, private, lipschitz = found.swapaxes(0, 1)
    assert (10 * private < lipschitz).all() and moment[0, 1] < moment[0, 0] / 2
    risks = np.array([[[1.0, 1.0]], [[0.1, 0.1]]])
    fitted, error = heavy_tails.exponent([10, 100], risks)
    assert fitted == pytest.approx(1) and error == pytest.approx(0)


def test_heavy_tails_prints_rates_times_and_supports(capsys, monkeypatch):
    monkeypatch.setattr(heavy_tails, "TAILS", heavy_tails.TAILS[:1])
    panels, _ = heavy_tails.rates([2**9, 2**10], 1)
    assert [len(curves) for curves in panels.values()] == [len(heavy_tails.CLIPS)] * 2
    heavy_tails.times([2**9, 2**10], 1)
    heavy_tails.lasso(2**11, 1)
    printed = capsys.readouterr().out
    assert printed.count("exponent is 1.08") == 2 and printed.count("outlier") == 6
    for name in ("clipped-sgd", "accelerated-clipped-sgd", "proximal-sgd", "epsilon 2.0"):
        assert name in printed


def test_phase_retrieval_prints_recovery_and_rates(monkeypatch, capsys):
    small = [replace(r, sizes=(64, 128)) for r in phase_retrieval.RATES]
    monkeypatch.setattr(phase_retrieval, "RATES", small)
    monkeypatch.setattr(phase_retrieval, "RECOVERED", [(300, 3, 1.0)])
    monkeypatch.setattr(phase_retrieval, "FRESH", 200)
    monkeypatch.setattr("sys.argv", ["phase_retrieval", "--runs", "2"])
    phase_retrieval.main()
    out = capsys.readouterr().out
    assert out.count("recovery, n = 300") == 3 and out.count("fitted exponent") == len(small)


@pytest.mark.parametrize("number", range(len(frank_wolfe_nonconvex.SCENARIOS)))
def test_the_frank_wolfe_gap_is_that_of_sampled_rows_and_a_run_has_one(number):
    s, rng = frank_wolfe_nonconvex.SCENARIOS[number], np.random.default_rng(0)
    c, spread, d = frank_wolfe_nonconvex.SCALE, frank_wolfe_nonconvex.SPREAD, 6
    w = np.array([0.1, 0.2, -0.3, 0.05, 0.0, 0.0])
    x = s.entries(d) * (s.spike / 4095) * (1 - 2 * rng.integers(0, 2, (10**5, d)))
    r = x @ (w - s.planted(d)) - rng.uniform(-spread, spread, len(x))
    g = (r * np.exp(-((r / c) ** 2))) @ x / len(x)
    sampled = g @ w + s.set["radius"] * s.dual(g)
    assert frank_wolfe_nonconvex.gap(s, w) == pytest.approx(sampled, abs=5e-3)
    assert frank_wolfe_nonconvex.gap(s, s.planted(d)) == pytest.approx(0, abs=1e-9)
    assert 0 < frank_wolfe_nonconvex.once(s, 300, d, rng) < 2


@pytest.mark.parametrize("kind", DATABASES)
def test_reservations_are_timed_through_the_service_and_alone(kind, capsys):
    times, refused, cpu = reservations.through_http(kind, clients=2, seconds=0.5)
    reservations.row(kind, times, 0.5, refused, cpu)
    reservations.row(kind, reservations.ledger_alone(kind, 0.2), 0.2)
    assert capsys.readouterr().out.count(kind) == 2 and times and refused == 0


@pytest.mark.parametrize("name", timing.JOBS)
def test_neighbours_are_timed(name):
    zero, one = timing.measure(name, rows=50, runs=3)
    assert zero.size == one.size == 2 and min(zero.min(), one.min()) > 0


def test_welchs_statistic_is_that_of_scipy():
    rng = np.random.default_rng(3)
    zero, one = rng.normal(size=40), rng.normal(1.0, 3.0, size=70)
    assert timing.welch(zero, one)[2] == pytest.approx(
        ttest_ind(one, zero, equal_var=False).statistic
    )
