"""Stochastic Frank-Wolfe over polytopes: no exchange of one record, in whichever batch, moves two
scores apart by more than was priced."""

from fractions import Fraction
from functools import partial
from itertools import combinations, product
from math import exp, isqrt, lgamma, log, log1p, sqrt

import numpy as np
import pytest

from service.planning.algorithms import polyhedral_stochastic_frank_wolfe as planning
from service.planning.catalog import plan
from service.planning.lattice import DERIVATIVE_UNITS
from service.planning.price import fits_own_target, price_units
from service.planning.releases import Pure, Repeat
from service.planning.shared import vertices as vertices_
from service.planning.shared.rounds import step_size
from service.planning.vertices import largest_pair
from tests.planning.cases import facts, spec
from tests.workers.scripted import (
    CHOICES,
    L1,
    UNIT,
    WEDGE,
    D,
    N,
    made_for,
    played,
    positions,
    records,
    worlds,
)
from workers.running import PLACES, carry
from workers.vertices import VertexScores

ONE = 2**32
SIMPLEX = {"kind": "simplex", "total": 0.1}
FAR = {"kind": "polytope", "vertices": [[1e8, 1e8, 0], [1e8 + 1, 1e8, 0], [1e8, 1e8, 0.1]]}
POLYTOPES = {"l1": L1, "simplex": SIMPLEX, "wedge": WEDGE, "far": FAR}


# --- choices -----------------------------------------------------------------------------------------

SCRIPTS = {
    "ends in turn": lambda i: (0, D)[i % 2],
    "other ends": lambda i: (D, 0)[i % 2],
    "round about": lambda i: i,
}


@pytest.mark.parametrize(("l2_units", "ridge"), [(UNIT, 0.0), (3 * UNIT, 0.7)])
@pytest.mark.parametrize("where", POLYTOPES.values(), ids=POLYTOPES)
def test_no_exchange_in_any_batch_moves_two_scores_apart_beyond_the_price(where, l2_units, ridge):
    """In its own choice and in every later one, and in no earlier; own choices come near the bound."""
    made, pool = made_for(CHOICES, where, l2_units, ridge=ridge), records(l2_units)
    closest: dict[tuple[int, int], float] = {}
    for (r, k, place), script in product(positions(made), SCRIPTS.values()):
        release = made.release.parts[r]
        runs = [played(made, x, y, script) for x, y in worlds(place, pool)]
        first = sum(one.steps for one in made.schedule.rounds[:r])
        for a, b in combinations(runs, 2):
            for i, (p, q) in enumerate(zip(a, b, strict=True)):
                changes = [s - t for s, t in zip(p, q, strict=True)]
                moved, t = max(changes) - min(changes), i - first
                if not k <= t < made.schedule.rounds[r].steps:
                    assert moved == 0
                    continue
                share = Fraction(1)
                for j in range(k + 1, t + 1):
                    share *= Fraction(release.kept[j], ONE)
                assert moved <= release.sensitivities[k] * share + release.slack
                if t == k:
                    near = moved / release.sensitivities[k]
                    closest[r, k] = max(closest.get((r, k), 0.0), near)
    print({key: round(value, 3) for key, value in closest.items()})
    if where is not FAR:  # whose slopes no record brings to their bound
        assert max(closest.values()) > 1 / 1.5 and min(closest.values()) > 0.5


