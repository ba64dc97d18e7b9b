"""Layouts of online-to-non-convex conversion: T, N, M and batches, and the bound that each obeys.

The page of the conversion in docs/proofs has the letters and the bound. Nothing here is exact: what a
layout costs is calibrated once it is chosen."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt

from service.planning.shared.pace import Pace
from service.planning.shared.prefixes import Mechanism, burden
from service.planning.shared.subsampling import drawing_variance

STEPS_MAX = 2**13  # by default
_LOUD = 2.0  # of a batch's noise, in sensitivities, at least: then drawing saves what it should


@dataclass(frozen=True)
class Terms:
    """What the bound depends on besides T, N and M."""

    n: int
    d: int
    alpha: float
    gap: float
    first: float  # C1
    turn: float  # C2 per unit of D
    most: float  # what C2 never exceeds
    spread: float  # variance of the noise over that of Gaussian noise for one release
    rho: float
    norm: str
    mechanism: Mechanism
    passes: bool
    batch: int | None  # of many passes, if one is asked for
    draws: bool  # whether drawing pays
    pace: Pace


@dataclass(frozen=True)
class Layout:
    """T, N, M and the batches; and what follows from them."""

    steps: int
    period: int
    block: int
    first_batch: int
    batch: int
    D: float
    difference: float  # C2
    sampling: float  # the variance of an estimate but for its noise
    bound: float

    @property
    def periods(self) -> int:
        return self.steps // self.period

    @property
    def rows_read(self) -> int:
        return self.periods * (2 * self.batch * (self.period - 1) + self.first_batch)


@dataclass(frozen=True)
class Asked:
    """What an analyst sets of a layout."""

    steps: int | None
    period: int | None
    block: int | None


def layouts(terms: Terms, asked: Asked) -> Iterator[Layout]:
    cap = STEPS_MAX if terms.passes else min(STEPS_MAX, terms.n)
    for steps in [asked.steps] if asked.steps else _powers(cap):
        for period in [asked.period] if asked.period else _powers(steps):
            whole = steps - steps % period  # a whole number of periods
            if whole == 0:
                continue
            for batches in _batches(terms, asked, whole, period):
                for block in [asked.block] if asked.block else _powers(whole):
                    if block <= whole:
                        found = _layout(terms, whole, period, block, batches)
                        if found is not None:
                            yield found


def _batches(terms: Terms, asked: Asked, steps: int, period: int) -> Iterator[tuple[int, int]]:
    """Of many passes: rows of the first step of a period, and of a later one, as there is time for
    unless steps or rows were asked for."""
    n = terms.n
    if not terms.passes:
        yield n, n
        return
    halvings = range(n.bit_length() if terms.draws else 1)
    for batch in [terms.batch] if terms.batch else [n >> h for h in halvings]:
        for first in {n, batch} if period > 1 else {batch}:
            mean = (first + 2 * batch * (period - 1)) // period
            if asked.steps or terms.pace.affords(steps, min(mean, n), n):
                yield first, batch


def _layout(
    terms: Terms, steps: int, period: int, block: int, batches: tuple[int, int]
) -> Layout | None:
    D = terms.alpha / block
    second = min(terms.turn * D, terms.most)
    first_batch, batch = batches
    if terms.passes:
        share = first_share(terms.first, second, period, terms.norm)
        times = steps // period
        power = 1 if terms.norm == "l2" else 2  # of how many there are: epsilons add, not squares
        noise = _noise(terms, terms.first, first_batch, (times / share) ** power)
        if period > 1:
            rest = (times * (period - 1) / (1 - share)) ** power
            noise += _noise(terms, second, batch, rest) * period / 2
        sampling = drawing_variance(terms.first, first_batch, terms.n)
        sampling += drawing_variance(second, batch, terms.n) * (period - 1)
    else:
        rows = terms.n * period // steps
        batch = max(1, int(rows / (terms.first / second + period - 1)))
        first_batch = rows - (period - 1) * batch
        if first_batch < 1:
            return None
        widest = max(terms.first / first_batch, second / batch if period > 1 else 0.0)
        noise = (2 * widest * burden(terms.mechanism, terms.norm, period)) ** 2
        sampling = terms.first**2 / first_batch + second**2 / batch * (period - 1)
    G0 = sqrt(terms.d * terms.spread * noise / (2 * terms.rho) + sampling)
    bound = bound_of(terms, steps, block, D, G0)
    return Layout(steps, period, block, first_batch, batch, D, second, sampling, bound)


def _noise(terms: Terms, clip: float, batch: int, times: float) -> float:
    """Of one mean, times 2 rho: that of all rows, but no less than where drawing saves all it can."""
    of_all = (2 * clip / terms.n) ** 2 * times
    least = 0.0 if batch == terms.n else 2 * terms.rho * (_LOUD * 2 * clip / batch) ** 2
    return max(of_all, least)


def bound_of(terms: Terms, steps: int, block: int, D: float, G0: float) -> float:
    bound = terms.gap / (D * steps) + 1.5 * sqrt(terms.first**2 + G0**2) / sqrt(block) + G0
    if terms.passes:  # from these rows to all that could have been drawn
        cells = max(2.0, 3 * D * steps * terms.turn / 2 * sqrt(terms.n) / terms.first)
        bound += terms.first * (3 + sqrt(2 * terms.d * log(cells))) / sqrt(terms.n)
    return bound


def first_share(first: float, second: float, period: int, norm: str) -> float:
    """Of the budget of many passes, for whole gradients: where Delta_1^2/rho_1 + (N/2) Delta_2^2/rho_2
    is smallest, rho being each release's; for Laplace noise the same with the squares of epsilons."""
    if period == 1:
        return 1.0
    if norm == "l1":
        ratio = float((2 / period * (first / second) ** 2) ** (1 / 3))
    else:
        ratio = sqrt(2.0) * first / second
    return ratio / (ratio + period - 1)


def _powers(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length())]
