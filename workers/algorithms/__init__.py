"""The runs: for each algorithm of the one list, `run` of the module that has its name."""

from importlib import import_module

from service.planning.algorithms import ALGORITHMS
from workers.transcript import Run

RUNS: dict[str, Run] = {
    algorithm.name: import_module(f"workers.algorithms.{module}").run
    for module, algorithm in ALGORITHMS.items()
}
