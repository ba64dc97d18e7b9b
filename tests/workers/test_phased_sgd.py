"""Phased SGD: no exchange of one record moves a phase's mean beyond its sensitivity, floats included;
and what the paper prints would not do."""

from itertools import combinations, pairwise
from math import isqrt, log, sqrt

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.optimize import minimize_scalar

from service.planning.algorithms.phased_sgd import PhasedSgdSchedule, step_error
from service.planning.catalog import plan
from service.planning.loss import Scalar
from service.planning.plan import Plan
from service.planning.price import price_units
from service.planning.releases import Sequence
from service.planning.spec import JobSpec
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.arrays import read_only
from workers.data import Data
from workers.kernels.losses import as_slope, slope_of
from workers.kernels.shapes import MARGIN
from workers.kernels.trajectory import descend
from workers.losses import KERNELS
from workers.progress import Progress, Stopped
from workers.randomness import Randomness

KEY = bytes(range(32))
NAME = "phased-sgd"
D = 3
UNIT = 4095


def made_for(rows: int, delta: float | None = None, **job) -> Plan:
    return plan(spec(NAME, 1.0, delta, **job), facts(rows=rows, columns=D))


def phases_of(made: Plan) -> list[tuple[range, float]]:
    """The rows and the sensitivity of every phase."""
    assert isinstance(made.schedule, PhasedSgdSchedule)
    ends = np.cumsum([0, *(phase.rows for phase in made.schedule.phases)]).tolist()
    rows = [range(a, b) for a, b in pairwise(ends)]
    return list(zip(rows, (p.sensitivity for p in made.schedule.phases), strict=True))


class Bare(Data):
    """Notes every mean before its noise, and starts each phase where the attacker says."""

    def __init__(self, made, x, y, starts):
        super().__init__(made, x, y, Randomness(KEY, made.digest()))
        self.means, self.rows, self.starts = [], [], starts

    def noisy_point(self, point, sensitivity, start, stop):
        self.means.append(point.copy())
        self.rows.append(range(start, stop))
        return self.starts[len(self.means) % len(self.starts)].copy()


def means(made, x, y, start):
    """Every phase's mean if each starts at `start` (the first always does at 0)."""
    guarded = Bare(made, x.astype(np.int16), y, [start])
    RUNS[NAME](made, guarded, Progress())
    return guarded.means


