"""Secret batches: what they cost, how sums over them are calibrated, and what would not be covered."""

import hashlib
from itertools import pairwise, product
from math import exp, log, pi, sqrt

import numpy as np
import pytest
from scipy.special import logsumexp

from service.planning.catalog import plan
from service.planning.conversion import budget_units
from service.planning.lattice import NETWORK_UNITS, target
from service.planning.price import AccountTerms, fits_own_target, price_units
from service.planning.problem import problem
from service.planning.releases import (
    Disjoint,
    Exponential,
    Gaussian,
    Pure,
    Repeat,
    SampledGaussian,
    Sequence,
    Subsample,
)
from service.planning.shared import subsampling
from service.planning.shared.acceleration import Smoother, staged
from service.planning.shared.pace import PASSES_MAX, PASSES_MIN, Pace
from service.planning.shared.subsampling import calibrate_sampled, largest_ratio, sampled
from tests.planning.cases import facts, spec

FITS = subsampling._fits
AC, LOCAL = "accelerated-sgd", "localized-accelerated-sgd"

# --- the price never changes ----------------------------------------------------------------------

INNERS = (
    Gaussian(sensitivity=2, sigma=3),
    Gaussian(sensitivity=1, sigma=40),
    Gaussian(sensitivity=9, sigma=4),
    Pure(sensitivity=1, scale=3),
    Pure(sensitivity=5, scale=1),
    Exponential(sensitivity=2, scale=7),
    Repeat(release=Gaussian(sensitivity=1, sigma=9), times=3),
)
SHARES = ((1, 1), (1, 2), (7, 100), (3, 1024), (12, 10**6), (1, 2**30))


def test_a_stored_plan_prices_the_same_for_ever():
    """To the last digit what plain sums of all terms in 60-digit decimals give."""
    values = [
        Subsample(release=inner, batch=batch, population=population).renyi(order)
        for inner in INNERS
        for batch, population in SHARES
        for order in (2, 3, 4, 7, 22, 64, 200)
    ]
    digest = hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()
    assert digest == "2b69d49a579f7db9ad0dc3f8a3348432df52e4f9b8935d5592dca4b6ac9eb4de"


@pytest.mark.parametrize(
    ("inner", "batch", "population", "times", "units"),
    [
        (Gaussian(sensitivity=2, sigma=3), 1, 1024, 1000, 1091099599),
        (Gaussian(sensitivity=1, sigma=40), 1, 64, 500, 13806874643),
        (Gaussian(sensitivity=2, sigma=3), 1, 2, 1, 190723961840),
        (Pure(sensitivity=1, scale=3), 3, 1000, 100, 70345639),
    ],
)
def test_prices_of_sampled_releases_are_those_of_the_first_version(
    inner, batch, population, times, units
):
    drawn = Subsample(release=inner, batch=batch, population=population)
    assert price_units(Repeat(release=drawn, times=times), facts().account) == units


@pytest.mark.parametrize(
    ("sigma", "population", "order", "digits"),
    [
        (3, 1024, 1000, 215284505847428535386523619637176),
        (60, 10**5, 1000, 389339414863443196668),
        (200, 10**5, 2000, 1348775860066352818433),
    ],
)
def test_so_are_divergences_of_large_order(sigma, population, order, digits):
    sensitivity = 2 if sigma == 3 else 1
    inner = Gaussian(sensitivity=sensitivity, sigma=sigma)
    drawn = Subsample(release=inner, batch=1, population=population)
    assert drawn.renyi(order) * 10**30 // 1 == digits


def test_beyond_what_decimals_hold_a_sample_costs_its_release():
    for sigma, order in ((1, 4096), (1, 2)):
        inner = Gaussian(sensitivity=10**5, sigma=sigma)
        assert Subsample(release=inner, batch=1, population=9).renyi(order) == inner.renyi(order)


def test_no_more_is_claimed_for_orders_beyond_the_sum():
    inner = Pure(sensitivity=1, scale=2)
    assert Subsample(release=inner, batch=1, population=9).renyi(4097) == inner.renyi(4097)


# --- calibration ------------------------------------------------------------------------------------

GOALS = [  # the job's epsilon and delta, the account's ceiling
    (1.0, None, (1.0, 1e-6)),
    (0.1, None, (0.1, 1e-6)),
    (10.0, None, (10.0, 1e-6)),
    (0.5, 1e-8, (3.0, 1e-6)),
    (0.5, 1e-3, (3.0, 1e-6)),
    (0.01, None, (0.01, 1e-9)),
    (2.0, None, (2.0, 0.0)),
    (2.0, 0.0, (3.0, 1e-6)),
]
BATCHES = [(1, 12, 50), (1000, 10**6, 1000), (1000, 10**6, 16384), (10**5, 10**6, 600), (3, 7, 2)]


