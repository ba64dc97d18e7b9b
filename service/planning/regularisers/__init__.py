"""Regularisers, one file each. Adding one is a file here and a line in this list."""

from typing import TYPE_CHECKING

from service.planning.kinds import classes, union
from service.planning.regulariser import BaseRegulariser

REGULARISERS: tuple[type[BaseRegulariser], ...] = classes(
    __name__,
    [
        "none:NoRegulariser",
        "l1:L1",
        "elastic_net:ElasticNet",
        "group_lasso:GroupLasso",
    ],
)
if TYPE_CHECKING:
    Regulariser = BaseRegulariser
else:
    Regulariser = union(REGULARISERS)
