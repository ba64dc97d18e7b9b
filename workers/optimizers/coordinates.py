"""What released moments say of rows: where they are, how far they spread and which way. All of it is
post-processing; the linear algebra is our own, for that of BLAS depends on its threads."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import MomentLattice
from service.planning.plan import Plan
from service.planning.shared.moments import DERIVED_UNITS, Coordinates, deviation
from workers.data import Data, Frame
from workers.kernels.symmetric import eigen
from workers.optimizers.labels import expected, mean_label

Floats = NDArray[np.float64]
_SAFE = 1.2  # deviations of noise that a variance is taken to be larger by
_SPREAD_MIN = 0.02  # of the trace, that is shared out among all directions
_VARIANCE_MIN = 1e-6
_MORE = 1.3  # damping, where white rows have too many dimensions
_LABEL_VARIANCE = 0.25  # of the mean of y, before anything is known of it


class Located(NamedTuple):
    """The frame in which second moments are taken, and how far off its centre of labels may be."""

    frame: Frame
    label_noise: float


class White(NamedTuple):
    """In the frame: `a`, by which rows are about white, and the variances `r` of white rows; b, about
    their covariances with y, and the variances of its noise; v, that of y, and its deviation's."""

    a: Floats
    r: Floats
    b: Floats
    b_noise: Floats
    v: float
    v_noise: float

    def by(self, a: Floats) -> "White":
        """The same of rows that are made by `a`."""
        return White(a, *self[1:])

    @property
    def effective(self) -> float:
        return float(self.r.sum())

    def back(self, w: Floats) -> Floats:
        """What weights of white rows are for x."""
        return np.asarray(np.einsum("ij,i->j", self.a, w))

    def spread(self, w: Floats) -> float:
        """The variance of margins."""
        return float(np.einsum("i,i,i->", self.r, w, w))

    def residual(self, w: Floats) -> float:
        """The variance of y - <w, x>, but no less than its noise may hide."""
        found = self.v - 2 * float(np.einsum("i,i->", w, self.b)) + self.spread(w)
        return max(found, self.v_noise / 2, _VARIANCE_MIN)

    def kept(self, w: Floats, variances: Floats, doubt: float) -> float:
        """How much to keep of w, known to such variances: James and Stein's factor in the metric of
        margins, 0 where noise alone might spread them as much."""
        noise = self.r * variances
        spread, expected = self.spread(w), float(noise.sum())
        if spread <= expected + doubt * sqrt(2 * float(np.einsum("i,i->", noise, noise))):
            return 0.0
        return 1 - expected / spread


def locate(
    plan: Plan,
    data: Data,
    lattice: MomentLattice,
    rules: Coordinates,
    label_sum: MomentLattice | None = None,
) -> Located:
    """From the first moments, and the sum of labels if there is one. Without, the centre of labels is
    shrunk towards 0 as far as noise calls for."""
    told = None if label_sum is None else mean_label(data, label_sum, plan.facts.rows)
    facts, n = plan.facts, plan.facts.rows
    bound, longest, step = facts.linf or 1.0, facts.l2 or 1.0, facts.feature_step or 0.0
    released = data.noisy_means() / n
    noise = deviation(lattice) / n
    entry, label = noise * step, noise / lattice.label_units
    relative = entry / longest  # the noise of the mean of |x|^2 is as much of its bound
    raw, (y, squares, y_squares) = released[:-3], released[-3:]
    of_noise = raw.size * entry**2
    of_mean = max(float(np.einsum("i,i->", raw, raw)) - of_noise, 0.0)
    variance = max(float(squares) - of_mean, 0.0)
    variance += _SAFE * entry * sqrt(longest**2 + 4 * of_mean + 2 * of_noise)
    radius = min(rules.row_radius * sqrt(variance + of_noise), longest)
    if told is None:
        y = min(max(float(y), -1.0), 1.0) / (1 + label**2 / _LABEL_VARIANCE)
    else:
        seen, own = told
        y = (seen / own**2 + float(y) / label**2) / (1 / own**2 + 1 / label**2)
        label = 1 / sqrt(1 / own**2 + 1 / label**2)
        y = expected(y, label)
    label_radius = 1 + abs(y)
    if facts.label != "binary":
        variance = max(float(y_squares) - y**2, 0.0)
        variance += _SAFE * sqrt(relative**2 + 4 * y**2 * label**2)
        label_radius = min(rules.label_radius * max(sqrt(variance), 0.01), label_radius)
    return Located(Frame(np.clip(raw, -bound, bound), radius, y, label_radius), label)


def whiten(
    plan: Plan,
    data: Data,
    lattice: MomentLattice,
    rules: Coordinates,
    located: Located,
    ridge: float,
) -> White:
    """From the second moments; `ridge` is added to S."""
    n, frame = plan.facts.rows, located.frame
    moments = data.noisy_moments(frame) / n
    size = len(moments) - 1
    unit, label = frame.radius / DERIVED_UNITS, frame.label_radius / lattice.label_units
    noise = deviation(lattice) / n
    norm = 2 * sqrt(size + 1) * noise * unit**2
    values, vectors = eigen(moments[:-1, :-1].copy())
    trace = max(float(values.sum()), 1e-6)
    signal = np.maximum(values - rules.threshold * norm, 0.0)
    signal += max(trace - float(signal.sum()), _SPREAD_MIN * trace) / max(size, 1)
    damping = rules.damping * norm + ridge
    most = rules.effective
    if plan.facts.label == "binary":
        most *= max(1 - min(abs(frame.label_centre), 0.98) ** 2, 0.2)
    while (effective := float((signal / (signal + damping)).sum())) * (effective + 1) > most**2:
        damping *= _MORE
    scale = 1 / np.sqrt(signal + damping)
    a = vectors * scale[:, None]
    b = np.einsum("ij,j->i", a, moments[:-1, -1])
    v = min(max(float(moments[-1, -1]), _VARIANCE_MIN), frame.label_radius**2)
    v_noise = noise * label**2 * lattice.beside / lattice.diagonal
    b_noise = (noise * unit * label * scale) ** 2
    return White(a, signal * scale**2, b, b_noise, v, v_noise)


def stored_weights(plan: Plan, located: Located, white: White, w: Floats) -> Floats:
    """The weights of rows as they are stored: their column 0 is the constant, `linf`."""
    beta = white.back(w[1:])
    intercept = w[0] - float(np.einsum("i,i->", located.frame.centre, beta))
    return np.concatenate([[intercept / (plan.facts.linf or 1.0)], beta])


def penalty_of(plan: Plan, located: Located, white: White) -> Floats | None:
    """The Hessian of the ridge in white coordinates; none without one."""
    if plan.spec.ridge == 0:
        return None
    size = plan.dimension
    back = np.array([stored_weights(plan, located, white, unit) for unit in np.eye(size)])
    return np.asarray(plan.spec.ridge * np.einsum("ik,jk->ij", back, back))
