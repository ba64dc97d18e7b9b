"""AC-SA: accelerated stochastic descent on a smooth loss, in stages, and how a loss becomes smooth.

Problem: min over a convex set of Psi(w) = F(w) + h(w), F convex, h(w) = (mu/2) ||w||^2 with mu >= 0,
and a regulariser if there is one. W is the set's l2 radius, or what reach.py expects where the set is
all of R^d. The start is the point of the set nearest to 0, so no minimiser is further than D = W from
it, nor, in a set with 0 in it, than C/mu where C bounds a record's gradient: a regulariser is least at
0, so it only pulls there.

Schedule (KLL algorithm 3): for t = 1..T with a = 2/(t+1), the noisy mean gradient g of a beta-smooth F
at (1-a) v + a w,

    w <- argmin over the set of a (<g, u> + h(u)) + (c_t/2) ||u - w||^2,    v <- (1-a) v + a w,
    c_t = 2 (2 beta + s)/(t (t+1)) + mu (t-1)/(t+1).

h is solved exactly in that step, a scaled shift followed by the regulariser's operator of weight
a/(c_t + a mu) and the projection (which together are its operator on the set: regulariser.py), so h
has no noise, no clipping and no share in beta; but for an elastic net's square, which is part of F, as
intercepts have none of it. v is a mean of points with zeros, and so may have none itself. Dividing the
usual one-step inequality by Gamma_t = 2/(t (t+1)) makes c_t/Gamma_t = 2 beta + s + mu t (t-1)/2
telescope, and for gradients of variance V in all

    E Psi(v_T) - Psi* <= (2/(T (T+1))) [ (2 beta + s) D^2/2 + V sum_t t^2/(2 s + mu t (t-1)) ].

With mu = 0 the best s gives 2 beta D^2/T^2 + 1.16 sqrt(V) D/sqrt(T): the convex case needs no added
regulariser (Lemma 4.10 adds one, at a worse constant). With mu > 0 and s >= 2 mu the sum is at most
(4/3) T m/(2 s + mu m), m the mean of t^2, by concavity. The strongly convex repetition (Lemma 4.7) is
done by restarts: stages of T/2^(k-1), ..., T/4, T/2 steps, all with the same noise, so a stage's share
of the budget is its share of the steps. A stage ends within sqrt(2 error/mu) of the minimiser, which
is the D of the next. How many stages, at most four, the bound decides.

Smoothing: a loss with a corner is averaged over a ball of radius r. For a linear model the average
along a row is over one number and has a closed form, so nothing is sampled and it adds no variance. It
is that of the row padded to norm X2 by one coordinate in which w is zero: a restriction of the smooth
average, so no less smooth. A coordinate of a uniform point in the unit ball of dimension
k = columns + 1 has density c (1 - b^2)^((k-1)/2), c = Gamma(k/2 + 1)/(sqrt(pi) Gamma((k+1)/2)), which
is at most sqrt((k+1)/(2 pi)) since Gamma is log-convex; its positive part has mean c/(k+1). So where
the slope jumps by J the average has beta = J X2 sqrt((k+1)/(2 pi))/r and a bias of at most
J X2 r/sqrt(2 pi (k+1)). The bound pays for their product, (J X2)^2/(2 pi) in any dimension. The
paper's L sqrt(d)/r and L r (hence r = D d^(1/4)/T) allow for corners in all directions at once, of
product L^2 sqrt(d). beta = T J X2/(2 sqrt(pi) D) balances 2 beta D^2/T^2 against the bias, and larger
ones suit restarts. The geometric median is no linear model: it takes its Moreau envelope, of bias
L^2/(2 beta).
"""

from dataclasses import dataclass
from math import pi, sqrt

from pydantic import Field, PositiveInt

from service.planning.draft import Ball, Moreau, Part, Smoothing, rounded
from service.planning.problem import Problem
from service.planning.spec import Facts, JobSpec

STEPS = tuple(2**k for k in range(15))
STAGES_MAX = 4
_RADIUS_MIN, _RADIUS_MAX = 1e-12, 1e12  # of sets, for schedules: beyond, floats have no headroom


