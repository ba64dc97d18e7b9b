"""Calibration of noisy sums over secret batches.

A step draws `batch` of `population` rows and releases their noisy sum. Its price at a fixed order is
that of `SampledGaussian`, which grows with z = sensitivity/noise scale, so the largest z that fits is
found by bisection, in floats. The lattice made from it is then priced exactly, and made coarser by a
step until that price fits. The exact price alone decides. Laplace noise is priced by `Subsample`.

When does drawing pay? To first order a sampled Gaussian costs gamma^2 of what the same noise costs on
all rows, gamma = batch/population: in the mean over the batch that is the noise of a step over all
rows. The draw adds its own variance, and where that is little beside the noise's, fewer rows do as
well.
"""

from collections.abc import Callable
from functools import lru_cache
from math import expm1, inf, log1p, sqrt
from typing import NamedTuple

from pydantic import Field, PositiveInt

from service.errors import PlanRefused
from service.planning.amplification import LOG_DECIMAL_MAX, ORDER_MAX, at_a_glance, roughly
from service.planning.conversion import UNITS, renyi_budget
from service.planning.lattice import (
    CONTRIBUTION_UNITS,
    DERIVATIVE_UNITS,
    SumLattice,
    Target,
    calibrate,
    sum_lattice,
)
from service.planning.price import fits_own_target, own_orders, price_units
from service.planning.problem import Problem
from service.planning.releases import (
    Gaussian,
    Laplace,
    Release,
    Repeat,
    SampledGaussian,
    Subsample,
)
from service.planning.shared.pace import Pace
from service.planning.spec import ClipOrPrivate, Facts

_DIGITS, _FEW_DIGITS = 20, 5  # of a ratio's square, binary; and those by which schedules compare
_STRIDE = 5  # of the orders by which a job may do, every so many are looked at first
_FEW, _FAR_MORE = 512, 2.5  # steps; times the bound on the error
_HARDLY_MORE = 1.1  # times the variance or the bound on the error, for far less time
_HARDLY_LESS = 0.9  # times the seconds, which are not worth a drawn batch's variance


class Batches(ClipOrPrivate):
    """Parameters of algorithms whose steps may each read a secret batch of the rows."""

    batch: PositiveInt | None = Field(
        default=None,
        le=2**30,
        description="Rows drawn for a step; by default few where that hardly adds to the noise.",
    )

    def batch_of(self, rows: int) -> int | None:
        """The batch that is asked for, if one is and there are so many rows."""
        if self.batch is not None and self.batch > rows:
            raise PlanRefused(
                f"a batch of {self.batch} rows is more than the dataset's {rows}; "
                f"set parameters.batch to at most {rows}."
            )
        return self.batch


def sampled(release: Gaussian | Laplace, batch: int, population: int, times: int) -> Release:
    """`times` such releases, each over a fresh secret batch; over all rows nothing is drawn."""
    if batch == population:
        return Repeat(release=release, times=times)
    drawn = (
        SampledGaussian(
            sensitivity=release.sensitivity,
            sigma=release.sigma,
            batch=batch,
            population=population,
        )
        if isinstance(release, Gaussian)
        else Subsample(release=release, batch=batch, population=population)
    )
    return Repeat(release=drawn, times=times)


