"""Minimisers with a linear term: as near the exact ones as the Plan says, and b is seen by nobody."""

from dataclasses import replace

import numpy as np
import pytest
from mpmath import mp, mpf

from service.planning.catalog import plan
from service.planning.shared.dual import Tilted
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS, objective_perturbation
from workers.algorithms.objective_perturbation import left, minimum
from workers.data import Blocks, Data, WrongDataError
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import Rows
from workers.transcript import Rowless, Transcript, run_privately

NAME = "objective-perturbation"
N, D = 61, 4
ALL, BALL = "all", {"kind": "l2_ball", "radius": 0.3}
LOSSES = ["logistic", "smoothed_hinge", "huber", "squared"]


def planned(epsilon=1.0, rows=N, delta=1e-6, loss="logistic", where=ALL, **more):
    about = facts(rows=rows, columns=D, epsilon=epsilon, delta=delta)
    return plan(spec(NAME, epsilon, loss=loss, set=where, **more), about)


def table(kind, rows=N):
    """Rows that minimisers find hard, as integers of norm at most 4095."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, D))
    if kind == "alike":
        x[:] = x[0]
    elif kind == "nearly alike":
        x[:] = x[0] + 1e-3 * x
    elif kind == "short":
        x *= 1e-3
    largest = max(1.0, float(np.linalg.norm(x, axis=1).max()))
    x = np.trunc(x / (largest if kind == "short" else np.linalg.norm(x, axis=1)[:, None]) * 4094)
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    return x.astype(np.int16), np.ones(rows) if kind == "alike" else y


def world(made, x, y):
    return Data(made, x, y, Randomness(bytes(32), made.digest()))


def seen_by_the_maker(made, x, y):
    """(b, the point) of a run, as they are inside of what makes the point."""
    caught = []

    class Watching(Data):
        def noisy_minimum(self, make):
            def made_here(blocks, term):
                point = make(blocks, term)
                caught.append((term, point))
                return point

            return super().noisy_minimum(made_here)

    data = Watching(made, x, y, Randomness(bytes(32), made.digest()))
    RUNS[NAME](made, data, Progress())
    return caught[0]


def slope_of(made):
    loss, bound = made.spec.loss.kind, mpf(made.schedule.slope_bound)

    def slope(m, y):
        match loss:
            case "logistic":
                found = -y / (1 + mp.exp(y * m))
            case "smoothed_hinge":
                found = -y * min(mpf(1), max(mpf(0), (1 - y * m) / mpf(made.spec.loss.width)))
            case "huber":
                t = mpf(made.spec.loss.threshold)
                found = min(t, max(-t, m - y))
            case _:
                found = m - y
        return min(bound, max(-bound, found))

    return slope


def gradient_left(made, x, y, term, point):
    """What is left of the gradient at a point of R^d, to fifty digits."""
    with mp.workdps(50):
        slope, unit = slope_of(made), mpf(made.facts.feature_step)
        rows = [[int(e) * unit for e in row] for row in x]
        w, strong = [mpf(e) for e in point], mpf(made.schedule.strong_convexity)
        total = [strong * e + mpf(b) for e, b in zip(w, term, strict=True)]
        for row, label in zip(rows, y, strict=True):
            q = slope(mp.fdot(row, w), mpf(label))
            total = [t + q * e for t, e in zip(total, row, strict=True)]
        return float(mp.norm(total))


@pytest.mark.parametrize("kind", ["spread", "alike", "nearly alike", "short"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_the_point_is_as_near_the_minimiser_as_its_sensitivity_says(loss, kind, epsilon):
    made = planned(epsilon, loss=loss)
    x, y = table(kind)
    term, point = seen_by_the_maker(made, x, y)
    schedule = made.schedule
    exact = gradient_left(made, x, y, term, point)
    assert exact <= schedule.residual
    rounding = np.sqrt(D) / 2 * schedule.term_step
    assert 2 * (schedule.residual + rounding) / schedule.strong_convexity <= schedule.sensitivity


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_left_of_the_gradient_is_never_more_than_the_bound_on_it(loss):
    made = planned(loss=loss)
    x, y = table("spread")
    rng, blocks = np.random.default_rng(5), Blocks(Rows(made.facts, x, y), range(N))
    for scale in (0.0, 1e-6, 1.0, 1e3):
        v, term = scale * rng.normal(size=D), rng.normal(size=D)
        exact = gradient_left(made, x, y, term, v)
        bound = left(made, made.schedule, blocks, term, v)
        assert exact <= bound <= exact * (1 + 1e-9) + 1e-9 * (1 + scale)


def test_over_a_ball_the_point_is_the_best_of_the_ball():
    """Its multiplier is what v has beyond w: then the gradient of the whole is nothing."""
    made = planned(8.0, where=BALL)
    x, y = table("spread")
    term, point = seen_by_the_maker(made, x, y)
    norm = float(np.linalg.norm(point))
    assert norm == pytest.approx(BALL["radius"], rel=1e-12)
    free = planned(8.0)
    assert free.schedule.strong_convexity == made.schedule.strong_convexity
    step = 1e-7
    at = {sign: gradient_left(free, x, y, term, (1 + sign * step) * point) for sign in (-1, 1)}
    assert min(at.values()) > made.schedule.residual  # the free minimiser is elsewhere

    def value(w):
        margins = (x * made.facts.feature_step) @ w * y
        strong = made.schedule.strong_convexity
        return np.logaddexp(0, -margins).sum() + strong / 2 * w @ w + term @ w

    rng = np.random.default_rng(1)
    for _ in range(200):
        other = point + 1e-3 * rng.normal(size=D)
        assert value(other * min(1, BALL["radius"] / np.linalg.norm(other))) >= value(point) - 1e-9


@pytest.mark.parametrize("where", [ALL, BALL], ids=["all", "ball"])
@pytest.mark.parametrize("loss", LOSSES)
def test_points_of_neighbours_are_as_near_their_minimisers_for_the_same_b(loss, where):
    """The second release: given b, what a record moves is the distance from the exact minimiser."""
    made = planned(3.0, loss=loss, where=where)
    x, y = table("nearly alike")
    distances = []
    for label in (1.0, -1.0):
        y[7] = label
        term, point = seen_by_the_maker(made, x, y)
        longer = minimum(
            made,
            made.schedule.model_copy(update={"steps": 6 * made.schedule.steps}),
            Blocks(Rows(made.facts, x, y), range(N)),
            term,
            world(made, x, y),
            Progress(),
        )
        distances.append(np.linalg.norm(point - longer))
    assert sum(distances) <= made.schedule.sensitivity


def test_a_run_goes_on_until_the_point_is_near_enough_and_reports_no_more_steps():
    made = planned()
    x, y = table("spread")
    hasty = made.schedule.model_copy(update={"steps": 1})
    progress, term = Progress(), np.ones(D)
    blocks = Blocks(Rows(made.facts, x, y), range(N))
    point = minimum(made, hasty, blocks, term, world(made, x, y), progress)
    assert gradient_left(made, x, y, term, point) <= hasty.residual
    assert progress.done == 1


def test_a_point_that_cannot_be_near_enough_is_not_released(monkeypatch):
    made = planned()
    monkeypatch.setattr(objective_perturbation, "left", lambda *_: np.nan)
    with pytest.raises(objective_perturbation.NotConverged):
        RUNS[NAME](made, world(made, *table("spread")), Progress())


def test_what_is_written_down_of_a_run_has_one_vector_and_no_b():
    made = planned()
    x, y = table("spread")
    term, _ = seen_by_the_maker(made, x, y)
    transcript = Transcript()
    weights = RUNS[NAME](made, transcript.recorded(world(made, x, y)), Progress())
    assert [asked for asked, _, _ in transcript._asked] == ["noisy_minimum"]
    transcript._vectors.seek(0)
    kept = np.frombuffer(transcript._vectors.read(), "<f8")
    assert kept.size == D and not np.isin(term, kept).any()
    assert np.array_equal(kept, weights)
    transcript.close()


def test_the_published_run_needs_neither_rows_nor_b():
    made = planned()
    x, y = table("spread")
    randomness = Randomness(bytes(32), made.digest())
    rowless = Rowless(made, randomness, None)
    published = run_privately(RUNS[NAME], made, world(made, x, y), rowless, Progress())
    assert np.array_equal(published, RUNS[NAME](made, world(made, x, y), Progress()))
    assert rowless._gate.number == 0  # which drew nothing


def nothing(blocks, term):
    return np.zeros(D)


def test_b_is_drawn_once():
    data = world(planned(), *table("spread"))
    data.noisy_minimum(nothing)
    with pytest.raises(GateError, match="linear term"):
        data.noisy_minimum(nothing)


def test_the_point_is_not_released_without_b():
    data = world(planned(), *table("spread"))
    with pytest.raises(WrongDataError, match="linear term"):
        data.noisy_point(lambda blocks: np.zeros(D))
    with pytest.raises(GateError):
        data.close()


@pytest.mark.parametrize("change", [{"curvature": 1}, {"scale": 2**39}, {"sides": 2}])
def test_another_b_than_was_priced_is_refused(change):
    made = planned()
    other = made.schedule.model_copy(update={"term": made.schedule.term.model_copy(update=change)})
    data = world(made.model_copy(update={"schedule": other}), *table("spread"))
    with pytest.raises(GateError, match="linear term"):
        data.noisy_minimum(nothing)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_plan_covers_what_a_record_does_to_the_gradient_and_to_its_jacobian(loss, delta):
    made = planned(0.7, loss=loss, delta=delta)
    schedule, X2 = made.schedule, made.facts.l2
    term = schedule.term
    spread = np.sqrt(D) if delta == 0 else 1.0
    assert term.sensitivity * schedule.term_step >= 2 * schedule.slope_bound * X2 * spread
    curvature = made.spec.loss.scalar().curvature
    assert term.curvature / term.strong >= curvature * X2**2 / schedule.strong_convexity
    assert term.sides == (1 if made.spec.loss.one_sided else 2)
    assert schedule.slope_bound <= made.spec.loss.constants(np.inf, 1.0, D).lipschitz


@pytest.mark.parametrize("rows", [2, 1000, 10**8])
def test_the_second_noise_is_much_smaller_than_what_the_first_does(rows):
    """To weights that the rows say an average amount about. Where there are so many rows that floats
    cannot do it, it covers what they can."""
    made = planned(rows=rows)
    schedule, facts_ = made.schedule, made.facts
    o = Tilted(
        rows,
        D,
        facts_.l2,
        schedule.slope_bound,
        schedule.curvature,
        schedule.strong_convexity,
        schedule.term_step,
    )
    first = schedule.term_step * schedule.term.scale
    second = np.sqrt(made.lattice.variance_of(schedule.lattice_step))
    curved = rows * schedule.curvature * facts_.l2**2 + D * schedule.strong_convexity
    far = o.reach(16 * first)
    floats = o.sensitivity(10 * o.error(far, far, 16 * first))
    assert second <= 0.11 * first * D / curved or schedule.sensitivity <= floats


def test_a_ridge_of_the_analysts_own_counts_towards_the_strong_convexity():
    small, large = planned(ridge=1e-6), planned(ridge=1.0)
    assert small.schedule.strong_convexity == planned().schedule.strong_convexity
    assert large.schedule.strong_convexity == N
    assert large.schedule.term.sensitivity > small.schedule.term.sensitivity


def test_blocks_are_shorter_where_rows_disturb_each_other_more():
    o = Tilted(1000, D, 1.0, 1.0, 0.25, 100.0, 1e-9)
    assert o.block == 16
    assert replace(o, strong=25.0).block == 10 and replace(o, strong=2.5).block == 1
