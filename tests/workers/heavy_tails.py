"""The algorithms for heavy tails, and data that release sums without noise."""

import numpy as np

from workers.data import Data

ALL = ("clipped-sgd", "accelerated-clipped-sgd", "proximal-sgd", "localized-subgradient")


class Noiseless(Data):
    def _vector(self, exact, step, rows, **how):
        self._gate.number += 1
        return exact.astype(np.float64) * step
