"""Accelerated stochastic descent on the smoothed loss: few passes where n is large.

**Problem.** min over a convex set of Psi(w) = F(w) + h(w), F = (1/n) sum l(w; x_i, y_i) convex and
h(w) = (mu/2) ||w||^2 with mu = ridge, which may be zero. W is the set's l2 radius (10 stands in for it
where the set is all of R^d). The start is the point of the set nearest to 0, so no minimiser is
further than D = W from it, nor than C/mu where C bounds a record's gradient.

**Schedule.** KLL algorithm 4: AC-SA (its algorithm 3) with noisy gradients of batches, on a smooth
loss. For t = 1..T with a = 2/(t+1), the noisy mean gradient g at (1-a) v + a w,

    w <- argmin over the set of a (<g, u> + h(u)) + (c_t/2) ||u - w||^2,    v <- (1-a) v + a w,
    c_t = 2 (2 beta + s)/(t (t+1)) + mu (t-1)/(t+1).

h is solved exactly in that step, a scaled shift followed by the projection, so the ridge has no
noise, no clipping and no share in beta. Dividing the usual one-step inequality by
Gamma_t = 2/(t (t+1)) makes c_t/Gamma_t = 2 beta + s + mu t (t-1)/2 telescope, and for gradients of
variance V in all

    E Psi(v_T) - Psi* <= (2/(T (T+1))) [ (2 beta + s) D^2/2 + V sum_t t^2/(2 s + mu t (t-1)) ].

With mu = 0 the best s gives 2 beta D^2/T^2 + 1.16 sqrt(V) D/sqrt(T): the convex case needs no added
regulariser (Lemma 4.10 adds one, at a worse constant). With mu > 0 and s >= 2 mu the sum is at most
(4/3) T m/(2 s + mu m), m the mean of t^2, by concavity. The strongly convex repetition (Lemma 4.7) is
done by restarts: stages of T/2^(k-1), ..., T/4, T/2 steps, all with the same noise, so a stage's share
of the budget is its share of the steps. A stage ends within sqrt(2 error/mu) of the minimiser, which
is the D of the next. How many stages, at most four, the bound decides.

A loss with a corner is averaged over a ball of radius r. For a linear model the average along a row
is over one number and has a closed form, so nothing is sampled and it adds no variance. It is that
of the row padded to norm X2 by one coordinate in which w is zero: a restriction of the smooth
average, so no less smooth. A coordinate of a uniform point in the unit ball of dimension
k = columns + 1 has density c (1 - b^2)^((k-1)/2), c = Gamma(k/2 + 1)/(sqrt(pi) Gamma((k+1)/2)), which
is at most sqrt((k+1)/(2 pi)) since Gamma is log-convex; its positive part has mean c/(k+1). So where
the slope jumps by J the average has beta = J X2 sqrt((k+1)/(2 pi))/r and a bias of at most
J X2 r/sqrt(2 pi (k+1)). The bound pays for their product, (J X2)^2/(2 pi) in any dimension. The
paper's L sqrt(d)/r and L r (hence r = D d^(1/4)/T) allow for corners in all directions at once, of
product L^2 sqrt(d). beta = T J X2/(2 sqrt(pi) D) balances 2 beta D^2/T^2 against the bias, and larger
ones suit restarts. The geometric median is no linear model: it takes its Moreau envelope, of bias
L^2/(2 beta).

T is a power of two up to 2^14, and a batch is n halved some times such that T B is at most 512 n and,
where that is more than 32 n, at most 2^27. By default a batch is the smallest that adds hardly any
variance to that of the noise, and of the T whose bound, at the noise calibrated for both, is within a
tenth of the smallest the one is taken that needs the least time; but one up to 512 where its bound is
within 2.5 times the smallest. Where B = n nothing is drawn.

**Formal guarantee.** Neighbours replace one record. Step t draws B of n positions uniformly without
replacement, fresh and secret, independent of the data, and releases the sum over them of integer
contributions, each of norm at most c (`lattice`), plus noise. Given the batch and the past, replacing
a record of the batch moves the sum by at most 2c, and replacing another moves nothing. That is
`SampledGaussian` of sensitivity 2c (`Subsample`, for Laplace). T of them compose adaptively, since
the point of evaluation is a function of earlier releases: the cost is T times one. Everything else
is post-processing.

**Errata repaired.** Theorem 3.1 takes sensitivity G; under replacement it is 2G, and its constants are
replaced by the accountant. Algorithm 3 prints a = 2/(t+2), which never forgets the start, and
proximal terms without 1/2. Algorithm 4 prints r = D/(T d^(1/4)), smaller by sqrt(d) than its proof.
Lemma 4.10's u ||w||^2 is 2u-strongly convex.
"""

