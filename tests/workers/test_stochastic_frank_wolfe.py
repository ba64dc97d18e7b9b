"""The two stochastic Frank-Wolfe algorithms: no exchange of one record, in whichever batch, moves what
is released or chosen by more than was priced; and they find stationary points."""

from fractions import Fraction
from functools import partial
from itertools import combinations, product
from math import exp, isqrt, lgamma, log, log1p, sqrt

import numpy as np
import pytest

from service.errors import PlanRefused
from service.planning.algorithms import polyhedral_stochastic_frank_wolfe as planning
from service.planning.algorithms.stochastic_frank_wolfe import row_norm
from service.planning.catalog import plan
from service.planning.conversion import epsilon_of_gaussian
from service.planning.lattice import DERIVATIVE_UNITS
from service.planning.plan import Plan
from service.planning.price import fits_own_target, price_units
from service.planning.releases import Pure, Repeat, Sequence
from service.planning.sets.lp_ball import LpBall
from service.planning.shared.rounds import rounds_over, slope_bounds, step_size
from service.planning.vectors import norm
from service.planning.vertices import largest_pair
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.algorithms.polyhedral_stochastic_frank_wolfe import Scores
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.rows import WrongDataError
from workers.running import PLACES, carry

KEY = bytes(range(32))
CHOICES, NOISY = "polyhedral-stochastic-frank-wolfe", "stochastic-frank-wolfe"
N, D, UNIT = 60, 3, 4095
ONE = 2**32
L1 = {"kind": "l1_ball", "radius": 0.1}
SIMPLEX = {"kind": "simplex", "total": 0.1}
WEDGE = {"kind": "polytope", "vertices": [[0.1, 0, 0], [0, 0.2, 0], [-0.1, -0.1, 0.3], [0, 0, 0]]}
FAR = {"kind": "polytope", "vertices": [[1e8, 1e8, 0], [1e8 + 1, 1e8, 0], [1e8, 1e8, 0.1]]}
POLYTOPES = {"l1": L1, "simplex": SIMPLEX, "wedge": WEDGE, "far": FAR}
BALLS = {
    "p=1.1": {"kind": "lp_ball", "p": 1.1, "radius": 0.1},
    "p=1.5": {"kind": "lp_ball", "p": 1.5, "radius": 0.1},
    "l2": {"kind": "l2_ball", "radius": 0.1},
}


def made_for(algorithm, where, l2_units=UNIT, rows=N, delta=None, loss="squared", **job) -> Plan:
    asked = {"loss": loss, "set": where, "parameters": {"rounds": 3}, **job}
    return plan(
        spec(algorithm, 1.0, delta, **asked), facts(rows=rows, columns=D, l2_units=l2_units)
    )


def records(l2_units: int) -> list[tuple[np.ndarray, float]]:
    """Zero, axes, the longest rows along pairs and diagonals, leaning both ways; a hostile label."""
    rows = [np.zeros(D), *np.eye(D), *-np.eye(D)]
    rows += [np.array(row, dtype=float) for row in ([1, -1, 0], [0, 1, -1], [1, 1, -1], [1, 3, -3])]
    kept = []
    for row in rows:
        largest = min(UNIT / max(1.0, np.abs(row).max()), l2_units / max(1.0, np.linalg.norm(row)))
        kept.append(np.trunc(row * largest))
    return [(row, label) for row in kept for label in (-1.0, 1.0)] + [(kept[1], 1e300)]


class Scripted(Data):
    """Data whose releases are written down, and answered from a script: the same in both worlds."""

    def __init__(self, made, x, y, script) -> None:
        super().__init__(made, x, y, Randomness(KEY, "script"))
        self.script, self.seen = script, []

    def _choice(self, ballot, scale, rows, running=None) -> int:
        scores = ballot.scores(ballot.exact)
        self.seen.append([int(s) for s in scores])
        return self.script(len(self.seen) - 1) % scores.size

    def _vector(self, exact, step, rows) -> np.ndarray:
        self.seen.append(([int(v) for v in exact], step))
        return self.script(len(self.seen) - 1)


def played(made: Plan, x, y, script) -> list:
    data = Scripted(made, np.asarray(x, dtype=np.int16), np.asarray(y), script)
    RUNS[made.algorithm](made, data, Progress())
    return data.seen


def positions(made: Plan) -> list[tuple[int, int, int]]:
    """(round, batch, its first row) of every batch."""
    return [
        (r, k, rows.start)
        for r, one in enumerate(made.schedule.rounds)
        for k, rows in enumerate(one.batches())
    ]


