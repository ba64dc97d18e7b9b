"""Compile or load every kernel before the first job, in the process that will run it.

numba's cache is keyed by CPU and cannot be shipped; a worker that starts warm never makes a job pay.
"""

import numpy as np

from workers.data import read_only
from workers.kernels.gradients import add_fixed, add_float
from workers.kernels.losses import LOGISTIC
from workers.randomness import Randomness, Use
from workers.samplers import rounded_laplace, rounded_normal


def warm() -> None:
    randomness = Randomness(bytes(32), "warm")
    rounded_normal(randomness.stream(Use.NOISE, 0), 2, 20)
    rounded_laplace(randomness.stream(Use.NOISE, 1), 2, 20)
    total, w, y = np.zeros(2, dtype=np.int64), np.zeros(2), read_only(np.ones(2))
    add_fixed(total, read_only(np.ones((2, 2), dtype=np.int16)), y, w, LOGISTIC, 1.0, 1)
    add_float(total, read_only(np.ones((2, 2))), y, w, LOGISTIC, 1.0, 1, False)
