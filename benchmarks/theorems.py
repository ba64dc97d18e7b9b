"""The theorems whose rates utility.py measures: one line each, with the regime where it is asked."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from typing import Any

DELTA = 1e-6


@dataclass(frozen=True)
class Line:
    theorem: str
    regime: str
    algorithm: str
    loss: str
    job: dict[str, Any]
    risk: str
    epsilon: float
    d: int
    octaves: tuple[int, int]  # n = 2^low ... 2^high
    exponent: float
    delta: float = DELTA

    @property
    def proved(self) -> bool:
        """Whether the paper has this: BGM and KLL are for delta > 0 alone."""
        return self.delta > 0 or self.theorem.startswith("LR-OP")

    @property
    def sizes(self) -> list[int]:
        low, high = self.octaves
        return [2**k for k in range(low, high + 1)]

    @property
    def ridge(self) -> float:
        return float(self.job.get("ridge", 0.0))

    def lower_bound(self, n: int) -> float:
        """What no algorithm of this privacy does better than on every convex loss of slope and rows
        of at most 1, with 1 for each constant, so of its order: LR-HT Theorems 21 and 23, k infinite,
        and what KLL and LR-OP quote (Bassily, Smith and Thakurta 2014). Some losses of linear models
        are easier (BGM section 3)."""
        weights = self.d if self.delta == 0 else sqrt(self.d * log(1 / self.delta))
        private, drawn = min(1.0, weights / (self.epsilon * n)), float(self.risk == "population")
        if self.ridge > 0:
            return (drawn / n + private**2) / self.ridge
        chosen = self.job["set"]
        radius = float(chosen["radius"]) if isinstance(chosen, dict) else 1.0
        return 2 * radius * (drawn / sqrt(n) + private)


QUANTILE = 0.9
BALL, SMALL_BALL = {"kind": "l2_ball", "radius": 4.0}, {"kind": "l2_ball", "radius": 1.0}


def both(pure: dict[str, Any] | None = None, **common: Any) -> list[Line]:
    """The same for delta > 0 and delta = 0, where `pure` says what is different."""
    return [Line(**common), Line(**{**common, **(pure or {}), "delta": 0.0})]


def lines() -> Iterator[Line]:
    pair = partial(both, algorithm="output-perturbation", d=10)
    smooth = {"loss": "logistic", "job": {"set": "all", "ridge": 0.1}}
    yield from pair(
        theorem="LR-OP Theorem 2.2",
        regime="smooth and strongly convex: (d/(epsilon n))^2",
        **smooth,
        risk="empirical",
        epsilon=1.0,
        octaves=(11, 16),
        exponent=2.0,
    )
    yield from pair(
        theorem="LR-OP Theorem 3.2",
        regime="smooth and strongly convex, private term (d/(epsilon n))^2",
        **smooth,
        risk="population",
        epsilon=0.1,
        octaves=(11, 15),
        exponent=2.0,
    )
    corner = {"loss": "absolute", "job": {"set": "all", "ridge": 0.5}}
    for theorem, risk in (("2.1", "empirical"), ("3.1", "population")):
        yield from pair(
            theorem=f"LR-OP Theorem {theorem}",
            regime="a corner, strongly convex: d/(epsilon n)",
            **corner,
            risk=risk,
            epsilon=0.5,
            octaves=(10, 14),
            exponent=1.0,
        )
    for theorem, risk in (("2.4", "empirical"), ("3.4", "population")):
        yield from pair(
            theorem=f"LR-OP Theorem {theorem}",
            regime="smooth: (d/(epsilon n))^(2/3)",
            loss="logistic",
            job={"set": BALL},
            risk=risk,
            epsilon=0.5,
            octaves=(12, 17),
            exponent=2 / 3,
        )
    for theorem, risk in (("2.3", "empirical"), ("3.3", "population")):
        yield from pair(
            theorem=f"LR-OP Theorem {theorem}",
            regime="a corner: (d/(epsilon n))^(1/2)",
            loss="absolute",
            job={"set": SMALL_BALL},
            risk=risk,
            epsilon=0.5,
            octaves=(10, 14),
            exponent=0.5,
        )
    yield from pair(
        theorem="LR-OP Theorem 3.3",
        regime="a corner that is not symmetric, the quantile 0.9: (d/(epsilon n))^(1/2)",
        loss="pinball",
        job={"loss": {"kind": "pinball", "quantile": QUANTILE}, "set": SMALL_BALL},
        risk="population",
        epsilon=8.0,
        octaves=(12, 20),
        exponent=0.5,
    )
    yield from pair(
        theorem="LR-OP Theorem 3.4",
        regime="smooth, up to a million rows: (d/(epsilon n))^(2/3)",
        loss="logistic",
        job={"set": BALL},
        risk="population",
        epsilon=0.5,
        octaves=(15, 20),
        exponent=2 / 3,
    )
    yield from both(
        theorem="LR-OP Theorem 4.1, bounded adversary",
        regime="a corner: (d/(epsilon n))^(1/2)",
        algorithm="adversarial-output-perturbation",
        loss="hinge",
        job={"set": BALL},
        risk="population",
        epsilon=8.0,
        d=10,
        octaves=(12, 18),
        exponent=0.5,
    )
    yield from both(
        theorem="LR-OP Proposition 4.2",
        regime="smooth and strongly convex: (d/(epsilon n))^2",
        algorithm="tilted-output-perturbation",
        loss="logistic",
        job={"set": SMALL_BALL, "ridge": 0.3, "parameters": {"tilt": 0.5}},
        risk="empirical",
        epsilon=1.0,
        d=10,
        octaves=(12, 16),
        exponent=2.0,
    )
    for adversary in ("bounded", "penalised"):
        yield from both(
            theorem=f"LR-OP Theorem 4.1, {adversary} adversary",
            regime="smooth and strongly convex: (d/(epsilon n))^2",
            algorithm="adversarial-output-perturbation",
            loss="logistic",
            job={"set": SMALL_BALL, "ridge": 0.3, "parameters": {"adversary": adversary}},
            risk="empirical",
            epsilon=1.0,
            d=10,
            octaves=(12, 16),
            exponent=2.0,
        )
    pair = partial(both, algorithm="phased-sgd", loss="absolute", risk="population")
    yield from pair(
        theorem="BGM Theorem 6",
        regime="private term sqrt(d)/(epsilon n); d for delta = 0",
        job={"set": SMALL_BALL},
        epsilon=0.08,
        d=200,
        octaves=(14, 17),
        exponent=1.0,
    )
    yield from pair(
        theorem="BGM Theorem 6",
        regime="statistical term 1/sqrt(n)",
        job={"set": SMALL_BALL},
        epsilon=8.0,
        d=10,
        octaves=(11, 17),
        exponent=0.5,
    )
    yield from pair(
        theorem="BGM Theorem 7",
        regime="over all of R^d, 1/sqrt(n)",
        job={"set": "all"},
        epsilon=1.0,
        d=10,
        octaves=(12, 17),
        exponent=0.5,
    )
    yield from both(
        {"exponent": 1 / 3},
        theorem="BGM Theorem 9",
        regime="private term (epsilon n)^(-1/2); (epsilon n)^(-1/3) for delta = 0",
        algorithm="frank-wolfe",
        loss="absolute",
        job={"set": {"kind": "l1_ball", "radius": 1.0}},
        risk="population",
        epsilon=1.0,
        d=100,
        octaves=(11, 14),
        exponent=0.5,
    )
    pair = partial(both, algorithm="accelerated-sgd", risk="empirical")
    yield from pair(
        {"exponent": 4 / 5, "epsilon": 4.0},
        theorem="KLL Theorem 4.11",
        regime="smooth: sqrt(d)/(epsilon n); (d/(epsilon n))^(4/5) for delta = 0",
        loss="logistic",
        job={"set": BALL},
        epsilon=1.0,
        d=5,
        octaves=(12, 16),
        exponent=1.0,
    )
    yield from pair(
        {"exponent": 2 / 3, "epsilon": 8.0},
        theorem="KLL Theorem 4.11",
        regime="a corner: sqrt(d)/(epsilon n); (d/(epsilon n))^(2/3) for delta = 0",
        loss="absolute",
        job={"set": SMALL_BALL},
        epsilon=0.5,
        d=10,
        octaves=(10, 14),
        exponent=1.0,
    )
    yield from pair(
        theorem="KLL Theorem 4.9",
        regime="strongly convex, d/(epsilon n)^2; d^2 for delta = 0",
        loss="logistic",
        job={"set": "all", "ridge": 0.1},
        epsilon=8.0,
        d=10,
        octaves=(12, 16),
        exponent=2.0,
    )
    pair = partial(both, algorithm="localized-accelerated-sgd", risk="population")
    yield from pair(
        {"exponent": 2 / 3},
        theorem="KLL Theorem 5.6",
        regime="private term sqrt(d)/(epsilon n); (d/(epsilon n))^(2/3) for delta = 0",
        loss="absolute",
        job={"set": SMALL_BALL, "parameters": {"steps": 512}},
        epsilon=0.2,
        d=10,
        octaves=(11, 15),
        exponent=1.0,
    )
    yield from pair(
        theorem="KLL Theorem 5.6",
        regime="statistical term 1/sqrt(n)",
        loss="absolute",
        job={"set": SMALL_BALL, "parameters": {"steps": 512}},
        epsilon=8.0,
        d=10,
        octaves=(11, 15),
        exponent=0.5,
    )
    yield from pair(
        theorem="KLL Lemma 5.5",
        regime="strongly convex, statistical term 1/n",
        loss="logistic",
        job={"set": SMALL_BALL, "ridge": 0.1},
        epsilon=8.0,
        d=10,
        octaves=(11, 15),
        exponent=1.0,
    )
    yield from heavy_tails()


def heavy_tails() -> Iterator[Line]:
    """LR-HT where every moment is bounded: k is infinite. heavy_tails.py has others. The statistical
    term of Theorem 10 asks for n log n steps, more than the default's 2^12."""
    common: dict[str, Any] = {"risk": "population", "epsilon": 8.0, "d": 10, "octaves": (11, 15)}
    ridge = {"set": SMALL_BALL, "ridge": 0.1}
    yield Line(
        theorem="LR-HT Theorem 10",
        regime="a corner, private term sqrt(d)/(epsilon n)",
        algorithm="localized-subgradient",
        loss="absolute",
        job={"set": SMALL_BALL},
        risk="population",
        epsilon=0.2,
        d=10,
        octaves=(11, 14),
        exponent=1.0,
    )
    for theorem, regime, algorithm, loss, job, exponent in (
        ("18", "strongly convex: 1/n", "localized-subgradient", "logistic", ridge, 1.0),
        (
            "29",
            "smooth: 1/sqrt(n)",
            "accelerated-clipped-sgd",
            "logistic",
            {"set": BALL},
            0.5,
        ),
        ("30", "smooth and strongly convex: 1/n", "clipped-sgd", "logistic", ridge, 1.0),
        ("35", "proximal-PL: 1/n", "proximal-sgd", "logistic", ridge, 1.0),
    ):
        yield Line(
            theorem=f"LR-HT Theorem {theorem}",
            regime=regime,
            algorithm=algorithm,
            loss=loss,
            job=job,
            exponent=exponent,
            **common,
        )
