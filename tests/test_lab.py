"""The defaults lab: its problems, its fits, its lines, and what is put beside the defaults."""

import numpy as np
import pytest

from benchmarks import default, default_baselines
from benchmarks.lab import __main__ as lab
from benchmarks.lab import calibrate, fits, losses, problems, synthetic
from benchmarks.lab.calibrate import Seen
from service.datasets import encode
from service.planning import expected
from service.planning.losses.absolute import Absolute
from service.planning.losses.logistic import Logistic
from service.planning.losses.squared import Squared


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "HOME", tmp_path)
    problems.load.cache_clear()
    yield tmp_path
    problems.load.cache_clear()


def header(table):
    """Names that a table's text speaks of; a star stands for one more."""
    names = []
    for text in table.columns.split("; "):
        words = text.split(": ")[0].split()
        names += words if ": " in text else [w for w in words if ".." not in w and w != "log"]
    label = table.label.split(" >")[0].split(":")[0].split()[0]
    return [*(name.replace("*", "1") for name in names), label]


@pytest.mark.parametrize("name", problems.TABLES)
def test_a_table_declares_bounds_for_every_column(name):
    table = problems.TABLES[name]
    names = header(table)
    schema = problems.declared(table, names)
    assert {column.name for column in schema.columns} == set(names[:-1]) - {schema.label.name}
    assert schema.storage == "fixed"


def test_the_lab_has_two_parts_with_every_kind_of_label():
    assert len(problems.NAMES) == len(set(problems.NAMES)) > 40
    for part in ("fit", "held"):
        names = [name for name in problems.NAMES if problems.part(name) == part]
        assert len(names) >= 40
        families = [synthetic.FAMILIES[n] for n in names if n in synthetic.FAMILIES]
        assert {family.kind for family in families} == {"binary", "numeric"}


def test_a_text_declares_numbers_on_a_log_scale_categories_and_thresholds():
    table = problems.Table("fit", "a/b", "late > 15", "age income log 0..10; B* 1..2; c: x | y z")
    schema = problems.declared(table, ["age", "income", "B1", "B2", "c", "late"])
    assert [c.name for c in schema.columns] == ["age", "income", "B1", "B2", "c"]
    assert [c.log1p for c in schema.columns[:4]] == [True, True, False, False]
    assert schema.columns[4].categories == ("x", "y z")
    cells = {"age": ["1", "2", "3"], "late": ["16", "", "15"]}
    found = problems._present(
        table, schema, {k: np.array(v, dtype=object) for k, v in cells.items()}
    )
    assert sorted(zip(found["age"], found["late"], strict=True)) == [("1", "1"), ("3", "0")]
    with pytest.raises(ValueError, match="no column"):
        problems.declared(table, ["age", "income", "c", "late"])


@pytest.mark.parametrize("name", ["few", "linear-few", "linear-rare", "imbalanced"])
def test_a_made_up_problem_is_as_declared_and_the_same_every_time(name, home):
    first = problems.load(name)
    family = synthetic.FAMILIES[name]
    problems.load.cache_clear()
    again = problems.load(name)  # from its file
    np.testing.assert_array_equal(first.z, again.z)
    train, test = first.split(0)
    assert (len(train), len(test)) == (family.n, synthetic.TEST)
    assert sorted([*train, *test]) == list(range(len(first.y)))
    assert (first.z.astype(int) ** 2).sum(axis=1).max() <= first.l2_units**2
    if family.kind == "binary":
        assert np.mean(first.y > 0) == pytest.approx(family.positive, abs=0.02)
    else:
        assert np.std(first.y) == pytest.approx(family.label_spread, rel=0.2)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Absolute()])
def test_fits_without_privacy_minimise(loss):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)) / 2
    y = np.sign(x @ [1, -2, 0, 1] + rng.logistic(size=3000))
    best = losses.fitted(loss, x, y, 0.0)
    near = [losses.value(loss, x, y, best + 0.05 * rng.normal(size=4)) for _ in range(50)]
    assert losses.value(loss, x, y, best) <= min(near) + 1e-4
    constant = losses.constant(loss, y)
    assert losses.value(loss, np.ones((3000, 1)), y, constant) >= losses.value(loss, x, y, best)


