"""No set by name: the one that the algorithm does best with."""

from typing import Literal

from service.planning.feasible import BaseSet


class DefaultSet(BaseSet):
    """The set that the algorithm does best with; the Plan names it."""

    kind: Literal["default"] = "default"
