"""The gate: the one way out for anything that depends on rows.

It adds exactly distributed integer noise to an exact integer vector, or chooses a candidate by integer
scores, if the release that the Plan was charged for has that left: its meter (releases/metering.py)
is asked first, with the mechanism, sensitivity, scale and rows of what is about to leave. After a
refusal the gate is shut, and a run that ended well in spite of it is not published.

Each release takes the next number, which addresses its noise, so no draw is ever used twice within a
job.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from service.planning.lattice import CountLattice, MomentLattice, PointLattice, SumLattice
from service.planning.plan import Plan
from service.planning.releases import Gaussian, PerturbedMinimum
from service.planning.releases.metering import Ask, LinearTerm, Prefix, Running
from workers.arrays import Sum
from workers.randomness import Randomness, Stream, Use
from workers.rows import WrongDataError
from workers.samplers import choose, rounded_laplace, rounded_normal, sample


class GateError(RuntimeError):
    """A run asked for something that was not paid for. The message is made of public numbers."""


@dataclass(frozen=True)
class Ballot:
    """A choice to be made: an exact sum, and the candidates' scores as a function of it.

    Replacing a record moves no two scores apart by more than `sensitivity`: the plan's docstring says
    why. That argument is checked from below before every choice: `ends` are two sums that a replaced
    record lies between, made from public numbers, and `probe` is the function of scores without what
    earlier rows have added, so that what it makes of them depends on no row.
    """

    exact: Sum
    scores: Callable[[Sum], Sum]
    probe: Callable[[Sum], Sum]
    ends: tuple[Sum, Sum]
    sensitivity: int
    slack: int = 0  # what rounding adds to it

    @property
    def widest(self) -> int:
        change = self.probe(self.ends[0]) - self.probe(self.ends[1])
        return int(change.max()) - int(change.min())


class Gate:
    def __init__(self, plan: Plan, randomness: Randomness) -> None:
        self._meter, self._randomness = plan.release.meter(), randomness
        self._weights, self._columns = plan.dimension, plan.facts.columns
        self.number, self._shut = 0, False  # of the next release

    def vector(
        self,
        exact: Sum,
        lattice: SumLattice | PointLattice | MomentLattice | CountLattice,
        rows: range,
        *,
        batch: int | None = None,
        prefix: Prefix | None = None,
    ) -> Sum:
        """`exact`, made on this lattice, plus its noise, in lattice units. `rows` are those that it
        depends on, given what was released before, or of which it depends on a secret `batch`."""
        release = lattice.release()
        scale = release.sigma if isinstance(release, Gaussian) else release.scale
        plain = type(exact) is np.ndarray and exact.dtype == np.int64
        size = self._weights
        if isinstance(lattice, MomentLattice | CountLattice):
            size = lattice.entries(self._columns)
        if not plain or exact.shape != (size,):
            self._refuse(
                "noise on something else than a vector of integers, one per weight or moment or cell"
            )
        self._pay(Ask(lattice.noise, release.sensitivity, scale, rows, batch, prefix))
        sampler = rounded_normal if lattice.noise == "gaussian" else rounded_laplace
        return np.asarray(exact + sampler(self._next(), exact.size, lattice.bits))

    def choice(
        self, ballot: Ballot, scale: int, rows: range, running: Running | None = None
    ) -> int:
        """A candidate, with probability proportional to exp(-score/scale)."""
        if ballot.widest > ballot.sensitivity + ballot.slack:
            self._refuse("scores that one record moves apart by more than their sensitivity")
        self._pay(Ask("exponential", ballot.sensitivity, scale, rows, None, running))
        return choose(self._next(), ballot.scores(ballot.exact), scale)

    def linear_term(self, term: PerturbedMinimum, rows: range) -> Sum:
        """The noise of an objective over these rows, for whoever makes its minimiser and nobody else:
        it is let out only by that, which is what its price is for."""
        how = LinearTerm(term.curvature, term.strong, term.sides)
        self._pay(Ask(term.noise, term.sensitivity, term.scale, rows, None, how))
        sampler = rounded_normal if term.noise == "gaussian" else rounded_laplace
        return sampler(self._next(), self._weights, term.scale.bit_length() - 1)

    def drawn_batch(self, batch: int, rows: range) -> Sum:
        """Positions for the next release, drawn uniformly without replacement, and known to nobody."""
        if not 0 < batch <= len(rows):
            raise WrongDataError(f"a batch of {batch} rows cannot be drawn from {len(rows)}")
        stream = self._randomness.stream(Use.SAMPLING, self.number)
        return np.asarray(rows.start + sample(stream, batch, len(rows)))

    def drawn(self, count: int) -> int:
        """A number below `count`, uniform and independent of the rows: which iterate is the output."""
        return int(sample(self._randomness.stream(Use.OUTPUT, 0), 1, count)[0])

    def stream(self, use: Use, index: int) -> Stream:
        """For draws that depend on no data and that no privacy rests on."""
        if use not in (Use.DIRECTIONS, Use.PATH):
            self._refuse(f"the stream of {use.name.lower()}, which is the gate's own")
        return self._randomness.stream(use, index)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Whatever goes wrong on the way to a release shuts the gate: an exception is not to be caught
        and tried again, nor to tell anything."""
        try:
            yield
        except GeneratorExit:  # nobody asks for the rest
            raise
        except BaseException:
            self._shut = True
            raise

    def close(self) -> None:
        """At the end of a run: whoever was refused anything does not publish."""
        if self._shut:
            raise GateError("the run was refused a release and went on; nothing of it is published")
        self._shut = True

    def _pay(self, ask: Ask) -> None:
        if self._shut or not self._meter.spend(ask):
            self._refuse(str(ask))

    def _refuse(self, asked: str) -> None:
        self._shut = True
        raise GateError(f"asked for {asked}; left of what was paid for: {self._meter.left()}")

    def _next(self) -> Stream:
        self.number += 1
        return self._randomness.stream(Use.NOISE, self.number - 1)


class _Gated(Protocol):
    _gate: Gate
    _lock: "RLock"


T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound=_Gated)


def guarded(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A way out of the data: an exception on it shuts the gate."""

    def way_out(data: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with data._lock, data._gate.guard():  # one release at a time: each has a number of its own
            return method(data, *args, **kwargs)

    way_out.__doc__ = method.__doc__
    return way_out
