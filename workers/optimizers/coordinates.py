"""What released moments say of rows: where they are, how far they spread and which way. All of it is
post-processing; the linear algebra is our own, for that of BLAS depends on its threads."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import MomentLattice
from service.planning.plan import Plan
from service.planning.shared.moments import DERIVED_UNITS, Coordinates, deviation
from workers.data import Data, Frame
from workers.kernels.cholesky import cholesky, inverse

Floats = NDArray[np.float64]
_LEAST_SPREAD = 0.005  # of rows about their mean, in squared bounds of a row
_MORE = 1.25  # damping, where S and it are not positive definite
_LABEL_VARIANCE = 0.25  # of the mean of y, before anything is known of it


@dataclass(frozen=True)
class Located:
    """The frame in which second moments are taken, and how far off its centre of labels may be."""

    frame: Frame
    label_noise: float


@dataclass(frozen=True)
class Whitened:
    """In the frame: S, about the covariance of x; b, about that with y; v, that of y; the deviations of
    the noise in an entry of b and in v; `a`, by which rows are about white; the trace of a S a'."""

    S: Floats
    b: Floats
    v: float
    b_noise: float
    v_noise: float
    a: Floats
    effective: float

    def back(self, w: Floats) -> Floats:
        """What weights of white coordinates are for x."""
        return np.asarray(np.einsum("ij,i->j", self.a, w))

    def spread(self, w: Floats) -> float:
        """The variance of margins."""
        beta = self.back(w)
        return max(0.0, float(np.einsum("i,ij,j->", beta, self.S, beta)))

    def residual(self, w: Floats) -> float:
        """The variance of y - <w, x>, as it is released: it may be negative."""
        return self.v - 2 * float(np.einsum("i,i->", self.back(w), self.b)) + self.spread(w)


def locate(plan: Plan, data: Data, lattice: MomentLattice, rules: Coordinates) -> Located:
    """From the first moments; the centre of labels is shrunk towards 0 as far as noise calls for."""
    facts, n = plan.facts, plan.facts.rows
    bound, step = facts.linf or 1.0, facts.feature_step or 0.0
    longest = facts.l2 or 1.0
    released = data.noisy_means() / n
    noise = deviation(lattice) / n
    entry, label = noise * step, noise / lattice.label_units
    raw, (y, squares, y_squares) = released[:-3], released[-3:]
    centre = np.clip(raw, -bound, bound)
    about = squares - (float(np.einsum("i,i->", raw, raw)) - raw.size * entry**2)
    about = max(about, _LEAST_SPREAD * longest**2)
    radius = min(rules.row_radius * sqrt(about + raw.size * entry**2), 2 * longest)
    y = min(max(float(y), -1.0), 1.0) / (1 + label**2 / _LABEL_VARIANCE)
    widest = 1 + abs(y)
    if facts.label == "binary":
        label_radius = widest
    else:
        deviation_y = sqrt(max(float(y_squares) - y**2, 0.0) + 2 * label)
        label_radius = min(rules.label_radius * min(max(deviation_y, 0.01), 1.0), widest)
    return Located(Frame(centre, radius, y, label_radius), label)


def whiten(
    plan: Plan,
    data: Data,
    lattice: MomentLattice,
    rules: Coordinates,
    located: Located,
    ridge: float,
) -> Whitened:
    """From the second moments; `ridge` is added to S."""
    n, frame = plan.facts.rows, located.frame
    moments = data.noisy_moments(frame) / n
    S, b = moments[:-1, :-1].copy(), moments[:-1, -1].copy()
    unit, label = frame.radius / DERIVED_UNITS, frame.label_radius / lattice.label_units
    noise = deviation(lattice) / n
    v_noise = noise * label**2 * lattice.beside / lattice.diagonal
    least = rules.damping * 2 * sqrt(len(moments)) * noise * unit**2
    damping, one = least, np.eye(len(S))
    while not cholesky(S + (damping - least / 2) * one)[1]:
        damping *= _MORE
    damping += ridge
    a = inverse(cholesky(S + damping * one)[0])
    effective = max(0.0, len(S) - damping * float(np.einsum("ij,ij->", a, a)))
    v = min(max(float(moments[-1, -1]), 1e-6), frame.label_radius**2)
    return Whitened(S, b, v, noise * unit * label, v_noise, a, effective)


def shrinkage(squared: float, variance: float, size: int, threshold: float) -> float:
    """James and Stein's factor for `size` weights of this squared length, each known to a variance; 0
    where noise alone might be as long."""
    chi = squared / max(variance, 1e-300)
    if chi < size + threshold * sqrt(2 * size):
        return 0.0
    return max(0.0, 1 - max(size - 2, 0.5) / max(chi, 1e-12))


def stored_weights(plan: Plan, located: Located, white: Whitened, w: Floats) -> Floats:
    """The weights of rows as they are stored: their column 0 is the constant, `linf`."""
    beta = white.back(w[1:])
    intercept = w[0] - float(np.einsum("i,i->", located.frame.centre, beta))
    return np.concatenate([[intercept / (plan.facts.linf or 1.0)], beta])


def penalty_of(plan: Plan, located: Located, white: Whitened) -> Floats | None:
    """The Hessian of the ridge in white coordinates; none without one."""
    if plan.spec.ridge == 0:
        return None
    size = plan.dimension
    back = np.array([stored_weights(plan, located, white, unit) for unit in np.eye(size)])
    return np.asarray(plan.spec.ridge * np.einsum("ik,jk->ij", back, back))
