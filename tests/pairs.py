"""Pairs of output distributions that neighbours bring about: the worst that we can name.

Gaussian and Laplace: shifted noise. A choice: two candidates, a loss of t on one and of t - range on
the other, any t in between (Dong, Durfee and Rogers 2020). A drawn batch: every other record adds the
same, the one record +C against -C, so that with share g = batch/population and z = sensitivity/sigma

    P = (1 - g) N(0, 1) + g N(f z, 1),   Q = (1 - g) N(0, 1) + g N((f - 1) z, 1),

f = 1/2 where the others add nothing, f = 1 where each adds -C (Q is then plain noise), f = 0 where
each adds +C; Laplace noise and choices likewise. f = 1 leaks by far the most where few records are
drawn and z is large: its outputs reach to where nothing else does. One dataset makes these of all
jobs at once. A t or f that is not given is tried from a table, the same for all pairs, for each is
attained.

**Cells.** Outputs are merged into cells, which is post-processing, and the loss of a cell, log p/q, is
rounded down to a grid. Cells are cut where their losses come to lie on the grid, so that n-fold
composition does not add up n roundings: what is lost is of second order.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, exp, expm1, floor, inf, log

import numpy as np
from scipy.special import logsumexp, ndtr

SPLITS = (0.5, 0.3, 0.4, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 0.97)  # t/range of choices
PLACES = (1.0, 0.5, 0.0)  # f of drawn batches
NEGLIGIBLE = 30.0  # e^-30: of a tilted distribution, what may fall outside the window
_SKETCH = 600  # cells by which tilts and windows are chosen
_LARGEST = {"gaussian": 30.0, "laplace": 500.0, "choice": 500.0}  # more leaks no less than this
_REACH, _REPRESENTED = 18.0, 37.0  # of normal tails: beyond, 1e-72 and nothing

Floats = np.ndarray


@dataclass(frozen=True)
class Pair:
    """Two output distributions of one mechanism; `size` is mu, epsilon or the range of the loss."""

    kind: str  # gaussian, laplace or choice
    size: float
    share: float = 1.0  # of the rows that are drawn
    split: float | None = None  # of a choice: t/range, None for the worst
    place: float | None = None  # of a drawn batch: f, None for the worst

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", min(float(self.size), _LARGEST[self.kind]))

    @classmethod
    def gaussian(cls, mu: float) -> "Pair":
        return cls("gaussian", mu)

    @classmethod
    def laplace(cls, epsilon: float) -> "Pair":
        return cls("laplace", epsilon)

    @classmethod
    def exponential(cls, range_: float, split: float | None = None) -> "Pair":
        """A choice whose loss is split*range or (split - 1)*range."""
        return cls("choice", range_, split=split)

    @classmethod
    def randomised_response(cls, epsilon: float) -> "Pair":
        return cls("choice", 2 * epsilon, split=0.5)

    @classmethod
    def drawn_gaussian(
        cls, z: float, batch: int, population: int, place: float | None = None
    ) -> "Pair":
        return cls.gaussian(z).drawn(batch, population, place)

    def drawn(self, batch: int, population: int, place: float | None = None) -> "Pair":
        """The same mechanism on a secret batch, uniform without replacement."""
        return replace(self, share=self.share * batch / population, place=place)

    def options(self) -> tuple[bool, bool]:
        """Whether it leaves open its split, and its place."""
        return self.kind == "choice" and self.split is None, self.share < 1 and self.place is None

    def resolved(self, split: float, place: float) -> "Pair":
        splits, places = self.options()
        return replace(
            self, split=split if splits else self.split, place=place if places else self.place
        )

    def pure(self) -> float:
        """The largest loss that it attains, in the worst of its options."""
        if self.kind == "gaussian":
            return inf
        if self.kind == "choice" and self.split is None:  # as t comes to be the range
            return float(np.log1p(self.share * expm1(self.size)))
        return float(self.resolved(0.5, 1.0).sketch[0].max())

    # --- two outcomes

    def _two(self) -> tuple[Floats, Floats]:
        """log P and log Q of a choice between two."""
        e, t = self.size, (self.split or 0.0) * self.size
        p = np.log([expm1(t - e) / expm1(-e), exp(t - e) * expm1(-t) / expm1(-e)])
        q = p - np.array([t, t - e])
        if self.share == 1:
            return p, q
        f = 0.5 if self.place is None else self.place
        others = (1 - f) * p + f * q
        others = others - logsumexp(others) + log(1 - self.share)
        return tuple(np.logaddexp(others, log(self.share) + own) for own in (p, q))

    # --- a line of outcomes

    @property
    def _shifts(self) -> tuple[float, float]:
        f = 0.5 if self.place is None else self.place
        return f * self.size, (f - 1) * self.size

    def _reach(self) -> tuple[float, float]:
        """The outcomes between which losses differ and tails are represented."""
        low, high = min(0.0, *self._shifts), max(0.0, *self._shifts)
        if self.kind == "laplace":
            return low, high
        low, high = max(low - _REACH, high - _REPRESENTED), min(high + _REACH, low + _REPRESENTED)
        return low, high

    def _loss(self, x: Floats) -> Floats:
        """Increasing in x: the shift of P is not negative, that of Q not positive."""

        def against_plain(shift: float) -> Floats:
            if self.kind == "gaussian":
                ratio = shift * x - shift**2 / 2
            else:
                ratio = np.abs(x) - np.abs(x - shift)
            if self.share == 1:
                return ratio
            return np.logaddexp(log(1 - self.share), log(self.share) + ratio)

        p, q = self._shifts
        return np.maximum.accumulate(against_plain(p) - against_plain(q))

    def _cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        """log P and loss of the cells between the cuts and beyond the outermost."""
        below, above = np.append(-inf, cuts), np.append(cuts, inf)

        def mass(shift: float) -> Floats:
            a, b = below - shift, above - shift
            right = a + b > 0  # both tails are symmetric, and accurate on the left
            a, b = np.where(right, -b, a), np.where(right, -a, b)
            if self.kind == "gaussian":
                return ndtr(b) - ndtr(a)
            tail = np.exp(np.minimum(b, 0)) * -np.expm1(np.minimum(a - b, 0)) / 2
            return np.where(b <= 0, tail, 1 - (np.exp(-np.abs(b)) + np.exp(np.minimum(a, 0))) / 2)

        plain = mass(0.0) if self.share < 1 else 0.0
        p, q = (
            (1 - self.share) * plain + self.share * mass(shift) if self.share < 1 else mass(shift)
            for shift in self._shifts
        )
        kept = (p > 0) & (q > 0)  # what is not represented is dropped
        p = np.log(p[kept])
        return p, p - np.log(q[kept])

    @cached_property
    def sketch(self) -> tuple[Floats, Floats]:
        """Losses and log P of a coarse merging, itself a lower bound."""
        if self.kind == "choice":
            p, q = self._two()
            return p - q, p
        p, losses = self._cells(np.linspace(*self._reach(), _SKETCH))
        return losses, p

    def span(self) -> float | None:
        """Between two atoms that a grid should hold, where there are any."""
        if self.kind != "laplace":
            return None
        ends = self._loss(np.array(self._reach()))
        return float(ends[1] - ends[0])

    def on_grid(self, h: float, theta: float) -> tuple[Floats, Floats, float]:
        """(indices, log P, offset): losses offset + h*index, each at most that of its cell."""
        x = np.linspace(*self._reach(), 10 * _SKETCH)
        table = self._loss(x)
        top = float(table[-1]) if self.kind == "laplace" else 0.0
        if self.kind == "gaussian":  # only where the tilted distribution is
            losses, p = self.sketch
            tilted = p + theta * losses
            heavy = losses[tilted > tilted.max() - NEGLIGIBLE - 10]
            ends = np.searchsorted(table, [heavy.min() - h, heavy.max() + h])
            inside = slice(max(0, ends[0] - 2), ends[1] + 2)
            x, table = x[inside], table[inside]
        grid = np.arange(floor((table[0] - top) / h) - 1, ceil((table[-1] - top) / h) + 2)
        cuts = top + h * (grid[:-1] + 0.5)
        for _ in range(3):  # cut where the losses of cells come to lie on the grid
            at = np.clip(np.interp(cuts, table, x), x[0], x[-1])
            if self.kind == "laplace":
                at[cuts > table[-1] - 0.75 * h] = x[-1]
            p, losses = self._cells(np.unique(at))
            nearest = np.rint((losses - top) / h)
            excess = np.interp(top + h * grid, losses, losses - top - h * nearest)
            cuts = np.sort(cuts - (excess[1:] + excess[:-1]) / 2)
        return rounded_down(losses - top, p, h, theta, top)


def rounded_down(
    losses: Floats, p: Floats, h: float, theta: float, offset: float = 0.0
) -> tuple[Floats, Floats, float]:
    """With the grid moved to where least is lost, as the tilted distribution counts it."""
    phase = losses / h - np.rint(losses / h)
    tilted = p + theta * losses
    mass = np.exp(tilted - tilted.max())
    order = np.argsort(phase)
    reached = np.cumsum(mass[order])
    wanted = reached[-1] * np.array([0, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5])
    moves = {float(phase[order][i]) for i in np.searchsorted(reached, wanted).clip(0, p.size - 1)}

    def indices(move: float) -> Floats:
        return np.floor(losses / h - move + 1e-9)

    def kept(move: float) -> float:
        return float(mass @ indices(move) / mass.sum()) + move

    best = max(moves, key=kept) - 1e-9
    return np.floor(losses / h - best), p, offset + best * h
