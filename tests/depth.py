"""How deep tables of cases are gone through: `make test-full` all of them, `make test` a part that
touches every value of every column; which part, is fixed."""

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

FULL = "EPSILOND_TEST_FULL" in os.environ


def some(*columns: Sequence[Any], one_in: int = 3) -> list[tuple[Any, ...]]:
    """Of all combinations of the columns' values, every one or every third: those whose places in the
    columns add up to a multiple of it, so that no two columns go in step."""
    every = list(product(*columns))
    if FULL:
        return every
    places = product(*(range(len(column)) for column in columns))
    return [case for case, at in zip(every, places, strict=True) if sum(at) % one_in == 0]
