"""Runs of the two stochastic Frank-Wolfe algorithms: they release what was priced, refuse what they
cannot do, and find stationary points."""

from math import log, sqrt

import numpy as np
import pytest

from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.shared.rounds import rounds_over
from tests.planning.cases import facts, spec
from tests.workers.scripted import BALLS, CHOICES, KEY, L1, NOISY, UNIT, WEDGE, D, N, made_for
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.rows import WrongDataError

BOTH = [
    (CHOICES, L1),
    (CHOICES, WEDGE),
    (NOISY, BALLS["p=1.5"]),
    *((NOISY, BALLS[kind]) for kind in ("l2", "box", "simplex", "wedge")),
]


@pytest.mark.parametrize("delta", [None, 0.0])
@pytest.mark.parametrize(("algorithm", "where"), BOTH)
def test_a_run_releases_what_was_priced_and_nothing_else(algorithm, where, delta, monkeypatch):
    made = made_for(algorithm, where, delta=delta, loss="sigmoid")
    addresses, stream = [], Randomness.stream

    def spy(self, use, index):
        addresses.append((use, index))
        return stream(self, use, index)

    monkeypatch.setattr(Randomness, "stream", spy)
    x, y = drawn_data(N)
    progress, guarded = Progress(), Data(made, x, y, Randomness(KEY, made.digest()))
    w = RUNS[algorithm](made, guarded, progress)
    steps = made.schedule.steps
    assert progress.done == steps == 1 + 2 + 4
    assert addresses == [(Use.OUTPUT, 0)] + [(Use.NOISE, i) for i in range(steps)]
    assert np.abs(w).max() <= 0.3
    for release in (
        lambda: guarded.noisy_sum(w, 0, N),
        lambda: guarded.noisy_point(lambda blocks: w),
    ):
        with pytest.raises((WrongDataError, GateError)):
            release()
    with pytest.raises(GateError):  # one more was not paid for
        if algorithm == CHOICES:
            one, choices = made.schedule.rounds[-1], made.release.parts[-1]
            guarded.choose_by_running_sum(
                np.zeros(w.size),
                (w, w, 0.5, 1.0),
                kept=choices.kept[-1],
                gain=one.gains[-1],
                scale=choices.scales[-1],
                start=N - 1,
                stop=N,
            )
        else:
            guarded.noisy_change(w, w, 0.5, 1.0, N - 1, N)


@pytest.mark.parametrize("rows", [1, 7, 60, 1000, 12_345, 10**8])
def test_every_row_is_in_at_most_one_batch_and_none_is_empty(rows):
    for rounds in range(1, 12):
        layout = rounds_over(rows, rounds)
        if layout is None:
            continue
        end = 0
        for r, one in enumerate(layout):
            assert one.steps == 2**r
            for batch in one.batches():
                assert end == batch.start < batch.stop
                end = batch.stop
            assert end == one.stop
        assert end <= rows


@pytest.mark.parametrize(("algorithm", "where"), BOTH)
def test_too_few_rows_are_refused_with_the_number_that_would_do(algorithm, where):
    asked = {"loss": "sigmoid", "set": where, "parameters": {"rounds": 5}}
    with pytest.raises(PlanRefused) as refused:
        plan(spec(algorithm, **asked), facts(rows=20, columns=D))
    enough = int(refused.value.detail.split(" at least ")[1].split()[0])
    assert plan(spec(algorithm, **asked), facts(rows=enough, columns=D)).schedule.steps == 31
    with pytest.raises(PlanRefused):
        plan(spec(algorithm, **asked), facts(rows=enough - 1, columns=D))


@pytest.mark.parametrize(("algorithm", "where"), [BOTH[0], BOTH[2]])
def test_corners_and_unbounded_rows_and_other_sets_are_refused_with_what_would_work(
    algorithm, where
):
    for loss, storage, chosen, word in (
        ("ramp", "fixed", where, "sigmoid"),
        ("hinge", "fixed", where, "smoothed_hinge"),
        ("sigmoid", "float64", where, "declare bounds"),
        ("sigmoid", "fixed", {"kind": "all"}, "it runs over"),
        ("geometric_median", "fixed", where, "margin"),
    ):
        with pytest.raises(PlanRefused, match=word):
            plan(spec(algorithm, loss=loss, set=chosen), facts(storage, columns=D))


