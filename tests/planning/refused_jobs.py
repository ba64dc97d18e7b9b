"""Jobs that are refused, each with what the refusal says and the job that it points to."""

from service.planning.catalog import CATALOG
from service.planning.losses import LOSSES, fitting
from service.planning.needs import either
from service.planning.sets import SETS
from tests.planning.cases import facts, spec

UNBOUNDED = facts("float64")
NUMERIC = facts(label="numeric")
FREE = facts(label="unbounded")
PURE = facts(delta=0.0)
SMOOTH = [
    n for n in fitting("binary") if n in {e.name() for e in LOSSES if e().convex and e().smooth}
]
SGD, GD = "clipped-sgd", "gradient-descent"
MIRROR = "proximally-guided-mirror-descent"
ABSOLUTE = spec(GD, loss="absolute")
REFUSED = {  # facts, refused job, what the refusal says, the job that it points to
    "unknown algorithm": (
        facts(),
        spec("sgd"),
        f"there are: {', '.join(sorted(CATALOG))}",
        spec(SGD),
    ),
    "unknown parameter": (
        facts(),
        spec(GD, parameters={"stepz": 3}),
        "it takes: steps, clip",
        spec(GD, parameters={"steps": 3}),
    ),
    "no steps": (
        facts(),
        spec(GD, parameters={"steps": 0}),
        "it takes: steps, clip",
        spec(GD, parameters={"steps": 1}),
    ),
    "a clip below any gradient": (
        facts(),
        spec(GD, parameters={"clip": 5e-324}),
        "it takes: steps, clip",
        spec(GD, parameters={"clip": 1e-9}),
    ),
    "no ridge": (
        facts(),
        spec(SGD, ridge=0.0),
        "set ridge to at least 1e-09 (for example 0.01), or use accelerated-sgd, ",
        spec(GD, ridge=0.0),
    ),
    "a ridge that is none": (facts(), spec(SGD, ridge=5e-324), "1e-09", spec(SGD, ridge=1e-9)),
    "logistic on a number": (
        NUMERIC,
        spec(GD),
        f"these do: {', '.join(fitting('numeric'))}.",
        spec(GD, loss="squared"),
    ),
    "unbounded without clip": (
        UNBOUNDED,
        spec(MIRROR),
        "set parameters.clip",
        spec(MIRROR, parameters={"clip": 2.0}),
    ),
    "logistic on a number without bounds": (FREE, spec(GD), "these do: absolute", ABSOLUTE),
    "one pass over more rows than there are": (
        facts(rows=100),
        spec(SGD, parameters={"batch": 40, "steps": 3}),
        "3 steps need at least 120 rows and the dataset has 100; set parameters.steps to at most 2",
        spec(SGD, parameters={"batch": 40, "steps": 2}),
    ),
    "a batch of more rows than there are": (
        facts(rows=100),
        spec(SGD, parameters={"batch": 101}),
        "set parameters.batch to at most 100",
        spec(SGD, parameters={"batch": 100}),
    ),
    "delta on a pure account": (
        PURE,
        spec(GD, delta=1e-6),
        "leave privacy.delta out or set it to 0",
        spec(GD, delta=0.0),
    ),
    "less than a unit": (
        facts(),
        spec(GD, epsilon=1e-6, delta=1e-12),
        "use 0.0001",
        spec(GD, epsilon=1e-4, delta=1e-12),
    ),
    "more noise than a word holds": (
        UNBOUNDED,
        spec(GD, epsilon=2e-5, delta=1e-9, parameters={"steps": 10**6, "clip": 1.0}),
        "fewer steps or a larger epsilon",
        spec(GD, epsilon=2e-5, delta=1e-9, parameters={"steps": 10**5, "clip": 1.0}),
    ),
    "more drawn than there are": (
        facts(rows=50),
        spec("accelerated-sgd", parameters={"batch": 51}),
        "set parameters.batch to at most 50",
        spec("accelerated-sgd", parameters={"batch": 50}),
    ),
    "more steps than an epsilon pays for": (
        UNBOUNDED,
        spec("accelerated-sgd", epsilon=1e-6, delta=0.0, parameters={"steps": 10**6, "clip": 1.0}),
        "fewer steps or a larger epsilon",
        spec("accelerated-sgd", epsilon=1e-6, delta=0.0, parameters={"steps": 10, "clip": 1.0}),
    ),
    "more steps than an epsilon pays for, in phases": (
        UNBOUNDED,
        spec(
            "localized-accelerated-sgd",
            epsilon=1e-6,
            delta=0.0,
            parameters={"steps": 10**6, "clip": 1.0},
        ),
        "fewer steps or a larger epsilon",
        spec(
            "localized-accelerated-sgd",
            epsilon=1e-6,
            delta=0.0,
            parameters={"steps": 10, "clip": 1.0},
        ),
    ),
    "halved to nothing": (
        facts(rows=50),
        spec("localized-accelerated-sgd", parameters={"halvings": 6}),
        "set parameters.halvings to at most 5",
        spec("localized-accelerated-sgd", parameters={"halvings": 5}),
    ),
    "more steps than rows": (
        facts(rows=50),
        spec(SGD, parameters={"steps": 51}),
        "set parameters.steps to at most 50",
        spec(SGD, parameters={"steps": 50}),
    ),
    "a clip by another name": (
        UNBOUNDED,
        spec(SGD, parameters={"clip": "secret"}),
        "it takes: steps, clip, clip_share, clip_quantile, moment",
        spec(SGD, parameters={"clip": "private"}),
    ),
    "a clip of nothing": (
        UNBOUNDED,
        spec("localized-subgradient", parameters={"clip": 0.0}),
        'a number from 1e-09 to 1e+09, or "private"',
        spec("localized-subgradient", parameters={"clip": 1e-9}),
    ),
    "a clip that pays for itself only": (
        facts(epsilon=1e-4, delta=0.01),
        spec(SGD, epsilon=1e-6, delta=1e-6, parameters={"clip": "private"}),
        "epsilon is too small",
        spec(SGD, epsilon=1e-4, delta=1e-6, parameters={"clip": "private"}),
    ),
    "a clip for unit vectors": (
        facts(),
        spec("localized-subgradient", loss="geometric_median", parameters={"clip": "private"}),
        "leave parameters.clip out",
        spec("localized-subgradient", loss="geometric_median"),
    ),
    "acceleration over a corner": (
        facts(),
        spec("accelerated-clipped-sgd", loss="hinge"),
        f"use the loss {either(SMOOTH)}, or use accelerated-sgd",
        spec("accelerated-clipped-sgd", loss="smoothed_hinge"),
    ),
    "a regulariser elsewhere": (
        facts(),
        spec("accelerated-clipped-sgd", regulariser={"kind": "l1", "strength": 0.1}),
        'leave "regulariser" out, or use accelerated-sgd, localized-accelerated-sgd, '
        "localized-subgradient, proximal-sgd or gradient-descent.",
        spec(GD, regulariser={"kind": "l1", "strength": 0.1}),
    ),
    "a regulariser over a set without its operator": (
        facts(),
        spec("proximal-sgd", set="simplex", regulariser={"kind": "l1", "strength": 0.1}),
        f"it runs over: {', '.join(s.name() for s in SETS if s.symmetric or s.separable)};",
        spec("proximal-sgd", set="box", regulariser={"kind": "l1", "strength": 0.1}),
    ),
    "groups of another number of features": (
        facts(columns=4),
        spec("proximal-sgd", regulariser={"kind": "group_lasso", "strength": 1, "groups": [4]}),
        "give sizes that add up to 3",
        spec("proximal-sgd", regulariser={"kind": "group_lasso", "strength": 1, "groups": [2, 1]}),
    ),
    "a proximal problem of unknown growth": (
        facts(),
        spec("proximal-sgd", ridge=0.0),
        "or set parameters.growth or parameters.steps",
        spec("proximal-sgd", ridge=0.0, parameters={"growth": 0.01}),
    ),
    "subgradients halved to nothing": (
        facts(rows=50),
        spec("localized-subgradient", parameters={"halvings": 6}),
        "set parameters.halvings to at most 5",
        spec("localized-subgradient", parameters={"halvings": 5}),
    ),
    "steps that diverge": (
        facts(),
        spec("gradient-descent", ridge=1.0, set="all", parameters={"step_size": 2.1}),
        "set parameters.step_size to 1,",
        spec("gradient-descent", ridge=1.0, set="all", parameters={"step_size": 1.0}),
    ),
    "a network's steps that diverge": (
        facts(),
        spec("gradient-descent", ridge=1e9, set="all", model="relu_network"),
        "or use the set l2_ball",
        spec("gradient-descent", ridge=1e9, set="l2_ball", model="relu_network"),
    ),
    "a set that is one point": (
        facts(columns=3),
        spec("gradient-descent", set={"kind": "simplex", "total": 5e-324}),
        "an l2_ball of radius 1",
        spec("gradient-descent", set={"kind": "l2_ball", "radius": 1.0}),
    ),
    "slopes below a float": (
        facts(columns=3),
        spec(
            "stationarity-certificate",
            loss="phase_retrieval",
            set={"kind": "polytope", "vertices": [[0, 0, 0]]},
        ),
        "an l2_ball of radius 1",
        spec(
            "stationarity-certificate",
            loss="phase_retrieval",
            set={"kind": "polytope", "vertices": [[0, 0, 1e-99]]},
        ),
    ),
}
