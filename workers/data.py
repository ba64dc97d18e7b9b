"""A dataset as the algorithms see it: rows by position, and noisy sums over them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from workers.kernels.gradients import add_fixed, add_float
from workers.kernels.losses import CODES
from workers.randomness import Randomness, Use
from workers.samplers import rounded_laplace, rounded_normal

BLOCK_ROWS = 8192


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written: what a memory map gives, so kernels compile for it alone."""
    view = array.view()
    view.flags.writeable = False
    return view


class WrongDataError(ValueError):
    """The arrays are not those that the Plan was made for."""


class NoisySums:
    """The one door through which anything leaves the data: clipped gradient sums plus noise.

    Each call is one release of the Plan's lattice; the release's number addresses its noise, so no
    draw is ever used twice within a job.
    """

    def __init__(
        self, plan: Plan, x: NDArray[np.generic], y: NDArray[np.float64], randomness: Randomness
    ) -> None:
        facts = plan.facts
        # unbounded rows, for one, must never meet the kernel that trusts a row's norm
        dtype = np.int16 if facts.storage == "fixed" else np.float64
        if x.shape != (facts.rows, facts.columns) or y.shape != (facts.rows,) or x.dtype != dtype:
            raise WrongDataError
        self._plan, self._randomness = plan, randomness
        self._x, self._y = read_only(x), read_only(y)
        self._released = 0

    def __call__(self, weights: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
        """The noisy sum of the clipped gradients of rows [start, stop) at `weights`."""
        lattice = self._plan.lattice
        total = self.exact_sum(weights, start, stop)
        stream = self._randomness.stream(Use.NOISE, self._released)
        self._released += 1
        sampler = rounded_normal if lattice.noise == "gaussian" else rounded_laplace
        noise = sampler(stream, total.size, lattice.bits)
        return (total + noise).astype(np.float64) * lattice.step

    def exact_sum(self, weights: NDArray[np.float64], start: int, stop: int) -> NDArray[np.int64]:
        """The sum before noise: for the line above, and for tests that attack its sensitivity."""
        lattice, facts = self._plan.lattice, self._plan.facts
        loss = CODES[self._plan.spec.loss.kind]
        total = np.zeros(facts.columns, dtype=np.int64)
        for low in range(start, stop, BLOCK_ROWS):
            block = slice(low, min(low + BLOCK_ROWS, stop))
            x, y = np.ascontiguousarray(self._x[block]), self._y[block]
            if lattice.derivative_units is not None:
                assert facts.feature_step is not None
                scale = facts.feature_step / lattice.step  # derivative units per unit of derivative
                add_fixed(
                    total, x, y, weights * facts.feature_step, loss, scale, lattice.derivative_units
                )
            else:
                add_float(
                    total,
                    x,
                    y,
                    weights,
                    loss,
                    lattice.clip,
                    lattice.contribution_units,
                    lattice.norm == "l1",
                )
        return total