def calibrate_sampled(
    goal: Target,
    facts: Facts,
    p: Problem,
    clip_bound: float,
    batch: int,
    population: int,
    times: int,
) -> SumLattice:
    """The lattice on which `times` noisy sums over fresh batches cost at most what the job asks."""
    plain = calibrate(goal, facts, p, clip_bound, times)
    if batch == population:
        return plain
    ratio = largest_ratio(goal, batch, population, times)
    wanted = CONTRIBUTION_UNITS
    if plain.derivative_units is not None:
        wanted = DERIVATIVE_UNITS * (plain.contribution_units // plain.derivative_units)
    wanted, bits = min(wanted, p.units_max), 1
    while int(ratio * 2.0 ** (bits + 1)) // 2 <= wanted:
        bits += 1
    largest = int(ratio * 2.0**bits) // 2
    for digit in range(24, 0, -1):
        lattice = sum_lattice(goal, facts, p, clip_bound, bits, largest)
        if _fits(sampled(lattice.release(), batch, population, times), goal):
            return lattice
        largest = min(lattice.contribution_units - 1, largest - (largest >> digit))
    return plain  # without credit for the draw


def _fits(release: Release, goal: Target) -> bool:
    """Whether it costs no more than `goal` has. All of a job may satisfy its (epsilon, delta) at any
    order; parts must fit together at one, so they go by that where it holds the most."""
    if not goal.whole:
        return goal.cost(release) <= goal.units
    told = all(price_units(release, each) <= goal.units for each in goal.told)
    return told and fits_own_target(release, goal.epsilon, goal.delta)


def noise_variance(
    goal: Target, plain: SumLattice, batch: int, population: int, times: int
) -> float:
    """Of the noise in one coordinate of a batch's sum, roughly: what schedules are chosen by. `plain`
    is any lattice of the job, for its clip."""
    ratio = largest_ratio(goal, batch, population, times, glance=True)
    return (2 * plain.clip / ratio) ** 2 * (1 if plain.noise == "gaussian" else 2)


def drawing_variance(G: float, batch: int, population: int) -> float:
    """Of the mean of a batch drawn without replacement, for vectors of norm at most G."""
    return G**2 / batch * (population - batch) / max(1, population - 1)


def best_halvings(
    goal: Target, plain: SumLattice, d: float, G: float, rows: int, times: int, pace: Pace
) -> int:
    """How often to halve `rows`: until there is time for `times` steps, and then where they take the
    least, while the variance of a batch's mean stays hardly more."""
    best, least, shortest = rows.bit_length() - 1, inf, inf
    for halvings in range(rows.bit_length()):
        batch = rows >> halvings
        if not pace.affords(times, batch, rows):
            continue
        noise = noise_variance(goal, plain, batch, rows, times)
        variance = drawing_variance(G, batch, rows) + d * noise / batch**2
        if variance > _HARDLY_MORE * least:
            break
        seconds, least = pace.seconds(times, batch, rows), min(least, variance)
        if seconds < _HARDLY_LESS * shortest:
            best, shortest = halvings, seconds
    return best


class Candidate(NamedTuple):
    """A schedule, and the bound on its error."""

    bound: float
    seconds: float
    steps: int
    batch: int
    smoothness: float
    halvings: int = 0
    pull: float = 0.0
    phases: int = 1


def quickest(candidates: list[Candidate], few_do: bool = True) -> Candidate:
    """Of those whose bound is hardly more than the least, the one that takes the least time; but few
    steps where their bound is not far more: it is the worst loss's, and few have done as well."""
    least = min(one.bound for one in candidates)
    near = [one for one in candidates if one.bound <= _HARDLY_MORE * least]
    few = [one for one in candidates if one.steps <= _FEW and one.bound <= _FAR_MORE * least]
    if few_do and few and all(one.steps > _FEW for one in near):
        return min(few)
    return min(near, key=lambda one: (one.seconds, one))


def largest_ratio(
    goal: Target, batch: int, population: int, times: int, glance: bool = False
) -> float:
    """The largest z at which `times` sampled releases fit, and one a tenth off or so at a glance."""
    each, gamma = goal.units / UNITS / times, batch / population
    if goal.delta == 0:
        return log1p(expm1(each) / gamma) if batch < population else each
    if batch == population or not goal.credits_draws:
        return sqrt(2 * each)  # what costs this much without being drawn
    binding = goal.told if goal.whole else goal.terms
    told = [(one.order, each * one.order) for one in binding if one.order is not None]
    own = [(order, budget / times) for order, budget in _budgets(goal.epsilon, goal.delta)]
    some = list(range(0, len(own), _STRIDE)) if goal.whole else []

    def ratio(place: int) -> float:
        """Places are on a grid on which each doubling of z^2 has 2^_DIGITS, exact in floats."""
        doublings, rest = divmod(place, 1 << _DIGITS)
        return sqrt(2 * each * (1 + rest / (1 << _DIGITS)) * 2.0**doublings)

    def fits(place: int) -> bool:
        z = ratio(place)
        return all(within(z, *one) for one in told) and (
            not some or any(within(z, *own[i]) for i in some)
        )

    def within(z: float, order: int, divergence: float) -> bool:
        """Beyond the first of these the exact price claims nothing."""
        if order > ORDER_MAX or z * z / 2 >= LOG_DECIMAL_MAX / order**2:
            return False
        limit = (order - 1) * divergence
        cost = at_a_glance(z, gamma, order) if quick else roughly(z, gamma, order, limit)
        return cost <= limit

    quick = True
    about = _last(fits, 0, 1 << _DIGITS, 1 << (_DIGITS - _FEW_DIGITS))
    if glance:
        return ratio(about)
    near = next((i for i in some if within(ratio(about), *own[i])), 0)
    quick, hop = False, 1 << (_DIGITS - _FEW_DIGITS)
    place = _last(fits, about, hop, 1) if not some else 0
    for i in sorted(range(len(own)), key=lambda i: abs(i - near))[: 2 * _STRIDE] if some else ():
        some = [i]
        if fits(place + 1):
            place = _last(fits, place or about, hop if not place else 1, 1)
    return ratio(place)


def _last(fits: Callable[[int], bool], guess: int, hop: int, unit: int) -> int:
    """The last place that fits, of those `unit` apart, looked for from `guess` on: all up to there
    fit, and 0 is as good as one that does."""
    low = high = guess
    if fits(guess):
        while fits(high := low + hop):
            low, hop = high, 2 * hop
    else:
        while low > 0 and not fits(low := max(0, high - hop)):
            high, hop = low, 2 * hop
    while high - low > unit:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@lru_cache(maxsize=1024)
def _budgets(epsilon: float, delta: float) -> tuple[tuple[int, float], ...]:
    """The orders by which a job may satisfy its (epsilon, delta), and the divergence it may have."""
    budgets = ((order, renyi_budget(epsilon, delta, order)) for order in own_orders(epsilon, delta))
    return tuple((order, float(budget)) for order, budget in budgets)
