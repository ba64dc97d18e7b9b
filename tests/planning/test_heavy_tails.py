"""Plans for heavy tails: the theorems' numbers, and a clip that is chosen at a price fixed before."""

from itertools import pairwise
from math import ceil, inf, log, sqrt

import pytest

from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.choose import plan_named
from service.planning.conversion import budget_units
from service.planning.lattice import target
from service.planning.plan import Plan
from service.planning.price import fits_own_target, price_units
from service.planning.shared.heavy_tails import Tails
from tests.planning.cases import facts, spec
from tests.planning.grid import ACCOUNTS, EPSILONS, SIZES

ALL = ("clipped-sgd", "accelerated-clipped-sgd", "proximal-sgd", "localized-subgradient")
algorithms = pytest.mark.parametrize("algorithm", ALL)


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize(
    ("algorithm", "halvings"), [*((name, 0) for name in ALL), ("localized-subgradient", 1)]
)
def test_the_guarantee_of_a_chosen_clip(algorithm, account, storage, halvings):
    """Choice and sums together cost no more than was asked, and no less to speak of."""
    drawn = {"halvings": halvings, "steps": 50} if halvings else {}
    kind, account_delta, job_delta = ACCOUNTS[account]
    delta = account_delta if job_delta is None else job_delta
    for rows, columns in SIZES[1:]:
        for epsilon in EPSILONS[1:]:
            about = facts(storage, rows, columns, epsilon, account_delta, kind=kind)
            job = spec(algorithm, epsilon, job_delta, parameters={"clip": "private", **drawn})
            made = plan(job, about)
            assert Plan.model_validate_json(made.canonical()).digest() == made.digest()
            choice = made.release.parts[0]
            assert choice == made.private_clip.release() and choice.sensitivity == 2
            assert fits_own_target(made.release, epsilon, delta)
            assert made.price.units == price_units(made.release, about.account)
            if delta == account_delta:
                asked = budget_units(epsilon, delta, kind)
                assert 0.999 * asked <= made.price.units <= asked
                assert price_units(choice, about.account) <= 0.11 * asked + 1
            assert 0 <= made.private_clip.rank <= rows


@algorithms
def test_the_share_and_the_quantile_are_the_analysts_to_set(algorithm):
    about = facts("float64", rows=10**5)
    clip = {"clip": "private", "clip_share": 0.5, "clip_quantile": 0.7}
    made = plan(spec(algorithm, parameters=clip), about)
    assert made.private_clip.rank == 70_000
    share = price_units(made.private_clip.release(), about.account) / made.price.units
    assert 0.3 <= share <= 0.5  # scales are whole numbers, and the sums get the rest


@algorithms
def test_a_quantile_that_the_choice_cannot_tell_from_the_maximum_is_refused(algorithm):
    about = facts("float64", rows=10**5)

    def planned(quantile):
        clip = {"clip": "private", "clip_quantile": quantile}
        return plan(spec(algorithm, parameters=clip), about)

    with pytest.raises(PlanRefused, match="clip_quantile to at most") as refusal:
        planned(0.99999)
    most = float(str(refusal.value).split("at most ")[1].split()[0])
    made = planned(most)
    assert 10**5 - made.private_clip.rank >= 20 * made.private_clip.scale


@algorithms
def test_by_default_the_tail_that_is_clipped_balances_noise_and_bias(algorithm):
    """1/z of the records, but no fewer than the choice can count."""
    about = facts("float64", rows=10**6)
    made = plan(spec(algorithm, parameters={"clip": "private"}), about)
    clipped = 10**6 - made.private_clip.rank
    assert 20 * made.private_clip.scale - 1 <= clipped <= 10**6 / 2
    one = plan(spec(algorithm, parameters={"clip": "private"}), facts("float64", rows=2))
    assert one.private_clip.rank == 1


@algorithms
@pytest.mark.parametrize("moment", [2, 3.5, 100])
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_moments_set_the_clip_and_a_clip_overrides_them(algorithm, moment, storage):
    about = facts(storage, rows=10**5)
    known = {"moment": moment, "moment_bound": 0.005}
    made = plan(spec(algorithm, parameters=known), about)
    lighter = plan(spec(algorithm, parameters=known | {"moment_bound": 0.0025}), about)
    assert lighter.lattice.clip < made.lattice.clip
    asked = plan(spec(algorithm, parameters=known | {"clip": 0.125}), about)
    assert asked.lattice.clip == pytest.approx(0.125)
    assert made.private_clip is None


def test_theorem_33():
    n, d, k, r, mu = 10**6, 20, 3, 2.0, 0.1
    about = facts("float64", rows=n)
    parameters = {"moment": k, "moment_bound": r}
    job = spec("clipped-sgd", parameters=parameters, set={"radius": 1.0})
    rho = target(job, about).rho
    beta, D = 0.25 + mu, 2.0
    inside = mu * beta * D**2 / r**2 * (n + (2 * rho * n**2 / d) ** ((k - 1) / k))
    steps = ceil(4 * beta / mu * log(inside))
    made = plan(job, about)
    assert made.schedule.steps == steps
    C = r * (2 * rho * n**2 / (d * steps)) ** (1 / (2 * k))
    assert made.lattice.clip == pytest.approx(C)
    assert made.schedule.steps * made.schedule.batch <= n  # n/(T+1) rows, not n/T