def test_the_printed_sensitivities_would_be_exceeded():
    """One record, half of what replacement moves; and a bound on the gradient's change by the size of
    the step to come, where w moved by that of the step before."""
    radius = 10.0
    made = made_for(CHOICES, {"kind": "l1_ball", "radius": radius}, parameters={"rounds": 2})
    one, release = made.schedule.rounds[1], made.release.parts[1]
    b, A, L0, curvature = one.rows, 2 * radius, radius + 1, 1.0
    x, y = np.zeros((N, D)), np.zeros(N)
    script = [D, 0, 0].__getitem__  # w: -radius e_1, then radius e_1
    batch = list(one.batches())[1]
    gaps = []
    for row, label in (([UNIT, 0, 0], -1.0), ([0, 0, 0], 0.0)):
        x[batch.start], y[batch.start] = row, label
        scores = played(made, x, y, script)[2]
        gaps.append((scores[0] - scores[D]) * one.unit * radius)
    moved, a = gaps[0] - gaps[1], step_size(1)  # by half an exchange: the other half is zero
    printed = ((1 - a) * curvature * A * a + a * L0) * A / (b // 2)
    ours = (release.sensitivities[1] + release.slack) * one.unit * radius
    assert printed < moved <= ours / 2 * (1 + 1e-6)

    place, there = one.start, []
    small = made_for(CHOICES, L1, parameters={"rounds": 1})
    for label in (-1.0, 1.0):
        x[place], y[place] = [UNIT, 0, 0], label
        rows = np.roll(x, -place, axis=0), np.roll(y, -place)
        scores = played(small, *rows, script)[0]
        there.append((scores[0] - scores[D]) * small.schedule.rounds[0].unit * 0.1)
    assert abs(there[0] - there[1]) > 1.1 * 0.2 / N  # L0 D/b


def test_a_batch_is_charged_for_every_choice_that_it_still_influences():
    """The price is that of the costliest batch, more than of its own choice and less than of all."""
    made = made_for(CHOICES, L1, rows=10**5, parameters={"rounds": 6})
    release = made.release.parts[-1]
    own = max(
        Fraction(s + release.slack, scale) ** 2
        for s, scale in zip(release.sensitivities, release.scales, strict=True)
    )
    worst = len(release.scales) * own
    assert own < release.squares() < worst / 3
    assert price_units(made.release, made.facts.account) == made.price.units


@pytest.mark.parametrize("rows", [300, 10**6, 2**30])
@pytest.mark.parametrize("d", [2, 40])
def test_scores_of_vertices_err_by_no_more_than_was_planned(d, rows):
    """Running sums as large as the rows make them, against rational arithmetic."""
    rng = np.random.default_rng(d)
    vertices = (rng.normal(size=(7, d)) * 10.0 ** rng.uniform(-8, 8, size=(7, 1))).tolist()
    job = spec(CHOICES, loss="sigmoid", set={"kind": "polytope", "vertices": vertices})
    made = plan(job, facts(rows=rows, columns=d))
    one, release = made.schedule.rounds[-1], made.release.parts[-1]
    scored = VertexScores(made, DERIVATIVE_UNITS)
    fixed = vertices_.fixed_point(tuple(map(tuple, vertices)), made.schedule.unit)
    total, exact = np.zeros(d, dtype=object), [Fraction(0)] * d
    for t, batch in enumerate(one.batches()):
        h = rng.integers(-DERIVATIVE_UNITS * UNIT, DERIVATIVE_UNITS * UNIT, d) * len(batch)
        total = carry(total, h, release.kept[t], one.gains[t])
        exact = [
            (release.kept[t] * e + one.gains[t] * int(v)) / ONE
            for e, v in zip(exact, h, strict=True)
        ]
        if t in (0, 1, one.steps - 1):
            scores = scored._of_running(np.zeros(d), total).tolist()
            for vertex, score in zip(fixed, scores, strict=True):
                truth = sum(Fraction(v, 2**32) * e for v, e in zip(vertex, exact, strict=True))
                assert abs(truth - score) < Fraction(51, 100)
        exact = [Fraction(int(e * 2**200), 2**200) for e in exact]
    reach = planning.max_score(
        [len(batch) for batch in one.batches()], release.kept, one.gains, 2**13
    )
    assert reach < 2**62 and PLACES == 128


def test_vertices_in_fixed_point_keep_their_pairs_within_the_bound(monkeypatch):
    rng = np.random.default_rng(0)
    vertices = tuple(map(tuple, rng.normal(size=(60, 4)).tolist()))
    fixed = vertices_.fixed_point(vertices, 0.01)
    reach = partial(vertices_._reach, 5, 7)
    tight = largest_pair(fixed, reach)
    for a, b in combinations(fixed, 2):
        v = [p - q for p, q in zip(a, b, strict=True)]
        assert min(5 * sum(map(abs, v)), 7 * isqrt(sum(e * e for e in v))) <= tight
    monkeypatch.setattr("service.planning.vertices._PAIRS_MAX", 100)
    assert tight <= largest_pair(fixed, reach) <= 2 * tight


# --- sums --------------------------------------------------------------------------------------------


def exact_delta(each: float, times: int, epsilon: float) -> float:
    """Of `times` randomized responses, the worst that so many releases of pure epsilon `each` can be:
    the sum over counts k of lies of P(k) - e^epsilon P(times - k), where that is positive."""
    truth, lie = -log1p(exp(-each)), -log1p(exp(each))
    total = 0.0
    for k in range(times + 1):
        ways = lgamma(times + 1) - lgamma(k + 1) - lgamma(times - k + 1)
        here = exp(ways + k * lie + (times - k) * truth)
        there = exp(ways + (times - k) * lie + k * truth)
        total += max(0.0, here - exp(epsilon) * there)
    return total


@pytest.mark.parametrize("steps", [64, 256, 4096])
def test_the_printed_composition_of_choices_loses_a_root_of_two(steps):
    """Algorithm 4 makes T choices, each of epsilon/sqrt(T log(1/delta)); advanced composition has
    sqrt(2 T log(1/delta)) of them for epsilon."""
    epsilon, delta = 1.0, 1e-6
    printed = epsilon / sqrt(steps * log(1 / delta))
    assert exact_delta(printed, steps, epsilon) > 5 * delta
    assert exact_delta(printed / sqrt(2), steps, epsilon) < delta

    def composed(each: float) -> Repeat:
        return Repeat(release=Pure(sensitivity=round(2**40 * each), scale=2**40), times=steps)

    assert not fits_own_target(composed(printed), epsilon, delta)
    assert fits_own_target(composed(printed / sqrt(2)), epsilon, delta)
