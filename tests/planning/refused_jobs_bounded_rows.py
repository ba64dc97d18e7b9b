"""Jobs that are refused by algorithms which need bounds on every row: minimisers, phases, vertices."""

from service.planning.catalog import CATALOG
from tests.planning.cases import facts, spec
from tests.planning.refused_jobs import ABSOLUTE, FREE, GD, UNBOUNDED

ADV = "adversarial-output-perturbation"
OP, PHASED, FW = "output-perturbation", "phased-sgd", "frank-wolfe"
SFW = "stochastic-frank-wolfe"
OBJECTIVE = "objective-perturbation"
REFUSED_BOUNDED_ROWS = {  # facts, refused job, what the refusal says, the job that it points to
    **{
        f"{name} of a label without bounds": (
            FREE,
            spec(name, loss="huber"),
            "rests on a bound on every label and this dataset's has none; declare bounds for it, or",
            ABSOLUTE,
        )
        for name in CATALOG
        if name in ("frank-wolfe", PHASED) or name.endswith("-perturbation")
    },
    "phases for less than a unit": (
        facts(),
        spec(PHASED, epsilon=1e-6, delta=1e-9),
        "use 0.0001",
        spec(PHASED, epsilon=1e-4, delta=1e-9),
    ),
    "a minimiser for less than a unit": (
        facts(),
        spec(OP, epsilon=1e-6, delta=1e-9),
        "use 0.0001",
        spec(OP, epsilon=1e-4, delta=1e-9),
    ),
    "a tilted minimiser for less than a unit": (
        facts(),
        spec(OBJECTIVE, epsilon=1e-6, delta=1e-9),
        "use 0.0001",
        spec(OBJECTIVE, epsilon=1e-4, delta=1e-9),
    ),
    "a tilted minimiser of a corner": (
        facts(),
        spec(OBJECTIVE, loss="hinge"),
        "needs a smooth loss and hinge has a corner; use the loss",
        spec(OBJECTIVE, loss="smoothed_hinge"),
    ),
    "a tilted minimiser over a box": (
        facts(),
        spec(OBJECTIVE, set="box"),
        "it runs over: l2_ball, all",
        spec(OBJECTIVE, set="l2_ball"),
    ),
    **{
        f"{name} of squares over all of R^d": (
            facts(label="numeric"),
            spec(name, loss="squared", set="all", ridge=0.1),
            "which this loss does not have over all of R^d; use the set l2_ball, or use ",
            spec(name, loss="squared", ridge=0.1),
        )
        for name in (OP, PHASED)
    },
    "a minimiser of unbounded rows": (
        UNBOUNDED,
        spec(OP),
        "declare bounds for every column, or use accelerated-sgd, ",
        spec(GD, parameters={"clip": 1.0}),
    ),
    "a minimiser of vectors of margins": (
        facts(),
        spec(ADV, loss="geometric_median"),
        "needs a loss of one margin <w, x>, which geometric_median is not; use the loss absolute,",
        spec(OP, loss="geometric_median"),
    ),
    "another solver for vectors of margins": (
        facts(),
        spec(OP, loss="geometric_median", parameters={"solver": "accelerated"}),
        "use averaged-passes",
        spec(OP, loss="geometric_median", parameters={"solver": "averaged-passes"}),
    ),
    "a minimiser over a box": (
        facts(),
        spec(OP, set="box"),
        "it runs over: l2_ball, all",
        spec(OP, set="all"),
    ),
    "a minimiser that may not exist": (
        facts(),
        spec(OP, set="all", ridge=0.0),
        "set ridge (for example 0.01), or use the set l2_ball",
        spec(OP, set="all", ridge=0.01),
    ),
    "a minimiser of almost no ridge": (
        facts(),
        spec(OP, ridge=1e-10),
        "at least 1e-09, or 0",
        spec(OP, ridge=0.0),
    ),
    "a minimiser without a gradient bound": (
        facts(),
        spec(OP, loss="squared", set="all"),
        "use the set l2_ball",
        spec(OP, loss="squared", set="l2_ball"),
    ),
    "acceleration under a penalised adversary": (
        facts(),
        spec(ADV, parameters={"adversary": "penalised", "solver": "accelerated"}),
        "use the solver averaged-passes",
        spec(ADV, parameters={"adversary": "penalised", "solver": "averaged-passes"}),
    ),
    "subgradients of many rows": (
        facts(),
        spec(OP, loss="hinge", parameters={"solver": "subgradient"}),
        "use the solver gradient-descent",
        spec(OP, loss="hinge", parameters={"solver": "gradient-descent"}),
    ),
    "phases of a single row": (
        facts(rows=1),
        spec(PHASED),
        "at least 2 rows and the dataset has 1; use an algorithm without phases",
        spec(GD),
    ),
    "phases over an l1 ball": (
        facts(),
        spec(PHASED, set="l1_ball"),
        "it runs over: l2_ball, all",
        spec(PHASED, set="all"),
    ),
    "phases over almost a point": (
        facts(),
        spec(PHASED, set={"radius": 1e-13}),
        "radius at least 1e-12",
        spec(PHASED, set={"radius": 1e-12}),
    ),
    "phases of a loss without a margin": (
        facts(),
        spec(PHASED, loss="geometric_median"),
        "needs a loss of one margin <w, x>, which geometric_median is not; use the loss absolute,",
        spec(GD, loss="geometric_median"),
    ),
    "phases of a loss without a slope bound": (
        facts(),
        spec(PHASED, loss="squared", set="all"),
        "use the set l2_ball",
        spec(PHASED, loss="squared", set="l2_ball"),
    ),
    "phases of unbounded rows": (
        UNBOUNDED,
        spec(PHASED),
        "declare bounds for every column, or use accelerated-sgd, ",
        spec(GD, parameters={"clip": 1.0}),
    ),
    "a rank within a ball": (
        facts(),
        spec(PHASED, parameters={"rank": 3}),
        "leave it out or use the set all",
        spec(PHASED, set="all", parameters={"rank": 3}),
    ),
    "vertices of a ball": (
        facts(),
        spec(FW, set={"radius": 1.0}),
        "it runs over: l1_ball, simplex, polytope",
        spec(FW, set="simplex"),
    ),
    "vertices for unbounded rows": (
        UNBOUNDED,
        spec(FW),
        "declare bounds for every column, or use accelerated-sgd, ",
        spec(GD, parameters={"clip": 1.0}),
    ),
    "vertices for a loss without a margin": (
        facts(),
        spec(FW, loss="geometric_median"),
        "needs a loss of one margin <w, x>, which geometric_median is not; use the loss absolute,",
        spec(GD, loss="geometric_median"),
    ),
    "a polytope of another width": (
        facts(columns=2),
        spec(FW, set={"kind": "polytope", "vertices": [[0], [1]]}),
        "every vertex needs 2 entries",
        spec(FW, set={"kind": "polytope", "vertices": [[0, 0], [1, 0]]}),
    ),
    "a polytope of another width, without choices": (
        facts(columns=2),
        spec(SFW, set={"kind": "polytope", "vertices": [[0], [1]]}),
        "every vertex needs 2 entries",
        spec(SFW, set={"kind": "polytope", "vertices": [[0, 0], [1, 0]]}),
    ),
    "a linear minimum that there is not": (
        facts(),
        spec(SFW, set="all"),
        "it runs over: l2_ball, l1_ball, lp_ball, simplex, box, polytope",
        spec(SFW, set="box"),
    ),
    "a polytope of one vertex": (
        facts(columns=2),
        spec(FW, set={"kind": "polytope", "vertices": [[0, 1], [0, 1]]}),
        "at least 2 vertices",
        spec(FW, set={"kind": "polytope", "vertices": [[0, 1], [1, 0]]}),
    ),
    "a polytope without an extent": (
        facts(columns=1),
        spec(FW, set={"kind": "polytope", "vertices": [[0], [1e-100]]}),
        "less than 1e-90",
        spec(FW, set={"kind": "polytope", "vertices": [[0], [1e-80]]}),
    ),
    "a simplex of one vertex": (
        facts(columns=1),
        spec(FW, set="simplex"),
        "at least 2 vertices",
        spec(FW, set="l1_ball"),
    ),
    "more choices than a scale holds": (
        facts(),
        spec(FW, epsilon=1e-6, delta=0.0, parameters={"steps": 10**6}),
        "fewer steps or a larger epsilon",
        spec(FW, epsilon=1e-6, delta=0.0, parameters={"steps": 10**3}),
    ),
}
