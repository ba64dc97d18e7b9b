"""How much releases leak together, from below: the exact loss of the worst pairs that we can name.

Prices are upper bounds. This is the other side, made without any of their theorems: for each mechanism
a pair of output distributions (P, Q) that neighbours can bring about (pairs.py), their composition by
privacy-loss distributions, and from it delta(epsilon) and epsilon(delta). Whatever a ledger claims of
the same releases must not be less.

**A lower bound.** delta = E_P (1 - e^(epsilon - loss))_+ grows with the loss, and losses are rounded
down after outputs were merged; nothing else is approximate but by floats. Tests find less than 1 % of
epsilon lost. Equal Gaussians are merged to one, equal choices to a binomial, exactly.

**Small deltas.** The FFT errs by 1e-16 of the largest probability, so the losses are tilted by
e^(theta loss) with the theta at which epsilon is typical; the error is then relative to
e^(K(theta) - theta epsilon), which is about delta, and 1e-12 of that is subtracted. Deltas down to
1e-15 are as good as others; far below, the normal's tails are merged to a cell, which only lowers
results.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, exp, floor, log, log2, sqrt
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.special import gammaln, logsumexp

from tests.pairs import NEGLIGIBLE, PLACES, SPLITS, Floats, Pair, rounded_down

__all__ = ["Composition", "Pair", "compose", "worst"]

_POINTS, _POINTS_MAX = 1 << 13, 1 << 19
_THETAS = np.logspace(-3, 5, 49)


def compose(pairs: Iterable[tuple[Pair, int]]) -> "Composition":
    """Each pair so many times, in any order, chosen adaptively."""
    counts: Counter[Pair] = Counter()
    squares = 0.0
    for pair, count in pairs:
        if pair.kind == "gaussian" and pair.share == 1:
            squares += count * pair.size**2
        elif count > 0 and pair.size > 0:
            counts[pair] += count
    if squares > 0:
        counts[Pair.gaussian(sqrt(squares))] += 1
    return Composition(tuple(counts.items()))


@dataclass(frozen=True)
class Composition:
    pairs: tuple[tuple[Pair, int], ...]

    @cached_property
    def _ways(self) -> list["_Way"]:
        """One for each split and place that pairs leave open."""
        open_ = [pair.options() for pair, _ in self.pairs]
        splits = SPLITS if any(one for one, _ in open_) else SPLITS[:1]
        places = PLACES if any(two for _, two in open_) else PLACES[:1]
        return [
            _Way(tuple((pair.resolved(split, place), n) for pair, n in self.pairs))
            for split, place in product(splits, places)
        ]

    def delta(self, epsilon: float) -> float:
        """A lower bound on the hockey-stick divergence at e^epsilon, nearly attained."""
        if not self.pairs:
            return 0.0
        way, theta, _ = self._worst(lambda bounds: bounds - _THETAS * epsilon)
        return way.tilted(theta, epsilon).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """A lower bound on the least epsilon at which the divergence is `delta`."""
        if not self.pairs:
            return 0.0
        if delta == 0:
            return sum(n * pair.pure() for pair, n in self.pairs)
        way, theta, most = self._worst(lambda bounds: (bounds - log(delta)) / _THETAS)
        return way.tilted(theta, most).epsilon(delta)

    def roughly(self, delta: float) -> float:
        """About epsilon(delta), by moments: fast, and no lower bound."""
        return self._worst(lambda bounds: (bounds - log(delta)) / _THETAS)[2]

    def _worst(self, bound: Callable[[Floats], Floats]) -> tuple["_Way", float, float]:
        """The way whose bound by moments is largest, the tilt at which it is found, and the bound."""
        bounds = [bound(way.moments) for way in self._ways]
        most = max(range(len(bounds)), key=lambda i: bounds[i].min())
        best = int(bounds[most].argmin())
        return self._ways[most], float(_THETAS[best]), float(bounds[most][best])


@dataclass(frozen=True)
class _Way:
    """A composition with nothing left open."""

    pairs: tuple[tuple[Pair, int], ...]

    def cumulant(self, thetas: Floats) -> Floats:
        """K(theta) = log E_P e^(theta loss)."""
        total = np.zeros(len(thetas))
        for pair, n in self.pairs:
            total += n * _cumulant(pair, tuple(thetas))
        return total

    @cached_property
    def moments(self) -> Floats:
        """K + log max over x of (1 - e^-x) e^(-theta x): delta <= e^(that - theta epsilon)."""
        t = _THETAS
        return self.cumulant(t) - np.log1p(t) - t * np.log1p(1 / t)

    def _variance(self, theta: float) -> float:
        total = 0.0
        for pair, n in self.pairs:
            losses, p = pair.sketch
            weights = np.exp(p + theta * losses - (p + theta * losses).max())
            mean = weights @ losses / weights.sum()
            total += n * float(weights @ (losses - mean) ** 2 / weights.sum())
        return total

    def _window(self, theta: float, least: float) -> tuple[float, float]:
        """Outside of which Chernoff's bound leaves e^-30 of the tilted distribution."""
        away = np.logspace(-2, 3, 31) / max(sqrt(self._variance(theta)), least)
        here = self.cumulant(np.array([theta]))
        up = float(((self.cumulant(theta + away) - here + NEGLIGIBLE) / away).min())
        down = float(((self.cumulant(theta - away) - here + NEGLIGIBLE) / away).min())
        middle, half = (up - down) / 2, max(up + down, least) / 2
        return middle - half, middle + half

    def tilted(self, theta: float, epsilon: float) -> "_Tilted":
        """On a grid so fine that it loses less than a hundredth of `epsilon`, or the finest."""
        least = 0.25 * abs(epsilon) + 1e-9
        theta = min(theta, _POINTS / least)  # or a step of the grid would be too steep
        low, high = self._window(theta, least)
        whole, points = float(self.cumulant(np.array([theta]))[0]), _POINTS
        while True:
            found = self._on_grid(theta, low, high, points)
            lost = (whole - found.norm) / (4e-3 * theta * abs(epsilon) + 1e-12)
            if lost <= 1 or points >= _POINTS_MAX:
                return found
            points *= 2 ** min(4, ceil(log2(lost) / 2 + 0.1))  # what is lost goes as h^2

    def _on_grid(self, theta: float, low: float, high: float, points: int) -> "_Tilted":
        h = (high - low) / (points - 8)
        spans = [(pair.span() or 0.0, n) for pair, n in self.pairs]
        span = max(spans, key=lambda each: each[0] ** 2 * each[1])[0]
        if span > 0:  # a whole number of steps between the atoms that matter most
            h = span / ceil(span / h)
            points = 1 << ceil(log2((high - low) / h + 8))
        transform, norm, offset, total = 1.0, 0.0, 0.0, 0
        for pair, n in self.pairs:
            if pair.kind == "choice":
                indices, p, start = rounded_down(*_binomial(pair, n), h, theta)
                times = 1
            else:
                indices, p, start = pair.on_grid(h, theta)
                times = n
            weights = p + theta * (start + h * indices)
            scale = float(logsumexp(weights))
            where = (indices % points).astype(np.int64)
            mass = np.bincount(where, np.exp(weights - scale), points)
            transform = transform * np.fft.rfft(mass) ** times
            norm, offset, total = norm + times * scale, offset + times * start, total + times
        mass = np.fft.irfft(transform, points)
        first = floor((low - offset) / h)
        return _Tilted(
            theta,
            norm,
            losses=offset + h * (first + np.arange(points)),
            mass=np.roll(mass, -(first % points)),
            error=1e-12 + 1e-15 * total,
        )


