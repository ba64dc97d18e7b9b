"""Calibration of noisy sums over secret batches.

A step draws `batch` of `population` rows and releases their noisy sum. Its price at a fixed order is
that of `Subsample`, which grows with z = sensitivity/noise scale, so the largest z that fits is found
by bisection: in floats, with the same sum written in logarithms. The lattice made from it is then
priced exactly, and made coarser by a step until that price fits. The exact price alone decides.

When does drawing pay? To first order a sampled Gaussian costs 4 gamma^2 of what the same noise costs
on all rows, gamma = batch/population. In the mean over the batch that is twice the noise of a step
over all rows (the same noise, for Laplace), and the draw adds its own. So where all rows can be read
in every step, that is best; batches buy more steps for the same number of gradients.
"""

from functools import lru_cache
from math import exp, expm1, inf, lgamma, log, log1p, sqrt

from service.planning.conversion import UNITS, best_order
from service.planning.lattice import (
    CONTRIBUTION_UNITS,
    DERIVATIVE_UNITS,
    SumLattice,
    Target,
    calibrate,
    sum_lattice,
)
from service.planning.losses import Problem
from service.planning.price import fits_own_target, price_units
from service.planning.releases import (
    LOG_DECIMAL_MAX,
    Gaussian,
    Pure,
    Release,
    Repeat,
    Subsample,
)
from service.planning.spec import Facts

PASSES_MAX = 512  # gradients that a default schedule evaluates, per row
_AMPLIFIED_ORDER_MAX = 4096  # as in releases.py: beyond, sampling is not credited
_ROUGHLY = 5  # binary digits with which schedules are compared
_NEGLIGIBLE = 45.0  # e^-45 of a sum of floats is none of it


def sampled(release: Gaussian | Pure, batch: int, population: int, times: int) -> Release:
    """`times` such releases, each over a fresh secret batch; over all rows nothing is drawn."""
    if batch == population:
        return Repeat(release=release, times=times)
    drawn = Subsample(release=release, batch=batch, population=population)
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
    ratio = largest_ratio(goal, facts, batch, population, times)
    wanted = CONTRIBUTION_UNITS
    if plain.derivative_units is not None:
        wanted = DERIVATIVE_UNITS * (plain.contribution_units // plain.derivative_units)
    bits = 1
    while int(ratio * 2.0 ** (bits + 1)) // 2 <= wanted:
        bits += 1
    largest = int(ratio * 2.0**bits) // 2
    for digit in range(24, 0, -1):
        lattice = sum_lattice(goal, facts, p, clip_bound, bits, largest)
        if _fits(sampled(lattice.release(), batch, population, times), goal, facts):
            return lattice
        largest = min(lattice.contribution_units - 1, largest - (largest >> digit))
    return plain  # without credit for the draw


def _fits(release: Release, goal: Target, facts: Facts) -> bool:
    same_currency = (goal.delta > 0) == (facts.account.kind == "renyi")
    if same_currency and price_units(release, facts.account) > goal.units:
        return False
    return fits_own_target(release, goal.epsilon, goal.delta)


def noise_variance(
    goal: Target, facts: Facts, plain: SumLattice, batch: int, population: int, times: int
) -> float:
    """Of the noise in one coordinate of a batch's sum, roughly: what schedules are chosen by. `plain`
    is any lattice of the job, for its clip."""
    ratio = largest_ratio(goal, facts, batch, population, times, digits=_ROUGHLY)
    return (2 * plain.clip / ratio) ** 2 * (1 if plain.noise == "gaussian" else 2)


def drawing_variance(G: float, batch: int, population: int) -> float:
    """Of the mean of a batch drawn without replacement, for vectors of norm at most G."""
    return G**2 / batch * (population - batch) / max(1, population - 1)


def best_halvings(
    goal: Target, facts: Facts, plain: SumLattice, d: int, G: float, rows: int, times: int
) -> int:
    """How often to halve `rows` for a batch with which `times` steps stay within PASSES_MAX passes and
    a step's mean has the smallest variance."""
    if times <= PASSES_MAX:
        return 0
    best, least = rows.bit_length() - 1, inf
    for halvings in range(rows.bit_length()):
        batch = rows >> halvings
        if times * batch > PASSES_MAX * rows:
            continue
        drawing = drawing_variance(G, batch, rows)
        if drawing > least:
            break
        noise = noise_variance(goal, facts, plain, batch, rows, times)
        variance = drawing + d * noise / batch**2
        if variance < least:
            best, least = halvings, variance
    return best


def largest_ratio(
    goal: Target, facts: Facts, batch: int, population: int, times: int, digits: int = 32
) -> float:
    """The largest z at which `times` sampled releases fit, its square to so many binary digits."""
    each, gamma = goal.units / UNITS / times, batch / population
    if goal.delta == 0:
        return log1p(expm1(each) / gamma) if batch < population else each
    orders = {best_order(goal.epsilon, goal.delta), facts.account.order or 2}
    most = LOG_DECIMAL_MAX / max(orders) ** 2  # beyond it the exact price claims nothing

    def fits(rho: float) -> bool:
        return rho < most and all(
            _stays_within(order * each, order, gamma, rho) for order in orders
        )

    if batch == population or max(orders) > _AMPLIFIED_ORDER_MAX or not fits(each):
        return sqrt(2 * each)  # what costs this much without being drawn
    doublings, hop = 0, 1
    while fits(each * 2.0 ** (doublings + hop)):
        doublings, hop = doublings + hop, 2 * hop
    while hop > 1:
        hop //= 2
        if fits(each * 2.0 ** (doublings + hop)):
            doublings += hop
    low = width = each * 2.0**doublings
    for _ in range(digits):
        width /= 2
        if fits(low + width):
            low += width
    return sqrt(2 * low)


def _stays_within(budget: float, order: int, gamma: float, rho: float) -> bool:
    """Whether the sum in `Subsample`, for an inner Gaussian of this rho, is at most `budget`.

    The logarithm of term j grows by g(j) = log(gamma (order - j)/(j + 1)) + 2 j rho from one to the
    next, which falls, rises and falls again. Once terms fall, are negligible and the peak of g is not
    positive, none of those to come matters.
    """
    choices, log_gamma = _log_choices(order), log(gamma)
    room = (order - 1) * budget
    room = log(expm1(room)) if room < _NEGLIGIBLE else room

    def term(j: int) -> float:
        return j * log_gamma + choices[j] + j * (j - 1) * rho + log(2)

    first = log(2 * expm1(2 * rho)) if 2 * rho < log(2) else 2 * rho
    logs = [2 * log_gamma + choices[2] + log(2) + first]
    if max(logs[0], term(min(order, 3)), term(order)) > room and order > 2:
        return False
    curve = (order + 1) ** 2 - 2 * (order + 1) / rho
    peak = (order - 1 + sqrt(curve)) / 2 if curve > 0 else 0.0
    climbs = curve > 0 and log_gamma + log((order - peak) / (peak + 1)) + 2 * peak * rho > 0
    for j in range(3, order + 1):
        logs.append(term(j))
        if not climbs and logs[-1] < logs[-2] and logs[-1] < logs[0] - _NEGLIGIBLE:
            break
    top = max(logs)
    return top + log(sum(exp(each - top) for each in logs)) <= room


@lru_cache(maxsize=64)
def _log_choices(order: int) -> list[float]:
    of_all = lgamma(order + 1)
    return [of_all - lgamma(j + 1) - lgamma(order - j + 1) for j in range(order + 1)]