def worlds(place: int, pool) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same rows but for the record at `place`, which is each of the pool in turn."""
    x = np.array([pool[(5 * i + 2) % len(pool)][0] for i in range(N)])
    y = np.array([pool[(5 * i + 2) % len(pool)][1] for i in range(N)])
    made = []
    for row, label in pool:
        x[place], y[place] = row, label
        made.append((x.copy(), y.copy()))
    return made


# --- choices -----------------------------------------------------------------------------------------

SCRIPTS = {
    "ends in turn": lambda i: (0, D)[i % 2],
    "other ends": lambda i: (D, 0)[i % 2],
    "round about": lambda i: i,
}


@pytest.mark.parametrize(("l2_units", "ridge"), [(UNIT, 0.0), (3 * UNIT, 0.7)])
@pytest.mark.parametrize("where", POLYTOPES.values(), ids=POLYTOPES)
def test_no_exchange_in_any_batch_moves_two_scores_apart_beyond_the_price(where, l2_units, ridge):
    """In its own choice and in every later one, and in no earlier; own choices come near the bound."""
    made, pool = made_for(CHOICES, where, l2_units, ridge=ridge), records(l2_units)
    closest: dict[tuple[int, int], float] = {}
    for (r, k, place), script in product(positions(made), SCRIPTS.values()):
        release = made.release.parts[r]
        runs = [played(made, x, y, script) for x, y in worlds(place, pool)]
        first = sum(one.steps for one in made.schedule.rounds[:r])
        for a, b in combinations(runs, 2):
            for i, (p, q) in enumerate(zip(a, b, strict=True)):
                changes = [s - t for s, t in zip(p, q, strict=True)]
                moved, t = max(changes) - min(changes), i - first
                if not k <= t < made.schedule.rounds[r].steps:
                    assert moved == 0
                    continue
                share = Fraction(1)
                for j in range(k + 1, t + 1):
                    share *= Fraction(release.kept[j], ONE)
                assert moved <= release.sensitivities[k] * share + release.slack
                if t == k:
                    near = moved / release.sensitivities[k]
                    closest[r, k] = max(closest.get((r, k), 0.0), near)
    print({key: round(value, 3) for key, value in closest.items()})
    if where is not FAR:  # whose slopes no record brings to their bound
        assert max(closest.values()) > 1 / 1.5 and min(closest.values()) > 0.5


def test_the_printed_sensitivities_would_be_exceeded():
    """One record, half of what replacement moves; and a bound on the gradient's change by the size of
    the step to come, where w moved by that of the step before."""
    radius = 10.0
    made = made_for(CHOICES, {"kind": "l1_ball", "radius": radius}, parameters={"rounds": 2})
    one, release = made.schedule.rounds[1], made.release.parts[1]
    b, A, L0, curvature = one.rows, 2 * radius, radius + 1, 1.0
    x, y = np.zeros((N, D)), np.zeros(N)
    script = [D, 0, 0].__getitem__  # w: -radius e_1, then radius e_1
    batch = list(one.batches())[1]
    gaps = []
    for row, label in (([UNIT, 0, 0], -1.0), ([0, 0, 0], 0.0)):
        x[batch.start], y[batch.start] = row, label
        scores = played(made, x, y, script)[2]
        gaps.append((scores[0] - scores[D]) * one.unit * radius)
    moved, a = gaps[0] - gaps[1], step_size(1)  # by half an exchange: the other half is zero
    printed = ((1 - a) * curvature * A * a + a * L0) * A / (b // 2)
    ours = (release.sensitivities[1] + release.slack) * one.unit * radius
    assert printed < moved <= ours / 2 * (1 + 1e-6)

    place, there = one.start, []
    small = made_for(CHOICES, L1, parameters={"rounds": 1})
    for label in (-1.0, 1.0):
        x[place], y[place] = [UNIT, 0, 0], label
        rows = np.roll(x, -place, axis=0), np.roll(y, -place)
        scores = played(small, *rows, script)[0]
        there.append((scores[0] - scores[D]) * small.schedule.rounds[0].unit * 0.1)
    assert abs(there[0] - there[1]) > 1.1 * 0.2 / N  # L0 D/b


def test_a_batch_is_charged_for_every_choice_that_it_still_influences():
    """The price is that of the costliest batch, more than of its own choice and less than of all."""
    made = made_for(CHOICES, L1, rows=10**5, parameters={"rounds": 6})
    release = made.release.parts[-1]
    own = max(
        Fraction(s + release.slack, scale) ** 2
        for s, scale in zip(release.sensitivities, release.scales, strict=True)
    )
    worst = len(release.scales) * own
    assert own < release.squares() < worst / 3
    assert price_units(made.release, made.facts.account) == made.price.units


@pytest.mark.parametrize("rows", [300, 10**6, 2**30])
@pytest.mark.parametrize("d", [2, 40])
def test_scores_of_vertices_err_by_no_more_than_was_planned(d, rows):
    """Running sums as large as the rows make them, against rational arithmetic."""
    rng = np.random.default_rng(d)
    vertices = (rng.normal(size=(7, d)) * 10.0 ** rng.uniform(-8, 8, size=(7, 1))).tolist()
    job = spec(CHOICES, loss="sigmoid", set={"kind": "polytope", "vertices": vertices})
    made = plan(job, facts(rows=rows, columns=d))
    one, release = made.schedule.rounds[-1], made.release.parts[-1]
    scored = Scores(made, made.schedule)
    fixed = planning.fixed_point(tuple(map(tuple, vertices)), made.schedule.unit)
    total, exact = np.zeros(d, dtype=object), [Fraction(0)] * d
    for t, batch in enumerate(one.batches()):
        h = rng.integers(-DERIVATIVE_UNITS * UNIT, DERIVATIVE_UNITS * UNIT, d) * len(batch)
        total = carry(total, h, release.kept[t], one.gains[t])
        exact = [
            (release.kept[t] * e + one.gains[t] * int(v)) / ONE
            for e, v in zip(exact, h, strict=True)
        ]
        if t in (0, 1, one.steps - 1):
            scores = scored(np.zeros(d), total).tolist()
            for vertex, score in zip(fixed, scores, strict=True):
                truth = sum(Fraction(v, 2**32) * e for v, e in zip(vertex, exact, strict=True))
                assert abs(truth - score) < Fraction(51, 100)
        exact = [Fraction(int(e * 2**200), 2**200) for e in exact]
    reach = planning.max_score(
        [len(batch) for batch in one.batches()], release.kept, one.gains, 2**13
    )
    assert reach < 2**62 and PLACES == 128


def test_vertices_in_fixed_point_keep_their_pairs_within_the_bound(monkeypatch):
    rng = np.random.default_rng(0)
    vertices = tuple(map(tuple, rng.normal(size=(60, 4)).tolist()))
    fixed = planning.fixed_point(vertices, 0.01)
    reach = partial(planning._reach, 5, 7)
    tight = largest_pair(fixed, reach)
    for a, b in combinations(fixed, 2):
        v = [p - q for p, q in zip(a, b, strict=True)]
        assert min(5 * sum(map(abs, v)), 7 * isqrt(sum(e * e for e in v))) <= tight
    monkeypatch.setattr("service.planning.shared.vertices._PAIRS_MAX", 100)
    assert tight <= largest_pair(fixed, reach) <= 2 * tight


# --- sums --------------------------------------------------------------------------------------------


def steered(made: Plan, seed: int):
    """Releases along an axis, now one way and now the other, so that w jumps from end to end."""
    rng = np.random.default_rng(seed)
    far = rng.normal(size=D) * 1e-3 + np.array([1.0, 0, 0])
    return lambda i: far * (-1) ** i * 1e6


@pytest.mark.parametrize("delta", [None, 0.0])
@pytest.mark.parametrize("where", BALLS.values(), ids=BALLS)
def test_no_exchange_in_any_batch_moves_a_sum_beyond_the_price(where, delta):
    made, pool = made_for(NOISY, where, delta=delta), records(UNIT)
    diagonal = np.trunc(np.ones(D) * UNIT / sqrt(D))
    pool += [(diagonal, 1.0), (diagonal, -1.0)]
    release, l1 = made.lattice.release(), made.lattice.norm == "l1"
    for number, (_, _, place) in enumerate(positions(made)):
        runs = [played(made, x, y, steered(made, 1)) for x, y in worlds(place, pool)]
        farthest = 0
        for a, b in combinations(runs, 2):
            for i, ((p, step), (q, same)) in enumerate(zip(a, b, strict=True)):
                moved = [s - t for s, t in zip(p, q, strict=True)]
                assert step == same  # the clip is a function of what was released
                assert i == number or not any(moved)
                squares = sum(m * m for m in moved)
                l2 = isqrt(squares) + (isqrt(squares) ** 2 < squares)
                farthest = max(farthest, sum(map(abs, moved)) if l1 else l2)
        print(where, number, farthest / release.sensitivity)
        assert release.sensitivity / 1.5 < farthest <= release.sensitivity


def test_the_noise_follows_the_step_that_was_made():
    """The clip is C_t of the docstring at the actual distance, and a g_t's alone where w stayed."""
    made = made_for(NOISY, BALLS["l2"], loss="sigmoid")
    quiet = played(made, *worlds(0, records(UNIT))[0], lambda i: np.zeros(D))
    L0, Q = made.schedule.lipschitz, made.lattice.derivative_units
    sizes = [step_size(t) for one in made.schedule.rounds for t in range(one.steps)]
    for (_, step), a in zip(quiet, sizes, strict=True):
        assert step == pytest.approx(a * L0 / Q / UNIT, rel=1e-12)
    loud = played(made, *worlds(0, records(UNIT))[0], steered(made, 2))
    bounds = [
        c
        for one in made.schedule.rounds
        for c in slope_bounds(L0, made.schedule.smoothness * 0.2 * made.facts.l2, one.steps)
    ]
    for (_, step), bound, a in zip(loud, bounds, sizes, strict=True):
        assert a * L0 * 0.999 / Q / UNIT <= step <= bound * 1.001 / Q / UNIT