def test_theorem_29():
    n, d, k, r = 10**7, 20, 4, 0.1
    about = facts("float64", rows=n)
    parameters = {"moment": k, "moment_bound": r}
    job = spec("accelerated-clipped-sgd", parameters=parameters, set={"radius": 5.0})
    rho = target(job, about).rho
    curved, epsilon = 0.25 * 5 / r, sqrt(2 * rho)
    private = curved ** (2 * k / (5 * k - 1)) * (epsilon * n / sqrt(d)) ** (
        (2 * k - 2) / (5 * k - 1)
    )
    steps = ceil(min(private, sqrt(curved) * n**0.25))
    made = plan(job, about)
    assert made.schedule.steps == steps
    assert made.lattice.clip == pytest.approx(r * (epsilon * n / sqrt(d * steps)) ** (1 / k))


def test_theorem_38():
    n, d, k, r = 10**6, 20, 2, 1.0
    about = facts("float64", rows=n)
    made = plan(spec("proximal-sgd", parameters={"moment_bound": r}), about)
    rho, steps = target(made.spec, about).rho, made.schedule.steps
    z = sqrt(2 * rho) * n / (sqrt(d) * steps)
    C = r * z ** (1 / k)
    assert made.lattice.clip == pytest.approx(C)
    assert made.schedule.step_size == pytest.approx(1 / (2 * 0.35))
    error = (r**k / C ** (k - 1)) ** 2 + 2 * d * C**2 * steps**2 / (rho * n**2) + steps / n
    assert steps == 2 * ceil(3.5 * log(r * 10 * 0.1 / error))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_theorem_10_is_the_sum_of_the_schedules_own_terms(power):
    n, d, r, k = 2**14, 20, 1.0, 2
    about = facts("float64", rows=n)
    parameters = {"moment": k, "moment_bound": r, "power": power, "steps": 64}
    made = plan(spec("localized-subgradient", loss="logistic", parameters=parameters), about)
    rho, phases = target(made.spec, about).rho, made.schedule.phases
    D, error, distance = 10.0, 0.0, 10.0**2
    for i, phase in enumerate(phases):
        rows, pull = phase.stop - phase.start, phase.pull
        z = sqrt(2 * rho) * rows / sqrt(d * log(n))
        assert phase.lattice.clip == pytest.approx(r * sqrt(z))
        assert pull == pytest.approx(phases[0].pull * (4 * 2**power) ** i, rel=1e-4)
        assert phase.steps == max(16, ceil(64 / 2 ** (power * i)))
        assert phase.step_size <= made.schedule.step_max * (1 + 1e-5)
        bias = r**k / phase.lattice.clip
        noise = d * phase.lattice.variance / phase.batch**2
        noise += r**2 / phase.batch * (rows - phase.batch) / max(1, rows - 1)
        far = min(2 * D, r / pull)
        left = far**2 * (1 + phase.step_size * pull) ** (-phase.steps / 2)
        left += 2 * phase.step_size * noise / pull + (bias / pull) ** 2
        error += pull / 2 * distance + 4 * r**2 / (pull * rows)
        distance = min(4 * D**2, left)
    error += r * sqrt(distance)
    assert made.prediction.excess_risk == pytest.approx(error, rel=1e-4)
    assert made.gradients == sum(f.steps * f.batch for f in phases)


def test_theorem_18_a_ridge_takes_the_place_of_the_pull():
    """Faster than 1/sqrt(n)."""
    job = spec("localized-subgradient", 8.0, loss="logistic", ridge=0.5, set={"radius": 1.0})
    plans = [plan(job, facts(rows=2**k, columns=5, epsilon=8.0)) for k in (10, 12, 14, 16)]
    bounds = [made.prediction.excess_risk for made in plans]
    assert all(before / later > 4**0.65 for before, later in pairwise(bounds))


@algorithms
def test_a_plan_beyond_the_operators_cap_is_refused_with_its_count(algorithm):
    job, about = spec(algorithm, parameters={"clip": 1.0}), facts("float64", rows=5000)
    made = plan_named(job, about, 10**12)
    assert made == plan_named(job, about, made.gradients)
    with pytest.raises(PlanRefused, match=f"evaluates {made.gradients} per-record gradients"):
        plan_named(job, about, made.gradients - 1)
    lower = spec(algorithm, parameters={"clip": 1.0, "steps": 3})
    assert plan_named(lower, about, 3 * 5000).gradients <= 3 * 5000


def test_bias_and_clip_of_lemma_8():
    known = Tails(r=2.0, k=3.0, asked=None, bound=inf, private=False)
    assert known.clip(8.0) == pytest.approx(4.0)
    assert known.bias(4.0) == pytest.approx(2.0**3 / (2 * 4.0**2))
    assert Tails(2.0, inf, None, 2.0, private=False).bias(1.0) == 0.0
