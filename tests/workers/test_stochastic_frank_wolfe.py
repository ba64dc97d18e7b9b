"""Stochastic Frank-Wolfe over lp balls: no exchange of one record, in whichever batch, moves a
released sum by more than was priced."""

from itertools import combinations, product
from math import isqrt, sqrt

import numpy as np
import pytest

from service.planning.algorithms.stochastic_frank_wolfe import row_norm
from service.planning.conversion import epsilon_of_gaussian
from service.planning.plan import Plan
from service.planning.price import fits_own_target
from service.planning.releases import Sequence
from service.planning.sets.lp_ball import LpBall
from service.planning.shared.rounds import slope_bounds, step_size
from service.planning.vectors import norm
from tests.planning.cases import facts
from tests.workers.scripted import (
    BALLS,
    NOISY,
    UNIT,
    D,
    N,
    made_for,
    played,
    positions,
    records,
    worlds,
)


def steered(made: Plan, seed: int):
    """Releases along an axis, now one way and now the other, so that w jumps from end to end."""
    rng = np.random.default_rng(seed)
    far = rng.normal(size=D) * 1e-3 + np.array([1.0, 0, 0])
    return lambda i: far * (-1) ** i * 1e6


@pytest.mark.parametrize("delta", [None, 0.0])
@pytest.mark.parametrize("where", BALLS.values(), ids=BALLS)
def test_no_exchange_in_any_batch_moves_a_sum_beyond_the_price(where, delta):
    made, pool = made_for(NOISY, where, delta=delta), records(UNIT)
    corners = np.array([*product((-1.0, 1.0), repeat=D)]) * np.trunc(UNIT / sqrt(D))
    pool += [(row, label) for row in corners for label in (1.0, -1.0)]
    release, l1 = made.lattice.release(), made.lattice.norm == "l1"
    for number, (_, _, place) in enumerate(positions(made)):
        runs = [played(made, x, y, steered(made, 1)) for x, y in worlds(place, pool)]
        farthest = 0
        for a, b in combinations(runs, 2):
            for i, ((p, step), (q, same)) in enumerate(zip(a, b, strict=True)):
                moved = [s - t for s, t in zip(p, q, strict=True)]
                assert step == same  # the clip is a function of what was released
                assert i == number or not any(moved)
                squares = sum(m * m for m in moved)
                l2 = isqrt(squares) + (isqrt(squares) ** 2 < squares)
                farthest = max(farthest, sum(map(abs, moved)) if l1 else l2)
        print(where, number, farthest / release.sensitivity)
        assert release.sensitivity / 1.5 < farthest <= release.sensitivity


def test_the_noise_follows_the_step_that_was_made():
    """The clip is C_t of the docstring at the actual distance, and a g_t's alone where w stayed."""
    made = made_for(NOISY, BALLS["l2"], loss="sigmoid")
    quiet = played(made, *worlds(0, records(UNIT))[0], lambda i: np.zeros(D))
    L0, Q = made.schedule.lipschitz, made.lattice.derivative_units
    sizes = [step_size(t) for one in made.schedule.rounds for t in range(one.steps)]
    for (_, step), a in zip(quiet, sizes, strict=True):
        assert step == pytest.approx(a * L0 / Q / UNIT, rel=1e-12)
    loud = played(made, *worlds(0, records(UNIT))[0], steered(made, 2))
    bounds = [
        c
        for one in made.schedule.rounds
        for c in slope_bounds(L0, made.schedule.smoothness * 0.2 * made.facts.l2, one.steps)
    ]
    for (_, step), bound, a in zip(loud, bounds, sizes, strict=True):
        assert a * L0 * 0.999 / Q / UNIT <= step <= bound * 1.001 / Q / UNIT


def test_the_printed_noise_would_be_for_half_of_what_a_record_moves():
    """A mean of b gradients of norm at most L0 X2 moves by 2 L0 X2/b, not by L0 X2/b."""
    made = made_for(NOISY, BALLS["l2"], parameters={"rounds": 1})
    x, y = np.zeros((N, D)), np.zeros(N)
    sums = []
    for label in (-1.0, 1.0):
        x[0], y[0] = [UNIT, 0, 0], label
        ((exact, step),) = played(made, x, y, lambda i: np.zeros(D))
        sums.append(np.array(exact) * step / N)
    assert float(np.linalg.norm(sums[0] - sums[1])) > 1.1 * 1.0 / N


def test_as_printed_two_releases_of_a_batch_would_spend_the_epsilon_twice():
    """Algorithm 5's proof has noise for the whole epsilon in the gradient's change and again in the
    gradient: here their sum is released, once for each batch."""
    made = made_for(NOISY, BALLS["l2"])
    one, (epsilon, delta) = made.lattice.release(), (1.0, 1e-6)
    assert fits_own_target(one, epsilon, delta)
    both = Sequence(parts=(one, one))
    assert not fits_own_target(both, epsilon, delta)
    assert epsilon_of_gaussian(both.gaussian(), delta) > 1.1 * epsilon
    batches = [rows for part in made.schedule.rounds for rows in part.batches()]
    seen = played(made, np.zeros((N, D)), np.zeros(N), lambda i: np.zeros(D))
    assert len(seen) == len(batches) == made.release.copies
    assert sum(map(len, batches)) == len(set().union(*batches))


@pytest.mark.parametrize("p", [1.001, 1.1, 1.5, 2.0])
def test_the_linear_minimiser_over_an_lp_ball_is_the_best_of_its_ball(p):
    rng, q = np.random.default_rng(3), p / (p - 1)
    for scale in (1e-200, 1.0, 1e200):
        d = rng.normal(size=6) * scale
        v = LpBall(p=p, radius=2.0).lowest(d)
        assert norm(v, p) == pytest.approx(2.0, rel=1e-9)
        assert v @ d == pytest.approx(-2.0 * norm(d, q), rel=1e-9)  # Hoelder, with equality
    for bad in (np.zeros(3), np.full(3, np.nan), np.array([np.inf, 1.0, 0.0])):
        assert np.array_equal(LpBall(p=p, radius=2.0).lowest(bad), np.zeros(3))


def test_a_row_s_dual_norm_is_bounded_by_both_enforced_norms():
    rng = np.random.default_rng(0)
    for p, l2_units in product((1.1, 1.5, 2.0), (1000, UNIT, 2 * UNIT)):
        about, q = facts(columns=6, l2_units=l2_units), p / (p - 1)
        rows = rng.normal(size=(500, 6)) ** 3
        rows *= (about.l2 / np.linalg.norm(rows, axis=1))[:, None]
        rows /= np.maximum(1, np.abs(rows).max(axis=1) / about.linf)[:, None]
        longest = max(norm(row, q) for row in rows)
        assert longest <= row_norm(about, p) * (1 + 1e-9)
        d = np.ones(6)
        assert norm(d, 2) <= 6 ** (1 / p - 0.5) * norm(d, q) * (1 + 1e-9)