def test_the_printed_noise_would_be_for_half_of_what_a_record_moves():
    """A mean of b gradients of norm at most L0 X2 moves by 2 L0 X2/b, not by L0 X2/b."""
    made = made_for(NOISY, BALLS["l2"], parameters={"rounds": 1})
    x, y = np.zeros((N, D)), np.zeros(N)
    sums = []
    for label in (-1.0, 1.0):
        x[0], y[0] = [UNIT, 0, 0], label
        ((exact, step),) = played(made, x, y, lambda i: np.zeros(D))
        sums.append(np.array(exact) * step / N)
    assert float(np.linalg.norm(sums[0] - sums[1])) > 1.1 * 1.0 / N


def exact_delta(each: float, times: int, epsilon: float) -> float:
    """Of `times` randomized responses, the worst that so many releases of pure epsilon `each` can be:
    the sum over counts k of lies of P(k) - e^epsilon P(times - k), where that is positive."""
    truth, lie = -log1p(exp(-each)), -log1p(exp(each))
    total = 0.0
    for k in range(times + 1):
        ways = lgamma(times + 1) - lgamma(k + 1) - lgamma(times - k + 1)
        here = exp(ways + k * lie + (times - k) * truth)
        there = exp(ways + (times - k) * lie + k * truth)
        total += max(0.0, here - exp(epsilon) * there)
    return total


