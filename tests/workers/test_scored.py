"""Tables of models on held-out rows: exact, bounded whatever weights and rows hold, and of no other
row."""

from itertools import product
from math import exp, log1p, sqrt

import numpy as np
import pytest

from service.datasets.schema import Schema
from service.jobs.evaluated import evaluated
from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.scored import LOG_LOSS_MAX, UNITS, bin_edges
from service.planning.spec import Facts, JobSpec
from service.planning.summaries import ColumnFacts
from workers.algorithms import RUNS
from workers.gate import GateError
from workers.held_out import HeldOutData
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError
from workers.scored import add_scored
from workers.transcript import Rowless, run_privately

NAME, D, FITTED, HELD_OUT = "model-evaluation", 5, 30, 60
WARD = ColumnFacts(name="ward", kind="categorical", position=2, cells=3)
LABELS = {
    "binary": ("logistic", None, "ward"),
    "numeric": ("pinball", None, "ward"),
    "categorical": ("softmax", 3, "ward"),
}
ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.3]


def planned(label="binary", storage="fixed", delta=1e-6, models=("m",), **evaluate):
    loss, classes, by = LABELS[label]
    fixed = {"feature_step": 1 / 4095, "linf_units": 4095, "l2_units": 9157}
    about = Facts(
        rows=FITTED,
        held_out=HELD_OUT,
        columns=D,
        storage=storage,
        label=label,
        classes=classes,
        account=AccountTerms.for_ceiling(1.0, delta),
        described=(WARD,),
        **(fixed if storage == "fixed" else {}),
    )
    job = {"dataset": "d", "algorithm": NAME, "loss": loss, "of": list(models)}
    asked = {"privacy": {"epsilon": 1.0}, "evaluate": {"by": by, **evaluate}}
    return plan(JobSpec.model_validate(job | asked), about)


def rows_for(made, seed=0):
    rng = np.random.default_rng(seed)
    fixed = made.facts.storage == "fixed"
    x = np.zeros((HELD_OUT, D), dtype=np.int16 if fixed else np.float64)
    full = 4095 if fixed else 1.0
    x[:, 0], x[:, 1] = full, rng.uniform(size=HELD_OUT) * full
    x[np.arange(HELD_OUT), 2 + rng.integers(0, 3, HELD_OUT)] = full
    if made.facts.label == "categorical":
        return x, rng.integers(0, 3, HELD_OUT).astype(np.float64)
    if made.facts.label == "numeric":
        return x, rng.uniform(-1, 1, HELD_OUT)
    return x, np.where(rng.uniform(size=HELD_OUT) < 0.4, 1.0, -1.0)


def weights_for(made, seed=1):
    return np.random.default_rng(seed).normal(size=(len(made.spec.named), made.weights_named)) * 2