@pytest.mark.parametrize(("algorithm", "where"), [BOTH[0], BOTH[2]])
def test_slopes_without_a_bound_are_refused_and_those_with_one_count_on_no_label(algorithm, where):
    free = facts(rows=5000, columns=D, label="unbounded")
    with pytest.raises(PlanRefused, match="use huber or welsch"):
        plan(spec(algorithm, loss="squared", set=where), free)
    far = {"kind": "huber", "threshold": 1000.0}
    assert plan(spec(algorithm, loss=far, set=where), free).schedule.lipschitz == 1000.0


def drawn_data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.integers(-2300, 2300, (rows, D)).astype(np.int16)
    return x, np.where(x[:, 0] + 300 * rng.normal(size=rows) > 0, 1.0, -1.0)


@pytest.mark.parametrize("loss", ["sigmoid", "savage", "logistic", "welsch", "squared"])
@pytest.mark.parametrize(
    ("algorithm", "where"),
    [
        (CHOICES, {"kind": "l1_ball", "radius": 2.0}),
        (NOISY, {"kind": "lp_ball", "p": 1.5, "radius": 2.0}),
        (NOISY, {"kind": "l2_ball", "radius": 2.0}),
        (NOISY, {"kind": "l1_ball", "radius": 2.0}),
        (NOISY, {"kind": "box", "lower": -0.5, "upper": 1.5}),
        (NOISY, {"kind": "simplex", "total": 2.0}),
        (NOISY, {"kind": "polytope", "vertices": [[2, 0, 1], [-1, 2, 0], [0, -1, 1], [-2, -1, 0]]}),
    ],
)
def test_the_output_is_nearly_stationary(algorithm, where, loss):
    about = facts(rows=20_000, columns=D, epsilon=50.0)
    made = plan(spec(algorithm, 50.0, loss=loss, set=where), about)
    x, y = drawn_data(20_000)
    gaps = {}
    for start in (True, False):
        w = made.spec.set.start(D)
        if not start:
            w = RUNS[algorithm](made, Data(made, x, y, Randomness(KEY, made.digest())), Progress())
        m = x / UNIT @ w
        s = 1 / (1 + np.exp(y * m))
        slope = {
            "sigmoid": -y * s * (1 - s),
            "savage": -2 * y * s**2 * (1 - s),
            "logistic": -y * s,
            "welsch": (m - y) * np.exp(-(((m - y) / 0.5) ** 2)),
            "squared": m - y,
        }[loss]
        gradient = slope @ (x / UNIT) / len(y)
        gaps[start] = float(gradient @ w) - made.spec.set.least(gradient)
    assert gaps[False] < 0.5 * gaps[True] and gaps[False] < made.prediction.excess_risk


def test_the_output_is_drawn_from_the_last_round_whatever_the_rows():
    """The same for neighbours, uniform over keys."""
    made = made_for(NOISY, BALLS["l2"], loss="sigmoid")
    x, y = drawn_data(N)
    counts = np.zeros(4)
    for number in range(400):
        randomness = Randomness(number.to_bytes(32, "big"), "drawn")
        places = {Data(made, rows, y, randomness).drawn(4) for rows in (x, -x)}
        assert len(places) == 1
        counts[places.pop()] += 1
    assert counts.min() > 70


def test_more_rows_and_a_larger_epsilon_predict_a_smaller_gap():
    for algorithm, where in BOTH:
        gaps = [
            plan(
                spec(algorithm, epsilon, loss="sigmoid", set=where), facts(rows=rows, columns=D)
            ).prediction.excess_risk
            for rows, epsilon in ((10**3, 0.1), (10**4, 0.1), (10**5, 0.1), (10**5, 1.0))
        ]
        assert gaps == sorted(gaps, reverse=True)


def test_the_papers_noise_is_stated_beside_ours():
    made = plan(spec(CHOICES, loss="sigmoid", set=L1), facts(rows=10**5, columns=50))
    one, A, L0, L1_ = made.schedule.rounds[-1], 0.2, 0.25, made.schedule.smoothness
    printed = 2 * (L0 * A + L1_ * A * A) * one.steps * sqrt(log(1e6)) / one.rows
    assert made.prediction.paper_noise == pytest.approx(printed, rel=1e-3)
    assert made.prediction.our_noise < printed
    noisy = plan(spec(NOISY, loss="sigmoid", set=BALLS["l2"]), facts(rows=10**5, columns=50))
    b = noisy.schedule.rounds[-1].rows
    assert noisy.prediction.paper_noise == pytest.approx(4 * 0.25 * sqrt(log(1e6)) / b, rel=1e-3)
