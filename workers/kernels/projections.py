"""Projections on the feasible sets. Post-processing: no privacy argument rests on them."""

import numpy as np
from numpy.typing import NDArray


def project_l2(w: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    norm = float(np.linalg.norm(w))
    return w if norm <= radius else w * (radius / norm)