def records() -> list[tuple[np.ndarray, float]]:
    axes = [UNIT * row for row in np.eye(D)]
    diagonal = np.full(D, isqrt(UNIT**2 // D))
    rows = [np.zeros(D), axes[0], -axes[0], axes[1], diagonal, -diagonal]
    return [(row, label) for row in rows for label in (-1.0, 1.0)]


JOBS = {
    "hinge": {"loss": "hinge", "set": {"radius": 1.0}},
    "absolute": {"loss": "absolute", "set": {"radius": 0.5}},
    "huber": {"loss": "huber", "set": {"radius": 3.0}},
    "pinball": {"loss": {"kind": "pinball", "quantile": 0.9}, "set": {"radius": 1.0}},
    "logistic": {"loss": "logistic", "set": {"radius": 10.0}},
    "squared": {"loss": "squared", "set": {"radius": 2.0}},
    "ridge": {"loss": "hinge", "set": {"radius": 1.0}, "ridge": 0.5},
    "all": {"loss": "hinge", "set": "all"},
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("rows", [2, 11])
def test_no_exchange_moves_a_mean_beyond_its_sensitivity_and_one_comes_near(job, rows):
    """Every phase and every position in it, over starts, companies and pairs of records; and an
    exchange leaves every other phase's mean, given its start, the same to the last bit."""
    made, pool, rng = made_for(rows, **job), records(), np.random.default_rng(3)
    radius = made.schedule.radius
    along = np.array([radius, 0.0, 0.0])
    starts = [np.zeros(D), along, -along, radius * np.ones(D) / sqrt(D)]
    companies = [[pool[0]] * rows, [pool[i] for i in rng.integers(len(pool), size=rows)]]
    nearest = dict.fromkeys(range(len(phases_of(made))), 0.0)
    for company in companies:
        x, y = np.array([r for r, _ in company]), np.array([label for _, label in company])
        for start in starts:
            for place in range(rows):
                results = []
                for row, label in pool:
                    there_x, there_y = x.copy(), y.copy()
                    there_x[place], there_y[place] = row, label
                    results.append(means(made, there_x, there_y, start))
                for k, (positions, sensitivity) in enumerate(phases_of(made)):
                    of_phase = [result[k] for result in results]
                    moved = max(float(np.linalg.norm(a - b)) for a, b in combinations(of_phase, 2))
                    assert moved <= sensitivity
                    if place not in positions:
                        assert moved == 0.0
                    nearest[k] = max(nearest[k], moved / sensitivity)
    print(f"{job}, {rows} rows: movement over sensitivity by phase", nearest)
    if rows == 11 and made.spec.set.kind == "l2_ball" and made.schedule.radius <= 1:
        assert min(nearest.values()) > 0.98  # slopes at their bound wherever a phase starts


def test_the_means_movement_falls_with_the_exchanged_records_place():
    """A record in place t moves T - t + 1 of T iterates: exactly that share, where nothing shrinks."""
    made = made_for(8, **JOBS["hinge"])
    positions, sensitivity = phases_of(made)[0]
    assert positions == range(4)
    for place in positions:
        x, y = np.zeros((8, D)), np.ones(8)
        x[place, 0], y[place] = UNIT, 1.0
        there = y.copy()
        there[place] = -1.0
        moved = np.linalg.norm(means(made, x, y, x[0])[0] - means(made, x, there, x[0])[0])
        assert moved == pytest.approx(sensitivity * (4 - place) / 4, rel=1e-9)


# --- rounding ---------------------------------------------------------------------------------------


def exact_slope(shape: Scalar, m, y):
    if not shape.straight:
        return -y / (1 + mp.exp(y * m))
    if shape.argument == "margin":
        return -y * min(max(mpf(shape.curvature) * (1 - y * m), mpf(0)), mpf(1))
    return min(max(mpf(shape.curvature) * (m - y), mpf(shape.low)), mpf(shape.high))


def exact_step(w, x, y, feature_step, shape, bound, ridge, eta, radius):
    margin = mp.fsum(mpf(int(a)) * b for a, b in zip(x, w, strict=True)) * mpf(feature_step)
    slope = min(max(exact_slope(shape, margin, mpf(float(y))), -mpf(bound)), mpf(bound))
    step = mpf(eta) * mpf(feature_step) * slope
    w = [(1 - mpf(eta) * mpf(ridge)) * b - step * int(a) for a, b in zip(x, w, strict=True)]
    norm = mp.sqrt(mp.fsum(b * b for b in w))
    return [b * min(mpf(1), mpf(radius) / norm) if norm else b for b in w]


SHAPES = {
    "logistic": Scalar("margin", 0.25),
    "hinge": Scalar("margin", 50.0, straight=True),
    "huber": Scalar("residual", 1.0, -0.1, 0.1, straight=True),
    "pinball": Scalar("residual", 30.0, -0.3, 0.7, straight=True),
}


@pytest.mark.parametrize("d", [1, 3, 17, 160])
@pytest.mark.parametrize("loss", SHAPES)
def test_a_computed_step_errs_by_no_more_than_was_planned(loss, d):
    """Against 60 digits: in the middle of the ball, at its edge and thrown beyond it."""
    shape, rng, worst = SHAPES[loss], np.random.default_rng(d), 0.0
    feature_step, radius, ridge = 1 / UNIT, 3.7, 0.3
    bound = shape.lipschitz(radius)
    eta = 1.9 / (shape.curvature + ridge)
    e = step_error(d, eta, shape.curvature, 1.0, bound, radius)
    with mp.workdps(60):
        for turn in range(60):
            row = rng.normal(size=d)
            x = np.trunc(row / np.linalg.norm(row) * UNIT).astype(np.int16).reshape(1, d)
            v = rng.normal(size=d)
            v *= radius * (1.0, rng.uniform(), 1e-9)[turn % 3] / np.linalg.norm(v)
            y = np.array([float(rng.uniform(-1, 1)) if shape.argument == "residual" else 1.0])
            f = 1.0 if turn % 2 else 0.77
            args = feature_step, as_slope(KERNELS[loss], shape), bound, ridge, eta, radius
            before = [mpf(f) * mpf(float(b)) for b in v]
            after = descend(v, np.zeros(d), f, 0.0, read_only(x), read_only(y), *args)
            right = exact_step(before, x[0], y[0], feature_step, shape, *args[2:])
            error = mp.sqrt(
                mp.fsum(
                    (mpf(float(after)) * mpf(float(b)) - c) ** 2
                    for b, c in zip(v, right, strict=True)
                )
            )
            worst = max(worst, float(error / e))
    print(f"d = {d}: error over bound {worst:.4f}")
    assert 1e-4 < worst <= 1


@pytest.mark.parametrize("job", ["hinge", "logistic", "ridge"])
def test_a_computed_mean_is_the_exact_one_within_its_share_of_the_bound(job):
    made, rng = made_for(64, **JOBS[job]), np.random.default_rng(8)
    x = rng.integers(-2300, 2300, (64, D))
    y = rng.choice([-1.0, 1.0], 64)
    shape = made.spec.loss.scalar()
    if made.smoothing:
        shape = shape.smoothed(made.smoothing.smoothness)
    schedule, feature_step = made.schedule, made.facts.feature_step
    computed = means(made, x, y, np.array([0.3, -0.2, 0.1]))
    with mp.workdps(60):
        for k, (rows, _) in enumerate(phases_of(made)):
            eta = schedule.phases[k].step_size
            w = [mpf(b) for b in ((0.3, -0.2, 0.1) if k else (0.0,) * D)]
            total = [mpf(0)] * D
            for i in rows:
                w = exact_step(
                    *(w, x[i], y[i], feature_step, shape, schedule.slope_bound),
                    *(made.spec.ridge, eta, schedule.radius),
                )
                total = [a + b for a, b in zip(total, w, strict=True)]
            error = mp.sqrt(
                mp.fsum(
                    (mpf(float(a)) - b / len(rows)) ** 2
                    for a, b in zip(computed[k], total, strict=True)
                )
            )
            e = step_error(
                *(D, eta, shape.curvature, made.facts.l2, schedule.slope_bound, schedule.radius)
            )
            assert error <= (len(rows) + 2) * e / 2


def test_labels_and_slopes_outside_their_bounds_are_kept_within():
    """What ingestion excludes would still not move an iterate further than was planned."""
    loss, x = (
        as_slope(MARGIN, Scalar("margin", 100.0)),
        read_only(np.array([[UNIT]], dtype=np.int16)),
    )
    for label in (7.0, -1e300, np.inf, np.nan):
        v = np.array([0.5])
        y = read_only(np.array([label]))
        descend(v, np.zeros(1), 1.0, 0.0, x, y, 1 / UNIT, loss, 1.0, 0.0, 0.01, 1.0)
        assert abs(v[0] - 0.5) <= 0.01 * (1 + 1e-12)


# --- the run ----------------------------------------------------------------------------------------


def drawn_data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.integers(-2300, 2300, (rows, D)).astype(np.int16)
    return x, np.where(x[:, 0] + 300 * rng.normal(size=rows) > 0, 1.0, -1.0)


@pytest.mark.parametrize("block", [1, 3, 7, 10**6])
@pytest.mark.parametrize("delta", [None, 0.0])
def test_progress_in_blocks_of_any_size_gives_the_same_bits(block, delta):
    made = made_for(50, delta, **JOBS["hinge"])
    cut = made.model_copy(update={"schedule": made.schedule.model_copy(update={"block": block})})
    results = []
    for one in (made, cut):
        progress = Progress()
        data = Data(one, *drawn_data(50), Randomness(KEY, "same"))
        results.append(RUNS[NAME](one, data, progress))
        assert progress.done == one.schedule.steps
    assert np.array_equal(*results)
    assert np.linalg.norm(results[0]) <= made.schedule.radius * (1 + 1e-12)


def test_a_run_stops_within_a_phase():
    made = made_for(50, **JOBS["hinge"])
    cut = made.model_copy(update={"schedule": made.schedule.model_copy(update={"block": 4})})

    class Impatient(Progress):
        def step(self):
            self.stopped = self.done >= 2
            super().step()

    progress = Impatient()
    with pytest.raises(Stopped):
        RUNS[NAME](cut, Data(cut, *drawn_data(50), Randomness(KEY, "stop")), progress)
    assert progress.done == 3


@pytest.mark.parametrize("where", [{"radius": 3.0}, "all"])
def test_it_learns(where):
    """With hardly any noise the hinge of its output is near the best."""
    about = facts(rows=40_000, columns=D, epsilon=50.0)
    made = plan(spec(NAME, 50.0, loss="hinge", set=where), about)
    x, y = drawn_data(40_000)
    w = RUNS[NAME](made, Data(made, x, y, Randomness(KEY, made.digest())), Progress())

    def risk(weights):
        return float(np.maximum(0, 1 - y * (x / UNIT @ weights)).mean())

    assert risk(w) < 0.75 * risk(np.zeros(D))
    best = min(risk(s * np.array([1.0, 0.0, 0.0])) for s in np.linspace(0, 3, 61))
    assert risk(w) <= best + made.prediction.excess_risk


def test_the_rank_changes_the_step_and_never_the_price():
    jobs = [{}, {"rank": 5}, {"rank": 1}]
    about = facts(rows=1000, columns=40, epsilon=0.1)
    plans = [plan(spec(NAME, 0.1, set="all", parameters=job), about) for job in jobs]
    sizes = [made.schedule.phases[0].step_size for made in plans]
    assert sizes[0] < sizes[1] < sizes[2]
    assert len({made.price.units for made in plans}) == 1


# --- what the paper prints --------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [2, 3, 8, 100, 1023, 1024])
def test_phases_share_no_row_and_printed_ones_do(rows):
    made = made_for(rows, **JOBS["hinge"])
    ranges = [positions for positions, _ in phases_of(made)]
    seen = [i for positions in ranges for i in positions]
    assert len(seen) == len(set(seen)) == rows - rows.bit_count() and max(seen) < rows
    guarded = Bare(made, np.zeros((rows, D), dtype=np.int16), np.ones(rows), [np.zeros(D)])
    RUNS[NAME](made, guarded, Progress())
    assert guarded.rows == ranges
    printed = [range(r.start, r.stop + 1) for r in ranges]  # z_s, ..., z_{s+T_k}
    for one, following in pairwise(printed):
        (shared,) = set(one) & set(following)
        twice = Sequence(parts=(made.lattice.release(),) * 2)
        assert price_units(twice, made.facts.account) > made.price.units
        assert shared == following.start


def test_the_attained_movement_is_half_of_the_printed_one_and_twice_a_one_record_bound():
    """4 L0 R eta pays for a movement that no pair of records makes; L0 R eta would be exceeded."""
    made = made_for(8, **JOBS["hinge"])
    _, sensitivity = phases_of(made)[0]
    eta = made.schedule.phases[0].step_size
    x, y = np.zeros((8, D)), np.ones(8)
    x[0, 0] = UNIT
    moved = np.linalg.norm(means(made, x, y, np.zeros(D))[0] - means(made, -x, y, np.zeros(D))[0])
    assert moved == pytest.approx(2 * eta, rel=1e-9) and moved <= sensitivity < 2.0001 * eta
    assert moved > 1.9 * eta and 4 * eta > 1.9 * sensitivity
    delta, epsilon = made.guarantee.delta, made.guarantee.epsilon
    printed = 4 * eta / (epsilon / (2 * sqrt(log(1 / delta))))
    assert made.prediction.paper_noise == pytest.approx(printed, rel=1e-5)
    assert made.prediction.our_noise < printed


def printed_beta_and_eta(n: int, D: float) -> tuple[float, float]:
    """Theorem 6 for L0 = R = 1, d small: beta = sqrt(n), eta = D/(3 sqrt(n)); the first phase's."""
    return sqrt(n), D / (3 * sqrt(n)) / 4


@pytest.mark.parametrize("radius", [1.0, 10.0, 1000.0])
def test_the_step_condition_holds_for_any_radius_and_the_printed_one_fails(radius):
    n = 10**4
    made = plan(spec(NAME, 100.0, loss="hinge", set={"radius": radius}), facts(rows=n, columns=1))
    b = made.spec.loss.scalar().smoothed(made.smoothing.smoothness).curvature
    assert made.schedule.phases[0].step_size * b <= 2
    beta, eta = printed_beta_and_eta(n, 2 * radius)
    assert (eta * beta <= 2) == (radius < 12)

    def spread(curvature, step, edge):
        """How far one step brings two points near the envelope's corner apart, as a multiple."""
        loss, ends = as_slope(MARGIN, Scalar("margin", curvature)), []
        x, y = read_only(np.array([[UNIT]], dtype=np.int16)), read_only(np.ones(1))
        for w in (edge - 1e-4, edge):
            v = np.array([w])
            f = descend(v, np.zeros(1), 1.0, 0.0, x, y, 1 / UNIT, loss, 1.0, 0.0, step, radius)
            ends.append(f * v[0])
        return abs(ends[1] - ends[0]) / 1e-4

    assert spread(b, made.schedule.phases[0].step_size, 1.0) <= 1 + 1e-9
    if radius > 12:
        assert spread(beta, eta, 1.0) > 2  # so a replaced record's trace would grow


LOSSES = {
    "hinge": ("hinge", lambda m, y: max(0.0, 1 - y * m)),
    "smoothed_hinge": (
        {"kind": "smoothed_hinge", "width": 0.5},
        lambda m, y: 0.0 if y * m >= 1 else (1 - y * m) ** 2 if y * m > 0.5 else 0.25 + 0.5 - y * m,
    ),
    "squared": ("squared", lambda m, y: (m - y) ** 2 / 2),
    "absolute": ("absolute", lambda m, y: abs(m - y)),
    "huber": (
        {"kind": "huber", "threshold": 0.1},
        lambda m, y: (m - y) ** 2 / 2 if abs(m - y) <= 0.1 else 0.1 * (abs(m - y) - 0.05),
    ),
    "pinball": (
        {"kind": "pinball", "quantile": 0.8},
        lambda m, y: max(0.8 * (y - m), -0.2 * (y - m)),
    ),
}


def proximal(loss, m, y, beta):
    """argmin l(u) + (beta/2)(u - m)^2, by brute force."""
    reach = 4.0 / beta + abs(m - y) + 2.0
    found = minimize_scalar(
        lambda u: loss(u, y) + beta / 2 * (u - m) ** 2,
        bounds=(m - reach, m + reach),
        method="bounded",
        options={"xatol": 1e-11},
    )
    return found.x


def printed_oracle(loss, m, y, beta, L0):
    """Algorithm 1 as it stands."""
    a, b, tried = m - 2 * L0 / beta, m + 2 * L0 / beta, []
    for _ in range(60):
        middle = (a + b) / 2
        tried.append(middle)
        left, right = (a + middle) / 2, (middle + b) / 2
        if loss(left, y) + abs(left - m) ** 2 >= loss(right, y) + abs(right - m) ** 2:
            b = middle
        else:
            a = middle
    return min(tried, key=lambda u: loss(u, y) + abs(u - m) ** 2)


@pytest.mark.parametrize("beta", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("name", LOSSES)
def test_closed_forms_are_the_envelopes_slope_and_the_printed_oracle_is_not(name, beta):
    asked, loss = LOSSES[name]
    job = {"dataset": "d", "algorithm": NAME, "loss": asked, "privacy": {"epsilon": 1.0}}
    shape = JobSpec.model_validate(job).loss.scalar()
    smooth, L0, missed = shape.smoothed(beta), shape.lipschitz(3.0), 0.0
    assert smooth.curvature <= beta
    for m in np.linspace(-3, 3, 25).tolist():
        for y in (-1.0, 1.0):
            by_force = beta * (m - proximal(loss, m, y, beta))
            if smooth is not shape:
                closed = float(exact_slope(smooth, mpf(m), mpf(y)))
                assert closed == pytest.approx(by_force, abs=2e-4)
            printed = beta * (m - printed_oracle(loss, m, y, beta, L0))
            missed = max(missed, abs(printed - by_force))
    assert missed > 0.2 * L0


def test_an_approximate_oracle_pushes_near_points_apart_and_ours_does_not():
    """A bisection that stops at accuracy alpha is a staircase: over a stair it adds eta alpha."""
    beta, eta, alpha = 10.0, 0.19, 1e-3
    shape = spec(NAME, loss="hinge").loss.scalar().smoothed(beta)

    def exact(w):
        return w - eta * float(exact_slope(shape, mpf(w), mpf(1)))

    def approximate(w):
        return w - eta * alpha * round(float(exact_slope(shape, mpf(w), mpf(1))) / alpha)

    points = np.linspace(0.9, 1.0, 4001).tolist()
    for step, grows in ((exact, False), (approximate, True)):
        apart = max(abs(step(a) - step(b)) / (b - a) for a, b in pairwise(points))
        assert (apart > 1 + 1e-6) == grows


def test_the_kernel_runs_the_loss_that_was_planned():
    made = made_for(100, **JOBS["hinge"])
    slope = slope_of(made)
    assert slope.curvature == made.smoothing.smoothness == sqrt(100) / 2
