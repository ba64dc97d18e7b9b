"""The one list of algorithms: a file here plans what the file of that name in workers/algorithms runs.

To add one: the two files, and its line below, where the catalog's order is."""

from importlib import import_module

from service.planning.algorithm import Algorithm

MODULES = (
    "accelerated_sgd",
    "localized_accelerated_sgd",
    "clipped_sgd",
    "accelerated_clipped_sgd",
    "localized_subgradient",
    "proximal_sgd",
    "frank_wolfe",
    "gradient_descent",
    "preconditioned_descent",
    "sufficient_statistics",
    "best_constant",
    "online_to_nonconvex",
    "output_perturbation",
    "phased_sgd",
    "polyhedral_stochastic_frank_wolfe",
    "stochastic_frank_wolfe",
    "proximally_guided_mirror_descent",
    "stationarity_certificate",
    "model_evaluation",
    "tilted_output_perturbation",
    "adversarial_output_perturbation",
    "objective_perturbation",
    "column_summaries",
)
ALGORITHMS: dict[str, Algorithm] = {
    module: import_module(f"service.planning.algorithms.{module}").ALGORITHM for module in MODULES
}
