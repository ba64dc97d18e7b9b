"""-y clip(curvature (1 - y m), 0, 1)."""

from workers.kernels.shapes import MARGIN

KERNEL = MARGIN
