"""Meters: what is left of a release while a job runs.

A release prices what may leave the data; its meter lets out just that. Every vector or choice is asked
for with what its price rests on (mechanism, sensitivity, scale, the rows that it depends on, and how),
and a meter answers whether that is still to be had. It is stricter than privacy needs: sensitivities
and scales must be the priced ones to the unit, and where the price counts on an order or on disjoint
rows, rows are taken in order. What is not taken is lost, which costs nobody anything.

A refusal changes nothing: a meter that answers False is as it was.

**Claim.** Whatever sequence of asks a meter grants, chosen adaptively, costs at most what its release
was priced at, if each vector or choice is what its ask says. *Why*, by the kinds of meters: a `Single`
is the mechanism itself. `Parts` and `Times` grant what their parts do, and costs add in any order.
Under `Apart` a record is in the rows of one part alone, for each part's rows lie behind those of the
part before; the others see the same rows in both worlds. `PrefixRows` counts the column of every sum
as it grows, and a record is in one sum, for their rows follow each other. `RunningChoices` grants the
choices in their order, each with a batch behind the last and with what was to be kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Mechanism = Literal["gaussian", "laplace", "exponential"]
_WEIGHT_MAX = 2**31  # the square of a larger one, and ...
_COLUMN_MAX = 2**62  # ... what a column may weigh, would add up to more than int64 holds


@dataclass(frozen=True)
class Prefix:
    """That a vector is a row of a matrix of sums over consecutive ranges of rows: its newest sum,
    `number` in its series, is over `fresh`; `weights` multiply the latest sums, that one last."""

    series: int
    number: int
    fresh: range
    weights: NDArray[np.int64]

    def __post_init__(self) -> None:
        _require_range(self.fresh)
        w = self.weights
        if w.dtype != np.int64 or w.max() >= _WEIGHT_MAX or w.min() <= -_WEIGHT_MAX:
            raise ValueError("the weights of prefix sums are integers below 2^31")


@dataclass(frozen=True)
class Running:
    """That a choice goes by the running sum of a series, of which kept/2^32 stays when the sum over
    `fresh` comes in, `number` in the series; rounding moves two scores apart by at most `slack`."""

    series: int
    number: int
    fresh: range
    kept: int
    slack: int

    def __post_init__(self) -> None:
        _require_range(self.fresh)


@dataclass(frozen=True)
class LinearTerm:
    """That a vector is not let out: it is the linear term of the objective whose minimiser a point is
    computed to be, and its price rests on how curved and how strongly convex that is."""

    curvature: int
    strong: int
    sides: int


@dataclass(frozen=True)
class Ask:
    """One vector or choice that a run wants to let out."""

    mechanism: Mechanism
    sensitivity: (
        int  # of the vector in its norm, of the difference of two scores; of the newest sum
    )
    scale: int
    rows: range  # all that it depends on, given what was let out before
    batch: int | None = None  # so many of them, drawn uniformly, fresh and secret
    how: Prefix | Running | LinearTerm | None = None

    def __post_init__(self) -> None:
        _require_range(self.rows)
        if isinstance(self.how, Prefix | Running) and not (
            self.rows.start <= self.how.fresh.start and self.how.fresh.stop <= self.rows.stop
        ):
            raise ValueError("the newest rows are among those that a release depends on")

    def __str__(self) -> str:
        drawn = "" if self.batch is None else f"{self.batch} drawn from "
        how = "" if self.how is None else f", as a {type(self.how).__name__.lower()} sum"
        if isinstance(self.how, LinearTerm):
            how = f", as a linear term, by {self.how.curvature}/{self.how.strong}"
        return (
            f"{self.mechanism} noise of scale {self.scale} for a sensitivity of {self.sensitivity}"
            f" over {drawn}the rows {self.rows.start} to {self.rows.stop}{how}"
        )


def _require_range(rows: range) -> None:
    if rows.step != 1 or not 0 <= rows.start < rows.stop:
        raise ValueError("rows are a range of positions, upwards and not empty")


class Meter(Protocol):
    def spend(self, ask: Ask) -> bool:
        """Whether this was paid for and not yet taken; if so, it is taken now."""
        ...

    def left(self) -> str:
        """What may still be asked for, in words."""
        ...


class Metered(Protocol):
    def meter(self) -> Meter: ...


@dataclass
class Single:
    """One vector or choice, over any rows; `drawn` is (batch, population) if it is over a batch, `how`
    is there if it is a linear term."""

    mechanism: Mechanism
    sensitivity: int
    scale: int
    drawn: tuple[int, int] | None = None
    how: LinearTerm | None = None
    spent: bool = False

    def spend(self, ask: Ask) -> bool:
        drawn = None if ask.batch is None else (ask.batch, len(ask.rows))
        asked = (ask.mechanism, ask.sensitivity, ask.scale, drawn, ask.how)
        if self.spent or asked != (
            self.mechanism,
            self.sensitivity,
            self.scale,
            self.drawn,
            self.how,
        ):
            return False
        self.spent = True
        return True

    def left(self) -> str:
        if self.spent:
            return "nothing"
        over = "" if self.drawn is None else f" over {self.drawn[0]} rows of {self.drawn[1]}"
        return (
            f"{self.mechanism} noise of scale {self.scale} for a sensitivity of {self.sensitivity}"
            + over
            + ("" if self.how is None else " in a linear term")
        )


class Parts:
    """All of several, on the same rows; in any order, for their costs add in any."""

    def __init__(self, parts: Sequence[Metered]) -> None:
        self._meters = [part.meter() for part in parts]

    def spend(self, ask: Ask) -> bool:
        return any(meter.spend(ask) for meter in self._meters)

    def left(self) -> str:
        return " and ".join(f"({meter.left()})" for meter in self._meters)


class Times:
    """So many alike on the same rows, one after the other: the next begins where the last one
    declines, and what that one had left is lost."""

    def __init__(self, part: Metered, times: int) -> None:
        self._part, self._more = part, times - 1
        self._now = part.meter()

    def spend(self, ask: Ask) -> bool:
        if self._now.spend(ask):
            return True
        following = self._part.meter()
        if self._more == 0 or not following.spend(ask):
            return False
        self._now, self._more = following, self._more - 1
        return True

    def left(self) -> str:
        return f"{self._now.left()}, then {self._more} times ({self._part.meter().left()})"


class Apart:
    """Parts on disjoint ranges of rows, `copies` times over, in the order of the rows. A part holds
    the rows from its first to the last that it asked for; the next part begins behind them."""

    def __init__(self, parts: Sequence[Metered], copies: int) -> None:
        self._parts, self._left = parts, len(parts) * copies
        self._now: Meter | None = None
        self._start = self._stop = 0

    def spend(self, ask: Ask) -> bool:
        if self._now is not None and self._start <= ask.rows.start < self._stop:
            if not self._now.spend(ask):
                return False
            self._stop = max(self._stop, ask.rows.stop)
            return True
        if self._left == 0 or ask.rows.start < self._stop:
            return False
        following = self._next.meter()
        if not following.spend(ask):
            return False
        self._now, self._left = following, self._left - 1
        self._start, self._stop = ask.rows.start, ask.rows.stop
        return True

    @property
    def _next(self) -> Metered:
        return self._parts[-self._left % len(self._parts)]

    def left(self) -> str:
        here = f"on rows {self._start} to {self._stop} {self._now.left()}" if self._now else ""
        more = f"on rows from {self._stop} {self._next.meter().left()}" if self._left else ""
        return "; ".join(filter(None, [here, more])) + f"; {self._left} parts to begin"


class PrefixRows:
    """The rows of an integer matrix of sums over consecutive ranges, as many as were priced. No column
    may come to weigh more than its leaf says: the first sum is the first leaf, later ones the last."""

    def __init__(
        self,
        mechanism: Mechanism,
        scale: int,
        leaves: Sequence[tuple[int, int, int]],
        vectors: int,
    ) -> None:
        """`leaves` are (sensitivity, sum of squares, sum of absolute values) of a column."""
        if max(max(leaf) for leaf in leaves) > _COLUMN_MAX:
            raise ValueError("no column of prefix sums weighs so much")
        self._asked, self._leaves, self._vectors = (mechanism, scale), leaves, vectors
        self._series, self._sums, self._fresh = -1, 0, range(0)
        self._columns = np.zeros((2, vectors), dtype=np.int64)  # no sum is without a row of its own

    def spend(self, ask: Ask) -> bool:
        how = ask.how
        if not isinstance(how, Prefix) or ask.batch is not None or not self._follows(how):
            return False
        sums = how.number
        if (ask.mechanism, ask.scale, ask.sensitivity) != (*self._asked, self._leaf(sums - 1)[0]):
            return False
        first = sums - how.weights.size
        if first < 0 or self._vectors == 0:
            return False
        columns = self._columns[:, first:sums] + np.stack([how.weights**2, np.abs(how.weights)])
        allowed = np.repeat(np.array(self._leaves[-1][1:])[:, None], how.weights.size, axis=1)
        if first == 0:
            allowed[:, 0] = self._leaves[0][1:]
        if (columns > allowed).any():
            return False
        self._columns[:, first:sums] = columns
        self._series, self._sums, self._fresh = how.series, sums, how.fresh
        self._vectors -= 1
        return True

    def _follows(self, how: Prefix) -> bool:
        """Whether its newest sum is the latest one again, or the next one behind it."""
        if self._sums > 0 and how.series != self._series:
            return False
        if how.number == self._sums > 0:
            return how.fresh == self._fresh
        follows = how.number == self._sums + 1 <= self._columns.shape[1]
        return follows and how.fresh.start >= self._fresh.stop

    def _leaf(self, number: int) -> tuple[int, int, int]:
        return self._leaves[0 if number == 0 else -1]

    def left(self) -> str:
        mechanism, scale = self._asked
        return (
            f"{self._vectors} rows of prefix sums with {mechanism} noise of scale {scale}; the next "
            f"sum from row {self._fresh.stop} on, of sensitivity {self._leaf(self._sums)[0]}"
        )


class RunningChoices:
    """Choices by a running sum, in order, each over rows behind those of the last."""

    def __init__(
        self, sensitivities: Sequence[int], kept: Sequence[int], scales: Sequence[int], slack: int
    ) -> None:
        if kept[0] != 0:
            raise ValueError("a running sum begins with nothing kept of an earlier one")
        self._slack = slack
        self._choices = list(zip(sensitivities, kept, scales, strict=True))
        self._series, self._next, self._stop = -1, 0, 0

    def spend(self, ask: Ask) -> bool:
        how = ask.how
        if not isinstance(how, Running) or self._next == len(self._choices):
            return False
        asked = ask.mechanism, (ask.sensitivity, how.kept, ask.scale), how.slack, ask.batch
        if asked != ("exponential", self._choices[self._next], self._slack, None):
            return False
        if how.number != self._next + 1 or how.fresh.start < self._stop:
            return False
        if self._next > 0 and how.series != self._series:
            return False
        self._series, self._next, self._stop = how.series, self._next + 1, how.fresh.stop
        return True

    def left(self) -> str:
        if self._next == len(self._choices):
            return "no choice"
        sensitivity, kept, scale = self._choices[self._next]
        return (
            f"{len(self._choices) - self._next} choices, the next of scale {scale} for a sensitivity "
            f"of {sensitivity} with {kept} of 2^32 kept, over rows from {self._stop} on"
        )