from dataclasses import dataclass
from math import isfinite, log, pi, sqrt

from service.planning.algorithms.gradient_descent import SETS, clip_bound
from service.planning.assemble import assemble
from service.planning.lattice import calibrate, target
from service.planning.losses import Problem, problem
from service.planning.plan import (
    AcceleratedSgdSchedule,
    Ball,
    Moreau,
    Plan,
    Prediction,
    Smoothing,
    Stage,
    rounded,
)
from service.planning.requirements import require_set
from service.planning.spec import Facts, JobSpec
from service.planning.subsampling import (
    Batches,
    Candidate,
    best_halvings,
    calibrate_sampled,
    drawing_variance,
    gradients_max,
    noise_variance,
    quickest,
    sampled,
)

NAME = "accelerated-sgd"
Parameters = Batches
STEPS = tuple(2**k for k in range(15))
STAGES_MAX = 4
_RADIUS_MIN, _RADIUS_MAX = 1e-12, 1e12  # of sets, for schedules: beyond, floats have no room


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Plan:
    require_set(NAME, spec, SETS)
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, mu = p.n, p.d, spec.ridge
    asked = parameters.batch_of(n)
    clip = clip_bound(parameters, p, facts)
    C = clip * (p.X2 if p.rowwise else 1.0)
    D = start_distance(p, C, mu)
    plain = calibrate(goal, facts, p, clip, times=1)
    smooth = Smoother.of(p, spec, facts)
    candidates = []
    for steps in steps_to_try(parameters.steps, asked, n):
        batch = asked
        if batch is None:
            batch = n >> best_halvings(goal, facts, plain, d, C, n, steps)
        noise = noise_variance(goal, facts, plain, batch, n, steps)
        V = d * noise / batch**2 + drawing_variance(C, batch, n)
        for beta in smooth.choices(steps, D, mu):
            error, _ = staged(steps, beta, mu, D, V)
            candidates.append(Candidate(error + smooth.bias(beta), steps, batch, beta))
    best = quickest(candidates)
    steps, batch, beta = best.steps, best.batch, best.smoothness

    lattice = calibrate_sampled(goal, facts, p, clip, batch, n, steps)
    V = d * lattice.variance / batch**2 + drawing_variance(C, batch, n)
    error, stages = staged(steps, beta, mu, D, V)
    # KLL Theorem 3.1 with its constant c2 = 1, per mean
    paper = C * sqrt(steps * -log(goal.delta)) / (goal.epsilon * n) if goal.delta > 0 else 0.0
    return assemble(
        spec,
        facts,
        goal,
        p,
        algorithm=NAME,
        smoothing=smooth.smoothing(beta),
        schedule=AcceleratedSgdSchedule(batch=batch, smoothness=rounded(beta), stages=stages),
        lattice=lattice,
        release=sampled(lattice.release(), batch, n, steps),
        prediction=Prediction(
            theorem="AC-SA with known variance (Ghadimi and Lan 2012) and KLL Lemma 4.7, as bounds",
            excess_risk=rounded(error + smooth.bias(beta)),
            noise_squared=rounded(steps * d * lattice.variance),
            paper_noise=rounded(paper),
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def steps_to_try(asked: int | None, batch: int | None, rows: int) -> list[int]:
    if asked is not None:
        return [asked]
    return [steps for steps in STEPS if steps * (batch or 1) <= gradients_max(rows)] or [1]


def start_distance(p: Problem, C: float, mu: float) -> float:
    """A bound on how far the minimiser is from the point of the set nearest to 0."""
    W = p.W if isfinite(p.W) else 10.0
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
