"""The benchmarks run: on made-up rows, once, without the other libraries."""

import gzip

import numpy as np
import pytest

from benchmarks import adult
from service.datasets.schema import CategoricalColumn, NumericColumn

ROWS = 400


def cell(column, rng):
    if isinstance(column, CategoricalColumn):
        return str(rng.choice([*column.categories, "?", "Atlantis"]))
    upper = column.upper if isinstance(column, NumericColumn) else 10**6
    return str(rng.integers(0, int(upper) + 1))


def table(seed):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(ROWS):
        cells = [cell(column, rng) for column in adult.SCHEMA.columns]
        old = int(cells[0]) + rng.integers(-20, 20) > 45
        lines.append([*cells, adult.SCHEMA.label.positive if old else adult.SCHEMA.label.negative])
    return lines


def with_header(folder):
    names = [*(column.name for column in adult.SCHEMA.columns), adult.SCHEMA.label.name]
    for seed, part in enumerate(("train", "test")):
        text = "\n".join(",".join(row) for row in [names, *table(seed)])
        (folder / f"adult_{part}.csv.gz").write_bytes(gzip.compress(text.encode()))


def as_published(folder):
    train, test = (
        "\n".join(", ".join(row) + dot for row in table(seed)) + "\n\n"
        for seed, dot in enumerate(("", "."))
    )
    (folder / "adult.data").write_text(train)
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + test)


def test_adult_is_read_alike_in_both_layouts(tmp_path):
    parts = []
    for write in (with_header, as_published):
        folder = tmp_path / write.__name__
        folder.mkdir()
        write(folder)
        parts.append([*adult.load(folder, "train"), *adult.load(folder, "test")])
    for one, other in zip(*parts, strict=True):
        np.testing.assert_array_equal(one, other)
        assert len(one) == ROWS


@pytest.mark.parametrize("write", [with_header, as_published])
def test_adult_prints_a_line_for_every_fit(write, tmp_path, capsys):
    write(tmp_path)
    adult.main(["--data", str(tmp_path), "--no-peers", "--runs", "1"])
    printed = capsys.readouterr().out
    for loss in adult.SETTINGS:
        for algorithm in adult.ALGORITHMS:
            assert printed.count(f"{algorithm}, {loss} ") == len(adult.EPSILONS)


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
