"""What a run may make of its releases besides the weights of a model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Certificate:
    """What the data says of a model that was released before."""

    gradient: NDArray[np.float64]  # the noisy mean gradient there, without the ridge
    content: dict[str, Any]  # of the published card
