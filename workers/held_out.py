"""The rows that were held out, for runs that evaluate models on them, and for no other."""

from threading import RLock

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from service.planning.spec import Facts
from service.planning.tables import Counts
from workers.arrays import Add, Floats, Sum
from workers.data import Data
from workers.gate import Gate, guarded
from workers.randomness import Randomness
from workers.rows import Rows, WrongDataError
from workers.scored import add_scored
from workers.tables import planned_tables


class HeldOutRows:
    """Rows at the positions behind those of fits; they are all that is here."""

    def __init__(self, facts: Facts, x: NDArray[np.generic], y: Floats) -> None:
        self._first = facts.rows
        self._rows = Rows(facts.model_copy(update={"rows": facts.held_out}), x, y)

    def sum(self, add: Add, size: int, rows: range) -> Sum:
        """That of what `add` makes of blocks of these rows, which are given by position."""
        first = self._first
        if rows.start < first:
            raise WrongDataError("a row was asked for that was not held out")
        return self._rows.sum(add, size, self._rows.within(rows.start - first, rows.stop - first))


class HeldOutData(Data):
    """What an evaluation sees of a dataset: noisy tables of models, over held-out rows."""

    def __init__(
        self,
        plan: Plan,
        x: NDArray[np.generic],
        y: Floats,
        randomness: Randomness,
        released: Floats | None = None,
    ) -> None:
        self._plan, self._released, self._lock = plan, released, RLock()
        self._held_out, self._gate = HeldOutRows(plan.facts, x, y), Gate(plan, randomness)
        self._clip = 1.0

    @guarded
    def noisy_scores(self, counts: Counts, models: Floats) -> Floats:
        """The tables of this release of the Plan at these weights, a row for each model, plus noise.
        Weights are public: a run has them of what was let out before."""
        counts = planned_tables(self._plan, counts)
        rows, lattice = range(counts.start, counts.stop), counts.lattice
        add = add_scored(self._plan.facts, counts, models)
        exact = self._held_out.sum(add, sum(lattice.sizes), rows)
        units = self._vector(exact, 1.0, rows, lattice=lattice)
        return np.asarray(units / np.repeat(lattice.weights, lattice.sizes))