@dataclass(frozen=True)
class _Tilted:
    """P(loss) = mass e^(norm - theta loss), on a grid."""

    theta: float
    norm: float
    losses: Floats
    mass: Floats
    error: float  # of all the mass together, by rounding

    def delta(self, epsilon: float) -> float:
        first, last = np.searchsorted(self.losses, [epsilon, epsilon + 60 / self.theta])
        above = self.losses[first:last] - epsilon
        found = float(self.mass[first:last] @ (-np.expm1(-above) * np.exp(-self.theta * above)))
        return self._less_the_error(np.array([found]), np.array([epsilon]))[0]

    def epsilon(self, delta: float) -> float:
        """Behind the last grid point that has more, or before the first: there by halving."""
        h = self.losses[1] - self.losses[0]

        def behind(theta: float) -> Floats:
            """The sum over j >= k of mass_j e^(-theta (loss_j - loss_k)), for all k."""
            return lfilter([1.0], [1.0, -exp(-theta * h)], self.mass[::-1])[::-1]

        found = behind(self.theta) - behind(self.theta + 1)
        reached = np.flatnonzero(self._less_the_error(found, self.losses) > delta)
        low, high = float(self.losses[0]) - 20 / self.theta, float(self.losses[0])
        if reached.size > 0:
            low, high = float(self.losses[reached[-1]]), float(self.losses[reached[-1]] + h)
        if low < 0 and self.delta(0.0) <= delta:
            return 0.0
        low = max(low, 0.0)
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low if self.delta(low) > delta else 0.0

    def _less_the_error(self, found: Floats, epsilons: Floats) -> Floats:
        """The deltas of these sums, as the tilt is taken back."""
        known = np.log(np.maximum(found - self.error, 1e-300)) + self.norm - self.theta * epsilons
        return np.where(found > self.error, np.exp(np.clip(known, -700, 0)), 0.0)


@lru_cache(maxsize=4096)
def _cumulant(pair: Pair, thetas: tuple[float, ...]) -> Floats:
    losses, p = pair.sketch
    exponents = p + np.outer(thetas, losses)
    top = exponents.max(axis=1)
    return top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))