def exact(made, x, y, w):
    (counts,) = made.counted
    total = add_scored(made.facts, counts, w)(x, y)
    weights = np.repeat(counts.lattice.weights, counts.lattice.sizes)
    assert total.dtype == np.int64
    return np.split(total // weights, np.cumsum(counts.lattice.sizes)[:-1])


def test_the_tables_of_a_classifier_are_what_a_loop_counts():
    made = planned()
    x, y = rows_for(made)
    (w,) = weights_for(made)
    confusion, scores = np.zeros((3, 2, 2)), np.zeros((24, 2))
    losses, edges = np.zeros(4), bin_edges(w, 24, made.facts.l2)
    for row, label in zip(x, y, strict=True):
        m, up = float(row @ w) / 4095, int(label > 0)
        confusion[row[2:5].argmax(), int(m > 0), up] += 1
        scores[sum(edge < m for edge in edges), up] += 1
        chance = 1 / (1 + exp(-m))
        share = min(log1p(exp(-m if up else m)) / LOG_LOSS_MAX, 1)
        brier = (chance - up) ** 2
        losses += [int(UNITS * v) for v in (brier, brier**2, share, share**2)]
    found = exact(made, x, y, w[None])
    for expected, table in zip((confusion, scores, losses), found, strict=True):
        assert np.array_equal(expected.ravel(), table)


def test_the_tables_of_a_regression_are_what_a_loop_adds_up():
    made = planned("numeric")
    x, y = rows_for(made)
    (w,) = weights_for(made)
    sums, below = np.zeros(5), np.zeros((3, 2))
    for row, label in zip(x, y, strict=True):
        m = float(row @ w) / 4095
        e = abs(min(max(m, -1), 1) - label) / 2
        sums += [int(UNITS * v) for v in (e, e**2, e**4, (label + 1) / 2, label**2)]
        below[row[2:5].argmax(), int(label <= m)] += 1
    errors, counted = exact(made, x, y, w[None])
    assert np.abs(sums - errors).max() <= 1  # a last bit may fall to either side of a unit
    assert np.array_equal(below.ravel(), counted)


def test_of_several_classes_the_likeliest_is_called():
    made = planned("categorical", metrics=["accuracy"])
    x, y = rows_for(made)
    (w,) = weights_for(made)
    confusion = np.zeros((3, 3, 3))
    for row, label in zip(x, y, strict=True):
        confusion[row[2:5].argmax(), (w.reshape(3, D) @ row).argmax(), int(label)] += 1
    (found,) = exact(made, x, y, w[None])
    assert np.array_equal(confusion.ravel(), found)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_whatever_rows_labels_and_weights_hold_a_record_adds_what_is_allowed(label, storage):
    made = planned(label, storage)
    (counts,) = made.counted
    x, y = rows_for(made)
    odd = y.copy()
    odd[: len(ODD)] = ODD
    weights = [weights_for(made), *(np.full((1, made.weights_named), v) for v in ODD)]
    if storage == "float64":
        x[: len(ODD), 1], x[len(ODD) : 2 * len(ODD), 2] = ODD, ODD
    for w, i in product(weights, range(HELD_OUT)):
        parts = exact(made, x[i : i + 1], odd[i : i + 1], w)
        for table, part in zip(counts.tables, parts, strict=True):
            assert part.min() >= 0
            assert part.max() <= table.largest
            assert table.largest > 1 or part.sum() == 1


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_no_pair_of_records_moves_tables_by_more_than_their_sensitivity(label, delta):
    made = planned(label, delta=delta)
    (counts,) = made.counted
    x, y = rows_for(made)
    x[0], y[0] = (4095, 4095, 4095, 0, 0), 1
    x[1], y[1] = (4095, 0, 0, 4095, 0), {"binary": 1, "numeric": -1, "categorical": 0}[label]
    w = np.zeros((1, made.weights_named))
    w[0, :2] = (-50, 100) if label != "numeric" else (-1, 2)
    add = add_scored(made.facts, counts, w)
    parts = [add(x[i : i + 1], y[i : i + 1]).astype(float) for i in range(HELD_OUT)]
    furthest = max(
        np.abs(a - b).sum() if delta == 0 else sqrt((a - b) @ (a - b))
        for a, b in product(parts, parts)
    )
    assert furthest <= counts.lattice.sensitivity_units <= 1.5 * furthest


def data_for(made, x, y, w):
    return HeldOutData(made, x, y, Randomness(bytes(32), made.digest()), w.ravel())


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_what_is_told_is_the_tables_plus_noise_and_without_rows_the_same(delta):
    made = planned(delta=delta, models=("m", "other"))
    (x, y), w = rows_for(made), weights_for(made).repeat(1, axis=0)
    w = np.random.default_rng(2).normal(size=(2, D))
    rowless = Rowless(made, Randomness(bytes(32), made.digest()), w.ravel())
    told = run_privately(RUNS[NAME], made, data_for(made, x, y, w), rowless, Progress())
    (counts,) = made.counted
    assert told.shape == (made.dimension,)
    noise = told - np.concatenate(exact(made, x, y, w))
    scales = [counts.lattice.deviation(table) for table in range(len(counts.tables))]
    scaled = noise / np.repeat(scales, counts.lattice.sizes)
    assert np.abs(scaled).min() > 0
    assert np.std(scaled) == pytest.approx(1, rel=0.4)


def test_tables_are_of_the_rows_that_were_held_out_and_are_told_once():
    made, other = planned(), planned(metrics=["accuracy"])
    (x, y), w = rows_for(made), weights_for(made)
    (counts,) = made.counted
    assert (counts.start, counts.stop) == (FITTED, FITTED + HELD_OUT)
    for wrong in (range(HELD_OUT), range(FITTED - 1, FITTED + 5), range(FITTED, FITTED + 61)):
        moved = counts.model_copy(update={"start": wrong.start, "stop": wrong.stop})
        schedule = made.schedule.model_copy(update={"counts": moved})
        mutant = made.model_copy(update={"schedule": schedule})
        with pytest.raises(WrongDataError):
            data_for(mutant, x, y, w).noisy_scores(moved, w)
    data = data_for(made, x, y, w)
    data.noisy_scores(counts, w)
    with pytest.raises(GateError, match="left of what was paid for"):
        data.noisy_scores(counts, w)
    with pytest.raises(WrongDataError, match="those of the Plan"):
        data_for(made, x, y, w).noisy_scores(other.counted[0], w)


def test_an_evaluation_has_no_way_to_the_rows_of_fits():
    made = planned()
    (x, y), w = rows_for(made), weights_for(made)
    with pytest.raises(AttributeError):
        data_for(made, x, y, w).noisy_sum(w[0], 0, 10)
    with pytest.raises(WrongDataError):
        HeldOutData(made, x[:FITTED], y[:FITTED], Randomness(bytes(32), "d"), w.ravel())


def test_without_noise_an_evaluation_tells_the_metrics_of_the_rows():
    made = planned()
    (x, y), w = rows_for(made), weights_for(made)
    cities = {"name": "ward", "kind": "categorical", "categories": ["A", "B"]}
    label = {"name": "y", "kind": "binary", "positive": "1", "negative": "0"}
    columns = [{"name": "v", "kind": "numeric", "lower": 0, "upper": 1}, cities]
    schema = Schema.model_validate({"columns": columns, "label": label})
    tables = np.concatenate(exact(made, x, y, w)).astype(np.float64)
    (told,) = evaluated(made, schema, w.ravel(), tables)
    margins, up = x @ w[0], y > 0
    assert told.metrics["accuracy"].value == pytest.approx(np.mean((margins > 0) == up))
    assert told.metrics["recall"].value == pytest.approx(np.mean(margins[up] > 0))
    assert told.metrics["precision"].value == pytest.approx(np.mean(up[margins > 0]))
    ward = x[:, 2:5].argmax(axis=1)
    for number, group in enumerate(told.groups):
        inside = ward == number
        right = np.mean((margins > 0)[inside] == up[inside])
        assert group.metrics["accuracy"].value == pytest.approx(right)
    pairs = np.subtract.outer(margins[up], margins[~up])
    assert told.metrics["auc"].value == pytest.approx(np.mean(pairs > 0), abs=0.05)
