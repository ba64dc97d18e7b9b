"""What kernels take: types of arrays, views that cannot be written, weights as integers."""

from collections.abc import Callable
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Sum = NDArray[np.int64]
Add = Callable[[Array, Array], Sum]  # the sum over a block of rows


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written: what a memory map gives, so kernels compile for it alone."""
    view = array.view()
    view.flags.writeable = False
    return view


def integer_weights(weights: Floats, l2_units: int) -> tuple[NDArray[np.int16], Any]:
    """Vectors [..., columns] as integers of at most 15 bits, and what one unit of each is worth.

    Scaled so that ||units||_2 l2_units < 2^31: by Cauchy and Schwarz no margin, nor any part of one,
    leaves int32. Gradients are thus evaluated at weights rounded to about 2^-15 of the largest; the
    weights are a function of earlier releases, so rounding them is nobody's privacy.
    """
    largest = np.abs(weights).max(axis=-1, keepdims=True)
    usable = (largest > 0.0) & (largest < inf)  # all zero, or no numbers at all: they count as zero
    if not usable.all():
        weights, largest = np.where(usable, weights, 0.0), np.where(usable, largest, 1.0)
    scaled = weights / largest
    lengths = np.sqrt(np.einsum("...i,...i->...", scaled, scaled))[..., None]
    headroom = (2**31 - 1) / l2_units - sqrt(weights.shape[-1])  # rounding adds at most sqrt(d)/2
    units_max = np.minimum(2**15 - 1, headroom / np.maximum(lengths, 1.0))
    return np.rint(scaled * units_max).astype(np.int16), (largest / units_max)[..., 0]