@pytest.mark.parametrize(("epsilon", "delta", "ceiling"), GOALS)
@pytest.mark.parametrize(("batch", "population", "times"), BATCHES)
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_a_calibrated_batch_fits_and_the_next_coarser_lattice_does_not(
    epsilon, delta, ceiling, batch, population, times, storage
):
    about = facts(storage, population, 5, *ceiling)
    job = spec("gradient-descent", epsilon, delta)
    goal, p = target(job, about), problem(job, about)
    lattice = calibrate_sampled(goal, about, p, 1.0, batch, population, times)

    def fits(units):
        inner = lattice._release(2 * units)
        release = sampled(inner, batch, population, times)
        same = (goal.delta > 0) == (ceiling[1] > 0)
        return fits_own_target(release, epsilon, goal.delta) and not (
            same and price_units(release, about.account) > goal.units
        )

    assert fits(lattice.contribution_units)
    row_units = 1
    if lattice.derivative_units is not None:
        row_units = lattice.contribution_units // lattice.derivative_units
        assert 2**14 - 1 <= lattice.derivative_units < 2**15
    coarser = max(lattice.contribution_units + row_units, int(lattice.contribution_units * 1.00001))
    assert not fits(coarser)


@pytest.mark.parametrize("ceiling", [(1.0, 1e-6), (2.0, 0.0)])
def test_a_smaller_share_of_the_rows_needs_no_more_noise(ceiling):
    about = facts(rows=10**6, epsilon=ceiling[0], delta=ceiling[1])
    goal = target(spec("gradient-descent", ceiling[0]), about)
    ratios = [largest_ratio(goal, 10**6 >> k, 10**6, 1000) for k in range(20)]
    assert ratios == sorted(ratios) and ratios[-1] > 5 * ratios[0]


def test_a_drawn_sum_of_network_gradients_stays_within_its_kernels_integers():
    about = facts(rows=4096, columns=1600, l2_units=163_800, epsilon=10.0)
    job = spec("gradient-descent", model={"kind": "relu_network", "width": 4})
    made = plan(job, about)
    assert made.schedule.batch < 4096 and made.lattice.contribution_units <= NETWORK_UNITS


@pytest.mark.parametrize(
    ("ceiling", "steps", "share"), [((0.5, 1e-6), 100, 0.9), ((1.0, 0.4), 10, 0.001)]
)
def test_a_part_of_a_budget_binds_at_the_jobs_own_order_too(ceiling, steps, share):
    """What is left after a clip was chosen, in an account of another order."""
    parameters = {"steps": steps, "clip": "private", "halvings": 1, "clip_share": share}
    job = spec("localized-subgradient", 0.01, 1e-5, loss="logistic", parameters=parameters)
    made = plan(job, facts("float64", 1025, 2, *ceiling))
    assert fits_own_target(made.release, 0.01, 1e-5)


# --- errata: what is printed would not be covered ---------------------------------------------------


@pytest.mark.parametrize("algorithm", [AC, LOCAL])
@pytest.mark.parametrize("parameters", [{}, {"steps": 2048}])
def test_sensitivity_g_would_cost_more_than_was_asked(algorithm, parameters):
    """Calibrated as if a replaced record moved a sum by c, records would be twice as long."""
    about = facts(rows=10**5)
    made = plan(spec(algorithm, parameters=parameters), about)
    inner = made.lattice.release()
    assert inner.sensitivity == 2 * made.lattice.contribution_units
    printed = Gaussian(sensitivity=2 * inner.sensitivity, sigma=inner.sigma)

    def instead(release):
        match release:
            case Disjoint():
                return Disjoint(parts=tuple(map(instead, release.parts)))
            case Repeat():
                return Repeat(release=instead(release.release), times=release.times)
            case Subsample():
                changed = {"release": instead(release.release)}
                return release.model_copy(update=changed)
            case SampledGaussian():
                return release.model_copy(update={"sensitivity": 2 * release.sensitivity})
            case _:
                return printed

    assert not fits_own_target(instead(made.release), 1.0, 1e-6)
    assert price_units(instead(made.release), about.account) > 1.5 * made.price.units


