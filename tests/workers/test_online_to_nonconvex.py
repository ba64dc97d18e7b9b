"""Online-to-non-convex conversion: the attack on every leaf of every oracle, and what a run reads."""

from itertools import pairwise

import numpy as np
import pytest

import workers.gate
from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.plan import Plan
from service.planning.price import price_units
from service.planning.releases import Disjoint, Prefixes, Repeat
from service.planning.shared.subsampling import sampled
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_estimate, exact_sum
from tests.workers.records import KEY, D, movement, records
from workers.algorithms import RUNS
from workers.data import Data, Estimate
from workers.directions import ball, frame, gaussians, network_start, uniforms
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.rows import WrongDataError

NAME = "online-to-nonconvex"
ORACLES = ["first-order", "zero-order", "first-order-multi-pass", "zero-order-multi-pass"]
MODELS = {"linear": {"kind": "linear"}, "network": {"kind": "relu_network", "width": 2}}
oracles = pytest.mark.parametrize("oracle", ORACLES)
models = pytest.mark.parametrize("model", MODELS)
storages = pytest.mark.parametrize("storage", ["fixed", "float64"])
noises = pytest.mark.parametrize("delta", [None, 0.0])


def made_plan(oracle, model, storage, delta=None, loss="ramp", rows=12, **parameters) -> Plan:
    more = {"oracle": oracle, **parameters} | ({"clip": 1.0} if storage == "float64" else {})
    job = spec(NAME, 1.0, delta, loss=loss, model=MODELS[model], parameters=more)
    return plan(job, facts(storage, rows=rows, columns=D))


def data_of(made: Plan, x, y, kind=Data) -> Data:
    dtype = np.int16 if made.facts.storage == "fixed" else np.float64
    return kind(made, np.asarray(x, dtype=dtype), np.asarray(y), Randomness(KEY, made.digest()))


