"""Feasible sets, one file each. Adding one is a file here and a line in this list."""

from typing import TYPE_CHECKING

from service.planning.feasible import BaseSet, DefaultSet
from service.planning.kinds import classes, union

SETS: tuple[type[BaseSet], ...] = classes(
    __name__,
    [
        "all:AllSpace",
        "l2_ball:L2Ball",
        "l1_ball:L1Ball",
        "lp_ball:LpBall",
        "simplex:Simplex",
        "box:Box",
        "polytope:Polytope",
    ],
)
if TYPE_CHECKING:
    FeasibleSet = BaseSet
    AskedSet = BaseSet
else:
    FeasibleSet = union(SETS)
    AskedSet = union((DefaultSet, *SETS))  # as a job names it; a Plan names one of SETS