@pytest.mark.parametrize("steps", [64, 256, 4096])
def test_the_printed_composition_of_choices_loses_a_root_of_two(steps):
    """Algorithm 4 makes T choices, each of epsilon/sqrt(T log(1/delta)); advanced composition has
    sqrt(2 T log(1/delta)) of them for epsilon."""
    epsilon, delta = 1.0, 1e-6
    printed = epsilon / sqrt(steps * log(1 / delta))
    assert exact_delta(printed, steps, epsilon) > 5 * delta
    assert exact_delta(printed / sqrt(2), steps, epsilon) < delta

    def composed(each: float) -> Repeat:
        return Repeat(release=Pure(sensitivity=round(2**40 * each), scale=2**40), times=steps)

    assert not fits_own_target(composed(printed), epsilon, delta)
    assert fits_own_target(composed(printed / sqrt(2)), epsilon, delta)


def test_as_printed_two_releases_of_a_batch_would_spend_the_epsilon_twice():
    """Algorithm 5's proof has noise for the whole epsilon in the gradient's change and again in the
    gradient: here their sum is released, once for each batch."""
    made = made_for(NOISY, BALLS["l2"])
    one, (epsilon, delta) = made.lattice.release(), (1.0, 1e-6)
    assert fits_own_target(one, epsilon, delta)
    both = Sequence(parts=(one, one))
    assert not fits_own_target(both, epsilon, delta)
    assert epsilon_of_gaussian(both.gaussian(), delta) > 1.1 * epsilon
    batches = [rows for part in made.schedule.rounds for rows in part.batches()]
    seen = played(made, np.zeros((N, D)), np.zeros(N), lambda i: np.zeros(D))
    assert len(seen) == len(batches) == made.release.copies
    assert sum(map(len, batches)) == len(set().union(*batches))


