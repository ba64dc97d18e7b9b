"""Kernels of the losses, one file each, of the same names as in service/planning/losses/, whose list
is the only one. A loss of one margin brings a `Kernel`, another a `VectorKernel`."""

from importlib import import_module
from typing import Any

from service.planning.losses import LOSSES
from workers.kernels.shapes import Kernel
from workers.vector_losses import VectorKernel

_ALL: dict[str, Any] = {
    module: import_module(f"workers.losses.{module}").KERNEL
    for module in (loss.name() for loss in LOSSES)
}
KERNELS: dict[str, Kernel] = {n: k for n, k in _ALL.items() if isinstance(k, Kernel)}
VECTOR_KERNELS: dict[str, VectorKernel] = {
    n: k for n, k in _ALL.items() if isinstance(k, VectorKernel)
}
