"""What every test of a plan starts from: public facts, a spec, and a job per algorithm."""

from dataclasses import dataclass
from typing import Any

from service.planning.algorithm import Algorithm
from service.planning.catalog import CATALOG, plan
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec

OF = {"job": "job_1", "digest": "0" * 64}  # a model that is certified

# Where tests ask another job of an algorithm than its example.
JOBS: dict[str, dict[str, Any]] = {
    "localized-accelerated-sgd": {"loss": "logistic"},
    "clipped-sgd": {"loss": "logistic", "ridge": 0.1},
    "proximal-sgd": {"loss": "logistic", "ridge": 0.1},
    "adversarial-output-perturbation": {"loss": "logistic", "ridge": 0.1},
    "output-perturbation": {"loss": "logistic", "ridge": 0.1},
    "tilted-output-perturbation": {"loss": "logistic", "ridge": 0.1, "parameters": {"tilt": 0.02}},
    "proximally-guided-mirror-descent": {"loss": "logistic"},
    "objective-perturbation": {"loss": "logistic"},
    "phased-sgd": {"loss": "logistic"},
    "frank-wolfe": {"loss": "logistic", "set": {"kind": "l1_ball"}},
    "polyhedral-stochastic-frank-wolfe": {
        "loss": "sigmoid",
        "set": {"kind": "l1_ball", "radius": 2.0},
    },
    "stochastic-frank-wolfe": {"loss": "savage", "set": {"kind": "lp_ball"}},
    "model-evaluation": {"loss": "logistic", "of": "job_1"},
    "column-summaries": {"summaries": ["counts"], "set": "all"},
}
# Those that release noisy sums over ranges of rows, and nothing else.
SUMS = {
    "accelerated-sgd",
    "localized-accelerated-sgd",
    "clipped-sgd",
    "accelerated-clipped-sgd",
    "proximal-sgd",
    "gradient-descent",
    "proximally-guided-mirror-descent",
}


@dataclass(frozen=True)
class Row:
    """What a job needs besides the dataset, the privacy and (on rows without a norm bound) a clip."""

    job: dict[str, Any]
    storages: tuple[str, ...]
    sums: bool

    @classmethod
    def of(cls, entry: Algorithm) -> "Row":
        job = JOBS.get(entry.name, entry.example) | ({"of": OF} if entry.certifies else {})
        storages = ("fixed",) if entry.needs.bounded_rows else ("fixed", "float64")
        return cls(job, storages, entry.name in SUMS)


# The tests of the guarantee and of the sums' sensitivity run over this table.
ROWS = {name: Row.of(entry) for name, entry in CATALOG.items()}


def facts(
    storage: str = "fixed",
    rows: int = 1000,
    columns: int = 20,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    label: str = "binary",
    l2_units: int = 4095,
    kind: str | None = None,
    limits: tuple[AccountTerms, ...] = (),
) -> Facts:
    """Public facts of a dataset whose account has the ceiling (epsilon, delta)."""
    fixed = {"feature_step": 1 / 4095, "linf_units": 4095, "l2_units": l2_units}
    return Facts(
        rows=rows,
        held_out=max(1, rows // 4),
        columns=columns,
        storage=storage,
        label=label,
        account=AccountTerms.for_ceiling(epsilon, delta, kind),
        limits=limits,
        **(fixed if storage == "fixed" else {}),
    )


def spec(algorithm: str, epsilon: float = 1.0, delta: float | None = None, **more: Any) -> JobSpec:
    """A job as its row in ROWS asks for it, at this privacy; `more` overrides the row. Over a ball
    unless a set is named: what a job's own default stands for is tested in test_defaults.py."""
    privacy = {"epsilon": epsilon} | ({} if delta is None else {"delta": delta})
    asked = {"dataset": "d", "algorithm": algorithm, "privacy": privacy, "set": "l2_ball"}
    job = ROWS[algorithm].job if algorithm in ROWS else {"loss": "logistic"}
    return JobSpec.model_validate(asked | job | more)


def planned(algorithm: str, about: Facts, epsilon: float, delta: float | None = None) -> Plan:
    """The plan of a row; rows without a norm bound get the clip that they need."""
    clipped = "clip" in CATALOG[algorithm].parameters.model_fields
    clip = {"parameters": {"clip": 1.0}} if about.storage == "float64" and clipped else {}
    return plan(spec(algorithm, epsilon, delta, **clip), about)