def test_the_lab_prints_a_line_for_every_cell_and_fits_nothing_twice(home, capsys):
    asked = ["--problems", "few,linear-few", "--epsilons", "1,8", "--seeds", "2", "--first"]
    asked += ["--only", "gradient-descent"]
    lab.main(asked)
    printed = capsys.readouterr().out
    assert printed.count("logistic ") >= 2 and printed.count("squared ") >= 2
    assert "auto" in printed and "gradient-descent" in printed
    lines = (home / "fits.jsonl").read_text()
    lab.main(asked)
    assert (home / "fits.jsonl").read_text() == lines
    assert capsys.readouterr().out == printed


def runs(rng, part, problems_count=30):
    """Excess risks that fall as n^-1.5 with scatter by problem and by run."""
    for problem in range(problems_count):
        level = rng.normal(scale=0.5)
        for noise in np.linspace(-6, -1, 6):
            features = expected.pieces(noise)
            excess = np.exp(1.5 * noise + level + rng.normal(scale=0.2))
            yield Seen(part, f"{part}{problem}", "a", "squared", True, features, excess, None)


def test_a_line_predicts_problems_that_it_has_not_seen():
    rng = np.random.default_rng(1)
    line = calibrate.line(list(runs(rng, "fit")))
    assert line.at(expected.pieces(-3.0)) == pytest.approx(-4.5, abs=0.4)
    assert line.low < 0 < line.high
    held = list(runs(rng, "held", 200))
    off = np.array([np.log(run.excess) - line.at(run.features) for run in held])
    assert np.mean((line.low <= off) & (off <= line.high)) == pytest.approx(0.9, abs=0.06)


def test_baselines_approach_the_best_model_as_epsilon_grows():
    rng = np.random.default_rng(2)
    x = np.hstack([np.ones((20_000, 1)), rng.uniform(size=(20_000, 3))]) / 2
    y = np.clip(x @ [0.2, 1, -1, 0.5] - 0.3 + 0.05 * rng.normal(size=20_000), -1, 1)
    best = losses.fitted(Squared(), x, y, 0.0)
    ((_, found),) = default_baselines.fits("AdaSSP", x, y, 100.0, 1e-6, 0)
    np.testing.assert_allclose(found, best, atol=0.05)
    labels = np.sign(y)
    best = losses.value(Logistic(), x, labels, losses.fitted(Logistic(), x, labels, 1e-4))
    found = dict(default_baselines.fits("objective perturbation", x, labels, 20.0, 1e-6, 0))
    assert min(losses.value(Logistic(), x, labels, w) for w in found.values()) < best + 0.01
    assert default_baselines.gaussian_mu(1.0, 1e-6) == pytest.approx(0.2367, abs=1e-3)


def test_the_defaults_are_put_beside_baselines_on_rows_of_a_file(home, capsys):
    rng = np.random.default_rng(3)
    x = np.hstack([np.ones((900, 1)), rng.uniform(size=(900, 3))]) / 2
    y = np.sign(x @ [0, 1, -1, 0] + 0.1 * rng.normal(size=900))
    parts = {"X_train": x[:600], "y_train": y[:600], "X_test": x[600:], "y_test": y[600:]}
    np.savez(home / "rows.npz", **parts)
    found = problems.load(str(home / "rows.npz"))
    np.testing.assert_allclose(found.x, x, atol=1e-3)
    assert found.rows == 600 and found.kind == "binary"
    asked = ["--data", str(home), "--problems", "rows", "--runs", "2", "--epsilons", "1"]
    default.main([*asked, "--only", "baselines"])
    printed = capsys.readouterr().out
    assert "objective perturbation" in printed and "of 1 cells a private peer" in printed
    cell = fits.Cell(str(home / "rows.npz"), "logistic", 1.0)
    assert default.peer_skill(fits.Results(), cell, "diffprivlib", 2) is None


def test_only_the_best_setting_of_a_peer_counts(home):
    results, cell = fits.Results(), fits.Cell("few", "logistic", 1.0)
    for seed in range(2):
        floor = fits.anchors(results, cell, seed)[1]["loss"]
        settings = {"bad": {"loss": floor}, "good": {"loss": floor / 2}}
        results.add({"key": default.key(cell, "Opacus", seed), "settings": settings})
    np.testing.assert_allclose(default.peer_skill(results, cell, "Opacus", 2), 0.5)
    assert default.behind(np.array([0.1, 0.2]), np.array([0.5, 0.6]))
    assert not default.behind(np.array([0.1, 0.9]), np.array([0.5, 0.6]))


def test_rows_of_the_lab_are_stored_as_the_service_would(home):
    problem = problems.load("few")
    schema = synthetic.schema(synthetic.FAMILIES["few"])
    assert problem.step == encode.feature_step(schema)
    assert problem.facts(1.0, 1e-6).l2 <= 1.0
