"""The choice of a clip by how many records are no longer: service/planning/shared/heavy_tails.py."""

import numpy as np

from service.planning.draft import PrivateClip
from workers.arrays import Sum
from workers.gate import Ballot

CLIPS = 2.0 ** (np.array(PrivateClip.CHOICES) / 4)


def clip_ballot(counts: Sum, asked: PrivateClip) -> Ballot:
    """`counts` has for every candidate how many records are no longer."""
    base = asked.rank - 1 + 2 * (np.arange(counts.size) >= counts.size // 2)

    def by(counts: Sum) -> Sum:
        return clip_scores(counts, asked.rank)

    return Ballot(counts, by, by, (base, base + 1), asked.SENSITIVITY)


def clip_scores(counts: Sum, rank: int) -> Sum:
    """How far each candidate is from being the first with `rank` records below it."""
    fewer = np.concatenate([[0], counts[:-1]])
    return np.asarray(np.maximum(np.maximum(rank - counts, fewer - rank), 0))
