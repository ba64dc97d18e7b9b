"""What every test of a plan starts from: public facts, a spec, and one row per algorithm."""

from dataclasses import dataclass
from typing import Any

from service.planning.catalog import plan
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec


@dataclass(frozen=True)
class Row:
    """What a job needs besides the dataset, the privacy and (on rows without a norm bound) a clip."""

    job: dict[str, Any]
    storages: tuple[str, ...] = ("fixed", "float64")
    rows_min: int = 2
    sums: bool = False  # it releases noisy sums over ranges of rows, and nothing else


OF = {"job": "job_1", "digest": "0" * 64}  # a model that is certified

# One row per algorithm. The tests of the guarantee and of the sums' sensitivity run over this table.
ROWS: dict[str, Row] = {
    "accelerated-sgd": Row({"loss": "hinge"}, sums=True),
    "localized-accelerated-sgd": Row({"loss": "logistic"}, sums=True),
    "clipped-sgd": Row({"loss": "logistic", "ridge": 0.1}, sums=True),
    "accelerated-clipped-sgd": Row({"loss": "logistic"}, sums=True),
    "localized-subgradient": Row({"loss": "hinge"}),
    "proximal-sgd": Row({"loss": "logistic", "ridge": 0.1}, sums=True),
    "gradient-descent": Row({"loss": "logistic"}, sums=True),
    "adversarial-output-perturbation": Row({"loss": "logistic", "ridge": 0.1}, ("fixed",)),
    "output-perturbation": Row({"loss": "logistic", "ridge": 0.1}, ("fixed",)),
    "tilted-output-perturbation": Row(
        {"loss": "logistic", "ridge": 0.1, "parameters": {"tilt": 0.02}}, ("fixed",)
    ),
    "proximally-guided-mirror-descent": Row({"loss": "logistic"}, sums=True),
    "stationarity-certificate": Row({"loss": "logistic", "of": OF}),
    "frank-wolfe": Row({"loss": "logistic", "set": {"kind": "l1_ball"}}, ("fixed",)),
    "phased-sgd": Row({"loss": "logistic"}, ("fixed",)),
    "online-to-nonconvex": Row({"loss": "ramp"}),
    "polyhedral-stochastic-frank-wolfe": Row(
        {"loss": "sigmoid", "set": {"kind": "l1_ball", "radius": 2.0}}, ("fixed",)
    ),
    "stochastic-frank-wolfe": Row({"loss": "savage", "set": {"kind": "lp_ball"}}, ("fixed",)),
}


def facts(
    storage: str = "fixed",
    rows: int = 1000,
    columns: int = 20,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    label: str = "binary",
    l2_units: int = 4095,
) -> Facts:
    """Public facts of a dataset whose account has the ceiling (epsilon, delta)."""
    fixed = {"feature_step": 1 / 4095, "linf_units": 4095, "l2_units": l2_units}
    return Facts(
        rows=rows,
        columns=columns,
        storage=storage,
        label=label,
        account=AccountTerms.for_ceiling(epsilon, delta),
        **(fixed if storage == "fixed" else {}),
    )


def spec(algorithm: str, epsilon: float = 1.0, delta: float | None = None, **more: Any) -> JobSpec:
    """A job as its row in ROWS asks for it, at this privacy; `more` overrides the row."""
    privacy = {"epsilon": epsilon} | ({} if delta is None else {"delta": delta})
    asked = {"dataset": "d", "algorithm": algorithm, "privacy": privacy}
    row = ROWS.get(algorithm, Row({"loss": "logistic"}))
    return JobSpec.model_validate(asked | row.job | more)


def planned(algorithm: str, about: Facts, epsilon: float, delta: float | None = None) -> Plan:
    """The plan of a row; rows without a norm bound get the clip that they need."""
    clip = {"parameters": {"clip": 1.0}} if about.storage == "float64" else {}
    return plan(spec(algorithm, epsilon, delta, **clip), about)