class Stage(Part):
    """A run of AC-SA from where the last one ended; `damping` is s."""

    steps: PositiveInt
    damping: float = Field(ge=0)


def start_distance(W: float, C: float, mu: float) -> float:
    """How far the minimiser may be from the point of the set nearest to 0."""
    D = min(W, C / mu) if mu > 0 else W
    return min(max(D, _RADIUS_MIN), _RADIUS_MAX)


@dataclass(frozen=True)
class Smoother:
    """How a loss becomes smooth, and what that costs: bias * beta is a constant."""

    beta: float | None  # of a loss that is smooth as it is
    price: float
    ball: float | None  # radius * beta, of the ball; None for a Moreau envelope

    @classmethod
    def of(cls, p: Problem, spec: JobSpec, facts: Facts) -> "Smoother":
        if p.is_smooth:
            return cls(p.beta, 0.0, None)
        if not spec.loss.margin:
            return cls(None, p.G**2 / 2, None)
        jump = p.X2 * spec.loss.scalar().jump
        return cls(None, jump**2 / (2 * pi), jump * sqrt((facts.columns + 2) / (2 * pi)))

    def steeper(self, by: float) -> "Smoother":
        """The same in a metric in which the loss is less smooth."""
        beta = None if self.beta is None else self.beta * by
        ball = None if self.ball is None else self.ball * by
        return Smoother(beta, self.price * by, ball)

    def bias(self, beta: float) -> float:
        return self.price / beta

    def choices(self, steps: int, D: float, mu: float) -> list[float]:
        """Smoothness worth trying: what balances 2 beta D^2/T^2 and the bias, and more for restarts,
        whose D shrinks."""
        if self.beta is not None:
            return [self.beta]
        balanced = steps / D * sqrt(self.price / 2)
        return [balanced * 4**k for k in range(7 if mu > 0 else 1)]

    def smoothing(self, beta: float) -> Smoothing | None:
        if self.beta is not None:
            return None
        if self.ball is None:
            return Moreau(smoothness=beta)
        return Ball(radius=self.ball / beta)


def unit_of(C: float, facts: Facts) -> float:
    """Where the clip is chosen, what dampings and pulls for a typical one, C, are divided by: runs
    multiply by what is chosen. Where labels have no bounds, weights are in proportion to them, hence
    to the clip, and dampings are as they are whatever is chosen."""
    return 1.0 if facts.label == "unbounded" else C


def per_clip(stages: tuple[Stage, ...], C: float, facts: Facts) -> tuple[Stage, ...]:
    unit = unit_of(C, facts)
    return tuple(Stage(steps=one.steps, damping=rounded(one.damping / unit)) for one in stages)


def staged(
    steps: int, beta: float, mu: float, D: float, V: float
) -> tuple[float, tuple[Stage, ...]]:
    """The bound above for the best number of stages, and the stages."""
    best = None
    for count in range(1, (STAGES_MAX if mu > 0 else 1) + 1):
        short = steps >> (count - 1)
        if short == 0:
            break
        lengths = [short, *(steps >> (count - i) for i in range(1, count))]
        lengths[-1] += steps - sum(lengths)
        distance, error, dampings = D, 0.0, []
        for length in lengths:
            error, damping = _stage(length, beta, mu, distance, V)
            dampings.append(damping)
            if mu > 0:
                distance = min(D, sqrt(2 * error / mu))
        if best is None or error < best[0]:
            best = error, lengths, dampings
    assert best is not None
    error, lengths, dampings = best
    pairs = zip(lengths, dampings, strict=True)
    return error, tuple(Stage(steps=length, damping=rounded(s)) for length, s in pairs)


def _stage(steps: int, beta: float, mu: float, D: float, V: float) -> tuple[float, float]:
    """The bound for one stage at the s that makes it smallest, and that s."""
    m = (steps + 1) * (2 * steps + 1) / 6
    V = V * 4 / 3 if mu > 0 else V
    s = max(2 * mu, sqrt(V * steps * m) / D - mu * m / 2)
    error = (beta + s / 2) * D**2 + V * steps * m / (2 * s + mu * m)
    return 2 / (steps * (steps + 1)) * error, s