def _binomial(pair: Pair, n: int) -> tuple[Floats, Floats]:
    """Losses and log P of n choices alike."""
    (a, b), (log_a, log_b) = pair.sketch
    k = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return k * a + (n - k) * b, ways + k * log_a + (n - k) * log_b


# --- releases -------------------------------------------------------------------------------------


_SINGLE: dict[str, Callable[[Any], Pair]] = {
    "gaussian": lambda r: Pair.gaussian(r.sensitivity / r.sigma),
    **dict.fromkeys(("pure", "laplace"), lambda r: Pair.laplace(r.sensitivity / r.scale)),
    **dict.fromkeys(("exponential", "choice"), lambda r: Pair.exponential(r.sensitivity / r.scale)),
    # a slope at its bound that does not bend, which an objective may have
    "perturbed_minimum": lambda r: getattr(Pair, r.noise)(r.sensitivity / r.scale),
    "sampled_gaussian": lambda r: Pair.drawn_gaussian(
        r.sensitivity / r.sigma, r.batch, r.population
    ),
}


def worst(release: Any, order: int | None = None, delta: float = 1e-6) -> list[tuple[Pair, int]]:
    """The worst pairs of a release of service.planning.releases, by its kind.

    A release does not say which rows are whose: the record is taken to be where each costs most. Of
    disjoint parts that is the one of about the largest epsilon at `delta`, or of the largest
    divergence at `order` if one is given.
    """

    def walk(inner: Any) -> list[tuple[Pair, int]]:
        return worst(inner, order, delta)

    kind = release.kind
    if kind in _SINGLE:
        pairs = [(_SINGLE[kind](release), 1)]
    elif kind == "sequence":
        pairs = _added([pair for part in release.parts for pair in walk(part)])
    elif kind == "repeat":
        pairs = [(pair, n * release.times) for pair, n in walk(release.release)]
    elif kind == "disjoint" and order is not None:
        pairs = walk(max(release.parts, key=lambda part: part.renyi(order)))
    elif kind == "disjoint":
        pairs = _costliest([walk(part) for part in release.parts], delta)
    elif kind in ("prefixes", "laplace_prefixes"):
        pairs = _prefixes(release)
    elif kind == "subsample":
        pairs = _drawn(walk(release.release), release, delta)
    elif kind == "recursive":
        pairs = _running_choices(release)
    else:
        raise ValueError(f"no worst pair is known of a release of kind {kind}")
    return pairs


def _added(pairs: Sequence[tuple[Pair, int]]) -> list[tuple[Pair, int]]:
    total: Counter[Pair] = Counter()
    for pair, n in pairs:
        total[pair] += n
    return list(total.items())


def _costliest(parts: list[list[tuple[Pair, int]]], delta: float) -> list[tuple[Pair, int]]:
    distinct = [part for i, part in enumerate(parts) if part not in parts[:i]]
    if len(distinct) == 1:
        return distinct[0]
    return max(distinct, key=lambda part: compose(part).roughly(delta))


def _prefixes(release: Any) -> list[tuple[Pair, int]]:
    """Laplace noise: a column of ones is as many releases, and any has an entry of at least squares/
    absolutes."""
    mu_squared = release.gaussian()
    if mu_squared is not None:
        return [(Pair.gaussian(sqrt(mu_squared)), 1)]
    parts = [
        (Pair.laplace(min(leaf.absolutes, ceil(leaf.squares / leaf.absolutes)) * each), n)
        for leaf in release.leaves
        for each in [leaf.sensitivity / release.scale]
        for n in [leaf.absolutes if leaf.squares == leaf.absolutes else 1]
    ]
    return [max(parts, key=lambda part: part[0].size * part[1])]


def _drawn(pairs: list[tuple[Pair, int]], release: Any, delta: float) -> list[tuple[Pair, int]]:
    """Gaussians on one batch are one; of other releases together, one alone, which is less."""
    if all(pair.kind == "gaussian" and pair.share == 1 for pair, _ in pairs):
        pairs = [(Pair.gaussian(sqrt(sum(n * pair.size**2 for pair, n in pairs))), 1)]
    ones = [(pair.drawn(release.batch, release.population), 1) for pair, _ in pairs]
    return _costliest([[one] for one in ones], delta)


def _running_choices(release: Any) -> list[tuple[Pair, int]]:
    """The ranges of a record's own choice and of later ones, without slack, for the batch whose
    squares add up to most."""
    parts = []
    for k, sensitivity in enumerate(release.sensitivities):
        left, ranges = float(sensitivity), []
        for t in range(k, len(release.scales)):
            left *= 1.0 if t == k else release.kept[t] / release.KEPT_ONE
            ranges.append(left / release.scales[t])
        parts.append(ranges)
    most = max(parts, key=lambda ranges: sum(range_**2 for range_ in ranges))
    return _added([(Pair.exponential(range_), 1) for range_ in most if range_ > 0])