def random_rows(made: Plan, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    x = rng.integers(-2300, 2300, (n, D))
    return (x if made.facts.storage == "fixed" else x / 4095), rng.choice([-1.0, 1.0], n)


def directions_of(made: Plan, rng) -> list[np.ndarray | None]:
    """As a run draws them, and as nobody would."""
    d, m = made.dimension, made.schedule.directions
    if made.schedule.oracle.startswith("zero"):
        stream = Randomness(KEY, "x").stream(Use.DIRECTIONS, 0)
        return [frame(stream, m, d), 1e6 * rng.normal(size=(m, d)), np.full((m, d), np.nan)]
    if made.spec.model.kind == "linear":
        return [None]
    return [0.1 * rng.normal(size=(m, d)), np.full((m, d), 1e200), np.full((m, d), np.nan)]


def farthest_apart(made: Plan, sums: list[np.ndarray]) -> int:
    """Floats find the pairs that are furthest apart, integers measure them."""
    points = np.array(sums)
    order = 1 if made.lattice.norm == "l1" else 2
    apart = np.linalg.norm((points[:, None] - points[None]).astype(float), ord=order, axis=2)
    places = zip(*np.nonzero(apart >= 0.999999 * apart.max()), strict=True)
    return max(movement(made, sums[i], sums[j]) for i, j in list(places)[:8])


@oracles
@models
@storages
@noises
@pytest.mark.parametrize("later", [False, True])
def test_no_exchange_moves_a_leaf_beyond_its_sensitivity_and_one_comes_near(
    oracle, model, storage, delta, later
):
    """Noise off; every pair of records at one position, at hostile points and directions."""
    rng = np.random.default_rng(4)
    made = made_plan(oracle, model, storage, delta, "squared", period=3, steps=3, clip=0.05)
    pool = records(made, rng)
    x, y = random_rows(made, 12)
    d = made.dimension
    zero, far, drawn, vast, nan = (
        *(np.zeros(d), np.full(d, 1e3), rng.normal(size=d)),
        *(1e300 * rng.normal(size=d), np.full(d, np.nan)),
    )
    pairs = [(point, None) for point in (zero, far, -far, drawn, vast, nan)]
    if later:
        pairs = [(far, zero), (drawn, -drawn), (far, -far), (vast, drawn), (nan, zero)]
    lattice = made.schedule.later if later else made.lattice
    frames = directions_of(made, rng)
    tried = [(*pair, frames[0]) for pair in pairs] + [(*pairs[0], f) for f in frames[1:]]
    farthest = 0
    for at, before, directions in tried:
        sums = []
        for row, label in pool:
            rows, labels = np.array(x, dtype=np.float64), y.copy()
            rows[1], labels[1] = row, label
            data = data_of(made, rows, labels)
            sums.append(exact_estimate(data, at, before, directions, 0, 4))
        farthest = max(farthest, farthest_apart(made, sums))
    sensitivity = 2 * lattice.contribution_units
    assert farthest <= sensitivity
    # in l1 a network's hidden weights and its row would all have to be at their corners at once
    assert farthest >= sensitivity / (1.5 if (model, delta) != ("network", 0.0) else 4)


@oracles
@models
def test_what_is_priced_are_these_sensitivities(oracle, model):
    made = made_plan(oracle, model, "fixed", period=3, steps=3)
    first, later = made.lattice, made.schedule.later
    if oracle.endswith("multi-pass"):
        ones, others = made.release.parts
        assert (ones, others) == (
            sampled(first.release(), made.schedule.first_batch, 12, 1),
            sampled(later.release(), made.schedule.batch, 12, 2),
        )
        return
    prefixes = made.release.parts[0]
    assert isinstance(prefixes, Prefixes)
    for leaf, lattice in zip(prefixes.leaves, (first, later), strict=True):
        assert leaf.sensitivity == 2 * lattice.contribution_units
    assert prefixes.scale == 2**first.bits == 2**later.bits


@oracles
@models
@storages
@noises
def test_a_run_releases_what_was_priced_and_reads_what_was_planned(oracle, model, storage, delta):
    drawn = {"batch": 30} if oracle.endswith("multi-pass") and model == "linear" else {}
    made = made_plan(oracle, model, storage, delta, rows=97, period=4, steps=12, **drawn)
    schedule, read, vectors = made.schedule, np.zeros(97, dtype=int), []

    class Watched(Data):
        def _estimated(self, e, rows):
            read[rows] += 1
            assert len(rows) == schedule.rows_of(e.before is None)
            if e.before is not None:  # what the difference's clip was planned for
                assert np.linalg.norm(e.at - e.before) <= 2 * schedule.reach * (1 + 1e-9)
            return super()._estimated(e, rows)

        def _vector(self, exact, step, rows, **how):
            vectors.append(exact)
            return super()._vector(exact, step, rows, **how)

    progress = Progress()
    result = RUNS[NAME](made, data_of(made, *random_rows(made, 97), Watched), progress)
    assert progress.done == schedule.steps == 12
    one_pass = isinstance(made.release, Disjoint)
    assert len(vectors) == (3 * made.release.parts[0].vectors if one_pass else 12)
    assert 1 <= read.max() <= (12 if oracle.endswith("multi-pass") else 1)
    if drawn:  # every later step reads so many, and none of them twice
        assert schedule.batch == 30 and read.sum() == 3 * schedule.first_batch + 9 * 30
    assert np.isfinite(result).all() and result.size == made.dimension
    again = RUNS[NAME](made, data_of(made, *random_rows(made, 97)), Progress())
    assert np.array_equal(result, again)


@storages
@models
@pytest.mark.parametrize("mechanism", ["root", "tree"])
def test_a_prefix_is_the_gradient_where_nothing_is_clipped(storage, model, mechanism, monkeypatch):
    """Without noise and with the same rows' mean, the sum of differences is the whole gradient."""
    for sampler in ("rounded_normal", "rounded_laplace"):
        monkeypatch.setattr(workers.gate, sampler, lambda s, count, bits: np.zeros(count, np.int64))
    made = made_plan(
        "first-order", model, storage, loss="logistic", rows=40, period=5, steps=5,
        mechanism=mechanism, clip=9.0, smoothness=10.0, radius=1.0, block=2,
    )  # fmt: skip
    b1, b2 = made.schedule.first_batch, made.schedule.batch
    one = random_rows(made, 1)
    data = data_of(made, np.repeat(one[0], 40, axis=0), np.repeat(one[1], 40))
    rng, row = np.random.default_rng(3), 0
    data.begin_prefixes(mechanism, 5)
    z = start = rng.normal(size=made.dimension) / 3
    for t in range(5):
        before, z = z, start + 0.02 * t * rng.normal(size=made.dimension)
        stop = row + (b1 if t == 0 else b2)
        estimate = Estimate(z, None if t == 0 else before)
        lattice = made.lattice if t == 0 else made.schedule.later
        found = data.noisy_prefix(estimate, lattice, row, stop)
        row = stop
    data.use(made.lattice)
    exact = exact_sum(data, z, 0, 1) * made.lattice.step
    assert np.linalg.norm(found - exact) <= 0.02 * np.linalg.norm(exact) + 1e-3


def test_a_row_enters_one_sum_and_no_step_follows_the_last():
    made = made_plan("first-order", "linear", "fixed", rows=97, period=4, steps=8)
    b1, b2, w = made.schedule.first_batch, made.schedule.batch, np.zeros(D)
    whole, change = Estimate(w), Estimate(w, w)
    first, later = made.lattice, made.schedule.later

    def begun():
        data = data_of(made, *random_rows(made, 97))
        data.begin_prefixes(made.schedule.mechanism, 4)
        return data

    with pytest.raises(WrongDataError):  # no prefix before they begin
        data_of(made, *random_rows(made, 97)).noisy_prefix(whole, first, 0, b1)
    with pytest.raises(GateError):  # no period begins with a difference
        begun().noisy_prefix(change, later, 0, b2)
    data = begun()
    data.noisy_prefix(whole, first, 0, b1)
    with pytest.raises(WrongDataError, match="a row enters one sum"):
        data.noisy_prefix(change, later, b1 - 1, b1 + b2 - 1)
    data = begun()
    data.noisy_prefix(whole, first, 0, b1)
    for t in range(3):
        data.noisy_prefix(change, later, b1 + t * b2, b1 + (t + 1) * b2)
    with pytest.raises(IndexError):  # a period is over
        data.noisy_prefix(change, later, b1 + 3 * b2, b1 + 4 * b2)
    for use in (Use.NOISE, Use.SAMPLING):
        with pytest.raises(GateError):
            data.stream(use, 0)


@oracles
def test_neighbours_draw_the_same_noise_and_directions(oracle, monkeypatch):
    made, opened = made_plan(oracle, "linear", "fixed", rows=97, period=4, steps=8), []
    stream = Randomness.stream

    def spy(self, use, index):
        opened.append((use, index))
        return stream(self, use, index)

    monkeypatch.setattr(Randomness, "stream", spy)
    x, y = random_rows(made, 97)
    there = x.copy()
    there[40] = 0
    addresses = []
    for rows in (x, there):
        opened.clear()
        RUNS[NAME](made, data_of(made, rows, y), Progress())
        addresses.append(list(opened))
        assert len(set(opened)) == len(opened)
    assert addresses[0] == addresses[1]


# --- the directions


def test_frames_are_orthonormal_and_uniform():
    stream = Randomness(KEY, "frames").stream(Use.DIRECTIONS, 0)
    rows = frame(stream, 7, 3)
    for part in (rows[:3], rows[3:6]):
        assert np.allclose(part @ part.T, np.eye(3))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
    many = np.array([frame(stream, 3, 3) for _ in range(4000)])
    for place in range(3):  # each row is uniform: no mean, a third of its square on each axis
        assert np.abs(many[:, place].mean(axis=0)).max() < 0.04
        assert np.abs((many[:, place] ** 2).mean(axis=0) - 1 / 3).max() < 0.02
        assert abs((many[:, place, 0] ** 4).mean() - 1 / 5) < 0.02


def test_points_of_a_ball_fill_it_evenly():
    stream = Randomness(KEY, "ball").stream(Use.DIRECTIONS, 1)
    lengths = np.linalg.norm(ball(stream, 20_000, 4, 2.0), axis=1)
    assert lengths.max() <= 2.0
    for share in (0.25, 0.5, 0.75):
        assert abs(np.mean(lengths <= 2.0 * share ** (1 / 4)) - share) < 0.015


def test_draws_are_uniform_and_normal():
    stream = Randomness(KEY, "draws").stream(Use.PATH, 0)
    u, g = uniforms(stream, 50_001), gaussians(stream, 50_001)
    assert u.size == g.size == 50_001 and u.min() > 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.006 and abs(u.var() - 1 / 12) < 0.002
    assert abs(g.mean()) < 0.02 and abs(g.var() - 1) < 0.03 and abs((g**4).mean() - 3) < 0.2


def test_a_network_starts_with_values_about_one():
    weights = network_start(Randomness(KEY, "start").stream(Use.PATH, 1), 50, 400, 2.0)
    hidden = weights[: 400 * 50].reshape(400, 50)
    row = np.full(50, 2.0 / np.sqrt(50))
    units = np.maximum(hidden @ row, 0)
    assert 0.7 < np.sqrt(np.mean(units**2)) < 1.3
    assert 0.2 < abs(units @ weights[20_000:20_400]) < 5 and weights[-1] == 0.0


# --- the plan


@oracles
def test_more_rows_promise_more(oracle):
    bounds = [
        plan(
            spec(NAME, 1.0, parameters={"oracle": oracle}), facts(rows=n, columns=10)
        ).prediction.excess_risk
        for n in (10**3, 10**4, 10**5, 10**6)
    ]
    assert all(b < a for a, b in pairwise(bounds))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("oracle", ["first-order-multi-pass", "zero-order-multi-pass"])
@pytest.mark.parametrize(("rows", "epsilon"), [(512, 10.0), (4096, 1.0)])
def test_over_many_passes_the_noise_is_within_what_the_bound_allows_for(
    oracle, rows, epsilon, delta
):
    """Epsilons of Laplace noise add, not their squares, so fewer steps are best."""
    about = facts(rows=rows, columns=20, epsilon=epsilon, delta=delta)
    made = plan(spec(NAME, epsilon, loss="ramp", parameters={"oracle": oracle}), about)
    noise = made.prediction.our_noise * np.sqrt(made.dimension)
    assert noise <= 1.1 * made.prediction.excess_risk
    whole = plan(
        spec(NAME, epsilon, loss="ramp", parameters={"oracle": oracle, "batch": rows}), about
    )
    assert made.prediction.excess_risk <= whole.prediction.excess_risk * 1.05
    assert made.gradients <= whole.gradients


@pytest.mark.parametrize("oracle", ["first-order", "zero-order"])
def test_many_passes_are_not_dominated_by_one(oracle):
    """Up to where the rows no longer matter, for all that one pass may take no more steps."""
    for rows in (10**4, 10**5):
        one, many = (
            plan(spec(NAME, parameters={"oracle": each}), facts(rows=rows)).prediction.excess_risk
            for each in (oracle, f"{oracle}-multi-pass")
        )
        assert many < one


def test_the_bound_of_many_passes_has_the_term_of_proposition_5_1():
    made = plan(
        spec(NAME, set="all", parameters={"oracle": "first-order-multi-pass", "gap": 0.5}),
        facts(rows=10**4),
    )
    s, n, d, C1 = made.schedule, 10**4, 20, made.lattice.clip
    G0 = made.prediction.our_noise**2 * d
    C2 = s.later.clip
    for clip, batch, times in ((C1, s.first_batch, 1), (C2, s.batch, s.period - 1)):
        G0 += clip**2 / batch * (n - batch) / (n - 1) * times
    descent = 0.5 / (s.reach * s.steps) + 1.5 * np.sqrt((C1**2 + G0) / s.block) + np.sqrt(G0)
    cells = 3 * s.steps * C2 / 2 * np.sqrt(n) / C1
    population = C1 * (3 + np.sqrt(2 * d * np.log(cells))) / np.sqrt(n)
    assert made.prediction.excess_risk == pytest.approx(descent + population, rel=1e-3)


def test_a_period_of_one_is_plain_noisy_descent():
    made = made_plan("first-order-multi-pass", "linear", "fixed", period=1, steps=4, batch=12)
    assert made.release == Repeat(release=made.lattice.release(), times=4)
    assert price_units(made.release, made.facts.account) == made.price.units


@pytest.mark.parametrize(
    ("job", "words", "works"),
    [
        (
            {"parameters": {"steps": 16, "period": 16}},
            "set parameters.steps and parameters.period to at most 12",
            {"parameters": {"steps": 12, "period": 12}},
        ),
        (
            {"parameters": {"batch": 4}},
            "set parameters.oracle to first-order-multi-pass",
            {"parameters": {"batch": 4, "oracle": "first-order-multi-pass"}},
        ),
        ({"set": "box"}, "it runs over: l2_ball, all", {"set": "all"}),
        (
            {"loss": "geometric_median"},
            "localized-subgradient, gradient-descent or output-perturbation.",
            {"loss": "geometric_median", "algorithm": "gradient-descent"},
        ),
        (
            {"algorithm": "clipped-sgd", "model": "relu_network", "loss": "logistic"},
            "use the model linear, or use proximal-sgd, gradient-descent or online-to-nonconvex",
            {"model": "relu_network", "loss": "logistic"},
        ),
        (
            {
                "model": "relu_network",
                "loss": "geometric_median",
                "algorithm": "gradient-descent",
            },
            "use a linear model.",
            {"loss": "geometric_median", "algorithm": "gradient-descent"},
        ),
    ],
)
def test_a_refusal_says_what_works_and_that_works(job, words, works):
    about = facts(rows=12, columns=D)
    with pytest.raises(PlanRefused) as refusal:
        plan(spec(**{"algorithm": NAME, "epsilon": 1.0, **job}), about)
    assert words in refusal.value.detail
    assert plan(spec(**{"algorithm": NAME, "epsilon": 1.0, **works}), about).price.units > 0
