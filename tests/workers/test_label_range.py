"""A range for labels is chosen by counts that one record moves by one."""

import numpy as np
import pytest

from service.planning.catalog import plan
from service.planning.draft import LabelRange
from service.planning.lattice import target
from service.planning.price import price_units
from service.planning.releases import Choice
from service.planning.shared.label_range import WIDER, label_range
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import Ballot, GateError
from workers.label_range import CELLS, FIRST, OCTAVES, STOP, cells, interval, range_ballot
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError

ASKED = LabelRange(rank=95, penalty=3, scale=1)
N = 4000


def numeric(**more):
    return facts(label="numeric", rows=N, **more)


def job(loss="squared", **more):
    return spec("preconditioned-descent", loss=loss, set="all", **more)


def scores(labels):
    ballot = range_ballot(cells(np.array(labels)), ASKED)
    return ballot.scores(ballot.exact)


def test_every_candidate_lies_within_the_bounds_and_the_widest_is_one_of_them():
    assert FIRST.min() == 0 and STOP.max() == CELLS and (FIRST < STOP).all()
    assert (FIRST[0], STOP[0], OCTAVES[0]) == (0, CELLS, 0)
    assert len(set(zip(FIRST.tolist(), STOP.tolist(), OCTAVES.tolist(), strict=True))) == len(FIRST)


@pytest.mark.parametrize("label", [-1.0, -0.3, 0.0, 0.7, 1.0, np.nan, np.inf, -np.inf, 1e300])
def test_every_label_is_in_one_cell(label):
    assert cells(np.array([label])).sum() == 1


@pytest.mark.parametrize("seed", range(20))
def test_replacing_a_record_moves_no_two_scores_apart_by_more_than_two(seed):
    rng = np.random.default_rng(seed)
    labels = np.clip(rng.normal(rng.uniform(-1, 1), 10.0 ** rng.uniform(-3, 0), 100), -1, 1)
    other = labels.copy()
    other[0] = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)])
    change = scores(other) - scores(labels)
    assert np.ptp(change) <= LabelRange.SENSITIVITY


def test_two_is_attained():
    labels = np.zeros(100)
    labels[0] = -1.0
    other = labels.copy()
    other[0] = 1.0
    assert np.ptp(scores(other) - scores(labels)) == LabelRange.SENSITIVITY


def test_the_gate_would_see_scores_that_move_further():
    ballot = range_ballot(np.zeros(CELLS, dtype=np.int64), ASKED)
    assert ballot.widest == LabelRange.SENSITIVITY
    doubled = Ballot(
        ballot.exact, ballot.scores, lambda c: 2 * ballot.probe(c), ballot.ends, ballot.sensitivity
    )
    assert doubled.widest > doubled.sensitivity


@pytest.mark.parametrize(("middle", "spread"), [(0.0, 0.02), (-0.625, 0.05), (0.9, 0.01)])
def test_the_best_candidate_holds_the_labels_and_is_short(middle, spread):
    labels = np.clip(np.random.default_rng(0).normal(middle, spread, 10_000), -1, 1)
    asked = LabelRange(rank=9500, penalty=300, scale=1)
    ballot = range_ballot(cells(labels), asked)
    found, half = interval(int(ballot.scores(ballot.exact).argmin()))
    assert np.mean(abs(labels - found) <= half) > 0.93
    assert half <= 8 * WIDER * spread


def test_it_is_priced_metered_and_first():
    made = plan(job(), numeric())
    labels, first = made.schedule.labels, made.release.parts[0]
    assert first == Choice(sensitivity=2, scale=labels.scale)
    terms = made.facts.account
    assert price_units(first, terms) <= 0.05 * price_units(made.release, terms) * 1.01


@pytest.mark.parametrize("loss", ["huber", "logistic"])
def test_a_loss_that_does_not_scale_with_labels_has_none(loss):
    about = facts(rows=N) if loss == "logistic" else numeric()
    assert plan(job(loss), about).schedule.labels is None


def test_where_the_choice_would_miss_none_is_made():
    about = numeric()
    assert label_range(target(job(epsilon=0.01), about), about.rows) is None


def given(made, labels):
    rng = np.random.default_rng(1)
    x = rng.integers(-20, 20, (N, made.facts.columns)).astype(np.int16)
    return Data(made, x, labels, Randomness(bytes(32), made.digest()))


def test_it_is_chosen_once_and_before_all_else():
    made = plan(job(), numeric())
    data = given(made, np.zeros(N))
    data.choose_label_range()
    with pytest.raises(GateError, match="left of what was paid for"):
        data.choose_label_range()


def test_a_plan_without_one_has_none_to_choose():
    made = plan(job("huber"), numeric())
    with pytest.raises(WrongDataError, match="no range of labels"):
        given(made, np.zeros(N)).choose_label_range()


def test_labels_in_a_small_part_of_their_range_are_fitted_as_if_it_were_theirs():
    """Least squares to labels about .8 that spread by .004: without a range of their own the clip and
    the noise would be those of [-1, 1]."""
    made = plan(job(epsilon=1.0), numeric())
    labels = np.clip(np.random.default_rng(2).normal(0.8, 0.004, N), -1, 1)
    data = given(made, labels)
    w = RUNS[made.algorithm](made, data, Progress())
    assert abs(w[0] * made.facts.linf - 0.8) < 0.02


@pytest.mark.parametrize("label", [np.inf, -np.inf, 1e308, np.nan])
@pytest.mark.filterwarnings("error")
def test_a_label_beyond_all_bounds_is_clipped_without_a_word(label):
    labels = np.full(N, 0.8)
    labels[0] = label
    data = given(plan(job(), numeric()), labels)
    data.choose_label_range()
    assert abs(data._rows._y).max() <= 1
