"""clip(curvature (m - y), low, high)."""

from workers.kernels.shapes import RESIDUAL

KERNEL = RESIDUAL
