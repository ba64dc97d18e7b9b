"""The runs: for each algorithm of the one list, `run` of the module that has its name."""

from collections.abc import Callable
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms import ALGORITHMS
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress
from workers.results import Certificate

Run = Callable[[Plan, Data, Progress], NDArray[np.float64] | Certificate]
RUNS: dict[str, Run] = {
    algorithm.name: import_module(f"workers.algorithms.{module}").run
    for module, algorithm in ALGORITHMS.items()
}
