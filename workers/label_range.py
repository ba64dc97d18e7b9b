"""The choice of a range for labels by how many are in each: service/planning/shared/label_range.py."""

import numpy as np
from numpy.typing import NDArray

from service.planning.draft import LabelRange
from service.planning.shared.label_range import WIDER
from workers.arrays import Floats, Sum
from workers.gate import Ballot
from workers.rows import Rows

_PER_UNIT = 2 ** (LabelRange.OCTAVES + 1)  # cells in a length of 1
CELLS = 2 * _PER_UNIT
_TOGETHER = 1 << 18  # that are counted as one block


def _candidates() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """First cell, cell after the last, and octave of every candidate, within [-1, 1]."""
    found = [(0, CELLS, 0)]
    for octave in range(1, LabelRange.OCTAVES + 1):
        half = _PER_UNIT >> octave
        middles = range(0, CELLS + 1, half // 2)
        found += [(max(m - half, 0), min(m + half, CELLS), octave) for m in middles]
    first, stop, octaves = np.array(found, dtype=np.int64).T
    return first, stop, octaves


FIRST, STOP, OCTAVES = _candidates()


def cells(labels: Floats) -> Sum:
    """How many labels are in each cell; one that is no number counts as 0."""
    place = np.floor((np.clip(np.nan_to_num(labels), -1.0, 1.0) + 1.0) * _PER_UNIT)
    return np.bincount(np.minimum(place, CELLS - 1).astype(np.int64), minlength=CELLS)


def counted(rows: Rows) -> Sum:
    """How many labels are in each cell, of all rows."""
    blocks = list(rows.blocks(lambda _, y: cells(y), _TOGETHER))
    return np.asarray(np.sum(blocks, axis=0, dtype=np.int64))


def range_ballot(counts: Sum, asked: LabelRange) -> Ballot:
    """`counts` has for every cell how many labels are in it."""

    def by(counts: Sum) -> Sum:
        below = np.concatenate([[0], np.cumsum(counts)])
        short = np.maximum(asked.rank - (below[STOP] - below[FIRST]), 0)
        return np.asarray(short + asked.penalty * (LabelRange.OCTAVES - OCTAVES))

    one, other = np.zeros((2, CELLS), dtype=np.int64)
    one[0], other[-1] = 1, 1
    return Ballot(counts, by, by, (one, other), LabelRange.SENSITIVITY)


def interval(chosen: int) -> tuple[float, float]:
    """Middle and half length of a candidate, widened but not beyond what labels can be."""
    first, stop = int(FIRST[chosen]), int(STOP[chosen])
    middle, half = (first + stop) / (2 * _PER_UNIT) - 1.0, (stop - first) / (2 * _PER_UNIT)
    return middle, min(WIDER * half, 1.0 + abs(middle))