@pytest.mark.parametrize("parameters", [{}, {"steps": 2048}, {"halvings": 3, "steps": 9}])
@pytest.mark.parametrize("rows", [1, 2, 7, 1000, 10**5])
def test_phases_share_no_row_while_the_printed_slices_do(rows, parameters):
    if rows >> parameters.get("halvings", 0) == 0:
        return
    made = plan(spec(LOCAL, parameters=parameters), facts(rows=rows))
    phases = made.schedule.phases
    assert phases[0].start == 0 and phases[-1].stop <= rows
    for one, next_ in pairwise(phases):
        assert one.stop == next_.start
        assert next_.stop - next_.start <= one.stop - one.start
    assert len(made.release.parts) == len(phases)
    for phase, part in zip(phases, made.release.parts, strict=True):
        assert part.times == sum(stage.steps for stage in phase.stages)
        assert price_units(part, made.facts.account) == made.price.units
    slices = [
        set(range(rows - rows // 2 ** (i - 1), rows - rows // 2**i + 1))  # closed, as printed
        for i in range(1, rows.bit_length() + 1)
    ]
    shared = [a & b for a, b in pairwise(slices)]
    assert all(len(both) >= 1 for both in shared)
    twice = Sequence(parts=(made.release.parts[0],) * 2)
    assert not fits_own_target(twice, 1.0, 1e-6)


def test_a_batch_with_replacement_is_not_what_is_priced():
    """A record that occurs twice moves the sum twice as far. Exact divergences of a sum over two draws
    from three records, all -1 but one, which is +1 or -1."""
    sigma, order, x = 2.0, 16, np.arange(-140, 140, 0.01)

    def log_density(record, batches):
        sums = [sum((record, -1, -1)[i] for i in batch) for batch in batches]
        parts = [-((x - s) ** 2) / (2 * sigma**2) for s in sums]
        density = logsumexp(np.array(parts), axis=0)
        return density - logsumexp(density)

    def divergence(batches):
        p, q = (log_density(record, batches) for record in (1.0, -1.0))
        return float(logsumexp(order * p - (order - 1) * q)) / (order - 1)

    inner = SampledGaussian(sensitivity=2, sigma=2, batch=2, population=3)
    priced = float(inner.renyi(order))
    assert divergence([(0, 1), (0, 2), (1, 2)]) <= priced
    assert divergence(list(product(range(3), repeat=2))) > 2 * priced


def test_the_printed_radius_is_rougher_and_its_bound_worse():
    """r = D/(T d^(1/4)) against D d^(1/4)/T: smoothness larger by sqrt(d), and a larger error."""
    d, steps, D, G = 10**4, 256, 10.0, 1.0
    ours, printed = D * d**0.25 / steps, D / (steps * d**0.25)

    def bound(r):
        error, _ = staged(steps, G * sqrt(d) / r, 0.0, D, 1e-12)
        return error + G * r

    assert (G * sqrt(d) / printed) / (G * sqrt(d) / ours) == pytest.approx(sqrt(d))
    assert bound(printed) > 20 * bound(ours)
    job = spec(AC, loss="hinge")
    about = facts(columns=d - 1)
    smooth = Smoother.of(problem(job, about), job, about)
    (beta,) = smooth.choices(steps, D, 0.0)
    error, _ = staged(steps, beta, 0.0, D, 1e-12)
    assert error + smooth.bias(beta) < bound(ours) / sqrt(2 * pi * sqrt(d))


@pytest.mark.parametrize("columns", [1, 2, 9, 112])
@pytest.mark.parametrize(("loss", "jump"), [("hinge", 1.0), ("absolute", 2.0), ("pinball", 1.0)])
def test_a_corner_averaged_over_the_ball_is_as_smooth_and_as_near_as_promised(loss, jump, columns):
    job, about = spec(AC, loss=loss), facts(columns=columns, label="binary")
    p, k = problem(job, about), columns + 1
    smooth = Smoother.of(p, job, about)
    beta = 3.0
    b, width = np.linspace(-1, 1, 200_001, retstep=True)
    density = (1 - b**2) ** ((k - 1) / 2)
    density /= density.sum() * width
    reach = smooth.smoothing(beta).radius * p.X2
    curvature = jump * density.max() / reach * p.X2**2
    bias = jump * reach * np.sum(np.maximum(b, 0) * density) * width
    assert 0.7 * beta < curvature <= beta * (1 + 1e-9)
    assert 0.7 * smooth.bias(beta) < bias <= smooth.bias(beta) * (1 + 1e-9)


# --- what is chosen ---------------------------------------------------------------------------------


def test_few_rows_are_read_whole_and_many_are_drawn_from():
    few = plan(spec(AC, parameters={"steps": 512}), facts())
    assert few.schedule.batch == 1000
    drawn = plan(spec(AC), facts(rows=10**6, columns=100))
    assert drawn.schedule.batch < 10**5 and drawn.schedule.steps > 1000
    assert drawn.gradients <= 512 * 10**6


@pytest.mark.parametrize(("epsilon", "draws"), [(0.1, True), (1.0, False)])
def test_a_smaller_batch_is_taken_where_it_saves_time_and_adds_hardly_any_variance(epsilon, draws):
    """That of the bound's: a tenth at the most, at a fraction of the seconds. Half of the rows take
    longer to draw than all to pass over."""
    about = facts(rows=10**5, columns=100, epsilon=epsilon)
    pace, steps = Pace.of(about), {"steps": 512}
    chosen = plan(spec(AC, epsilon, parameters=steps), about)
    whole = plan(spec(AC, epsilon, parameters={**steps, "batch": 10**5}), about)
    share = pace.seconds(512, chosen.schedule.batch, 10**5) / pace.seconds(512, 10**5, 10**5)
    assert share < 0.5 if draws else chosen.schedule == whole.schedule
    assert chosen.prediction.excess_risk < 1.06 * whole.prediction.excess_risk


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("columns", [1, 100, 10**4])
def test_time_is_counted_in_rows_of_their_kind(storage, columns):
    n = 10**6
    pace = Pace.of(facts(storage, n, columns))
    assert pace.seconds(1, n // 8, n) < pace.seconds(1, n - 1, n) > pace.seconds(1, n, n)
    assert pace.affords(PASSES_MIN - 1, n, n) and not pace.affords(PASSES_MAX + 1, n, n)
    assert not pace.affords(10**7, 1, n)  # steps take time, whatever they read


def test_a_ridge_brings_restarts_and_a_smaller_error():
    about = facts(rows=10**6, columns=100)
    flat, round_ = (plan(spec(AC, ridge=ridge), about) for ridge in (0.0, 0.1))
    assert len(flat.schedule.stages) == 1 < len(round_.schedule.stages)
    assert round_.prediction.excess_risk < flat.prediction.excess_risk / 5


@pytest.mark.parametrize(
    ("loss", "label", "smoothing"),
    [
        ("hinge", "binary", "ball"),
        ("absolute", "numeric", "ball"),
        ("pinball", "numeric", "ball"),
        ("geometric_median", "numeric", "moreau"),
        ("logistic", "binary", None),
        ("huber", "numeric", None),
    ],
)
@pytest.mark.parametrize("algorithm", [AC, LOCAL])
def test_corners_are_smoothed_and_smooth_losses_left_alone(loss, label, smoothing, algorithm):
    made = plan(spec(algorithm, loss=loss), facts(label=label))
    assert (made.smoothing and made.smoothing.kind) == smoothing


def test_a_job_of_another_delta_pays_within_both_orders():
    """The account's order and the job's own differ; a sampled release must fit at both."""
    about = facts(rows=10**6, columns=100, epsilon=9.0)
    made = plan(spec(AC, 0.5, 1e-8), about)
    assert isinstance(made.release.release, SampledGaussian)
    assert made.price.units <= budget_units(0.5, 1e-8)
    assert fits_own_target(made.release, 0.5, 1e-8)


def test_laplace_batches_cost_what_the_amplified_epsilons_add_up_to():
    made = plan(spec(AC, parameters={"steps": 2048}), facts(rows=10**5, delta=0.0))
    drawn = made.release.release
    assert isinstance(drawn, Subsample)
    gamma, inner = drawn.batch / drawn.population, float(drawn.release.pure())
    total = 2048 * log(1 + gamma * (exp(inner) - 1))
    assert total == pytest.approx(1.0, rel=1e-3)
    assert AccountTerms.for_ceiling(1.0, 0.0) == made.facts.account


@pytest.mark.parametrize(
    ("ceiling", "delta", "epsilon", "rows", "batch"),
    [
        (0.1, 1e-9, 100.0, 10**6, 1000),
        (0.01, 1e-6, 10.0, 10**6, 1000),
        (1.0, 1e-300, 100.0, 1000, 500),
    ],
)
def test_numbers_beyond_decimals_end_the_search_soon(
    ceiling, delta, epsilon, rows, batch, monkeypatch
):
    """An account of a high order and a job of a huge epsilon: exponentials beyond any Decimal."""
    priced = []
    monkeypatch.setattr(subsampling, "_fits", lambda *release: priced.append(1) or FITS(*release))
    job = spec(AC, epsilon, loss="hinge", parameters={"steps": 1, "batch": batch})
    made = plan(job, facts(rows=rows, epsilon=ceiling, delta=delta))
    assert made.price.units > 0 and len(priced) <= 24