@pytest.mark.parametrize("p", [1.001, 1.1, 1.5, 2.0])
def test_the_linear_minimiser_over_an_lp_ball_is_the_best_of_its_ball(p):
    rng, q = np.random.default_rng(3), p / (p - 1)
    for scale in (1e-200, 1.0, 1e200):
        d = rng.normal(size=6) * scale
        v = LpBall(p=p, radius=2.0).lowest(d)
        assert norm(v, p) == pytest.approx(2.0, rel=1e-9)
        assert v @ d == pytest.approx(-2.0 * norm(d, q), rel=1e-9)  # Hoelder, with equality
    for bad in (np.zeros(3), np.full(3, np.nan), np.array([np.inf, 1.0, 0.0])):
        assert np.array_equal(LpBall(p=p, radius=2.0).lowest(bad), np.zeros(3))


def test_a_row_s_dual_norm_is_bounded_by_both_enforced_norms():
    rng = np.random.default_rng(0)
    for p, l2_units in product((1.1, 1.5, 2.0), (1000, UNIT, 2 * UNIT)):
        about, q = facts(columns=6, l2_units=l2_units), p / (p - 1)
        rows = rng.normal(size=(500, 6)) ** 3
        rows *= (about.l2 / np.linalg.norm(rows, axis=1))[:, None]
        rows /= np.maximum(1, np.abs(rows).max(axis=1) / about.linf)[:, None]
        longest = max(norm(row, q) for row in rows)
        assert longest <= row_norm(about, p) * (1 + 1e-9)
        d = np.ones(6)
        assert norm(d, 2) <= 6 ** (1 / p - 0.5) * norm(d, q) * (1 + 1e-9)


# --- both --------------------------------------------------------------------------------------------

BOTH = [(CHOICES, L1), (CHOICES, WEDGE), (NOISY, BALLS["p=1.5"]), (NOISY, BALLS["l2"])]


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
    for release in (lambda: guarded.noisy_sum(w, 0, N), lambda: guarded.noisy_point(w, 1.0, 0, N)):
        with pytest.raises((WrongDataError, GateError)):
            release()
    with pytest.raises(GateError):  # one more was not paid for
        if algorithm == CHOICES:
            one, choices = made.schedule.rounds[-1], made.release.parts[-1]
            guarded.choose_by_running_sum(
                partial(Scores(made, made.schedule), np.zeros(w.size)),
                (w, w, 0.5, 1.0),
                kept=choices.kept[-1],
                gain=one.gains[-1],
                pairs=Scores(made, made.schedule).pairs,
                far_row=Scores(made, made.schedule).corners.far_row,
                slack=3,
                scale=choices.scales[-1],
                fresh=range(N - 1, N),
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
        ("sigmoid", "fixed", {"kind": "box"}, "it runs over"),
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


def test_algorithms_with_a_projection_refuse_the_lp_ball():
    for name in ("gradient-descent", "accelerated-sgd", "localized-subgradient"):
        with pytest.raises(PlanRefused, match="it runs over"):
            plan(spec(name, loss="logistic", set={"kind": "lp_ball"}), facts())


def drawn_data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.integers(-2300, 2300, (rows, D)).astype(np.int16)
    return x, np.where(x[:, 0] + 300 * rng.normal(size=rows) > 0, 1.0, -1.0)


@pytest.mark.parametrize("loss", ["sigmoid", "savage", "logistic", "welsch", "squared"])
@pytest.mark.parametrize(
    ("algorithm", "where", "q"),
    [
        (CHOICES, {"kind": "l1_ball", "radius": 2.0}, np.inf),
        (NOISY, {"kind": "lp_ball", "p": 1.5, "radius": 2.0}, 3.0),
        (NOISY, {"kind": "l2_ball", "radius": 2.0}, 2.0),
    ],
)
def test_the_output_is_nearly_stationary(algorithm, where, q, loss):
    about = facts(rows=20_000, columns=D, epsilon=50.0)
    made = plan(spec(algorithm, 50.0, loss=loss, set=where), about)
    x, y = drawn_data(20_000)
    gaps = {}
    for start in (True, False):
        w = np.zeros(D)
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
        gaps[start] = float(gradient @ w) + 2.0 * norm(gradient, q)
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
