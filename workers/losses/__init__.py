"""Kernels of the losses, one file each, of the same names as in service/planning/losses/, whose list
is the only one. A loss of one margin brings a `Kernel`; another brings sums of its own."""

from pkgutil import resolve_name
from typing import Any

from service.planning.losses import LOSSES

KERNELS: dict[str, Any] = {
    loss.name(): resolve_name(f"{__name__}.{loss.name()}:KERNEL") for loss in LOSSES if loss.margin
}
