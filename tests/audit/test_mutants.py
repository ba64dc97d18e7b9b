"""Proof that the auditor can fail: each privacy bug that we fear, built here and caught.

A mutant is what the code would be with one mistake; it exists only in this file. It is caught when
some lower bound exceeds the claim, or when a sum is off the lattice."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from tests.audit.games import choosing, clipped, drawn, game, moment_game, tilted
from tests.audit.harness import (
    FAMILY,
    QUICK,
    Shadowed,
    Spy,
    attack,
    claim,
    key,
    lower_bound,
    play,
)
from tests.audit.rates import mu_of
from workers.algorithms import RUNS
from workers.algorithms.objective_perturbation import minimum
from workers.progress import Progress
from workers.randomness import Randomness
from workers.sums import Sums

ROUNDS = QUICK.looks[0]  # the least that any game of the suite plays


def with_lattice(plan, **changes):
    """The Plan as a wrong worker would run it; what is claimed stays the true one's."""
    return plan.model_copy(update={"lattice": plan.lattice.model_copy(update=changes)})


class Anything:
    """A meter that lets everything pass: the auditor must not count on the real one."""

    def spend(self, ask):
        return True

    def left(self):
        return "anything"


class HalfNoise(Spy):
    def __init__(self, plan, rows, randomness):
        super().__init__(with_lattice(plan, bits=plan.lattice.bits - 1), rows, randomness)
        self._gate._meter = Anything()


class Unclipped(Sums):
    def gradients(self, weights, rows):
        facts, lattice = self._plan.facts, self._plan.lattice
        x, y = self._rows._x[rows.start : rows.stop], self._rows._y[rows.start : rows.stop]
        x = x.astype(np.int64)
        slopes = x @ weights * facts.feature_step - y
        return np.rint(slopes * facts.feature_step / lattice.step).astype(np.int64) @ x


class NoClipping(Spy):
    """Squared loss as it is: the canary's derivative, twenty times the clip, goes in whole."""

    def _on(self, lattice):
        return Unclipped(self._plan, self._rows, lattice)


class Doubled(Sums):
    def gradients(self, weights, rows):
        return 2 * super().gradients(weights, rows)


class SensitivityWithoutTheTwo(Spy):
    """Calibrated as if a replaced record moved the sum by c: a record may then be twice as large."""

    def _on(self, lattice):
        return Doubled(self._plan, self._rows, lattice)


class OneStreamForAllSteps(Spy):
    def noisy_sum(self, weights, start, stop):
        self._gate.number = 0
        return super().noisy_sum(weights, start, stop)


class OneBatchTwice(Spy):
    """Batches that overlap although the Plan says that they are disjoint."""

    def noisy_sum(self, weights, start, stop):
        self._gate._meter = Anything()
        return super().noisy_sum(weights, 0, stop - start)


class FloatNoise(Spy):
    def _vector(self, exact, step, rows, **how):
        rng = np.random.default_rng(len(self.seen))
        noisy = exact + rng.normal(size=exact.size) * 2.0**self._plan.lattice.bits
        self.seen.append((rows, noisy))
        return noisy * step


MUTANTS = [
    (HalfNoise, "gradient-descent", "logistic"),
    (HalfNoise, "clipped-sgd", "logistic"),
    (NoClipping, "gradient-descent", "squared"),
    (SensitivityWithoutTheTwo, "gradient-descent", "logistic"),
    (SensitivityWithoutTheTwo, "clipped-sgd", "squared"),
    (OneStreamForAllSteps, "clipped-sgd", "logistic"),
    (OneBatchTwice, "clipped-sgd", "logistic"),
    (FloatNoise, "gradient-descent", "logistic"),
]
ALPHA = FAMILY / (len(MUTANTS) + 9)


@pytest.mark.parametrize(("mutant", "algorithm", "loss"), MUTANTS)
def test_the_mutant_is_caught(mutant, algorithm, loss):
    target = game(algorithm, epsilon=11.0, delta=1e-6, **clipped(3, loss))
    found = attack(target, f"mutant {mutant.__name__} {algorithm}", ROUNDS, ALPHA, mutant)
    assert found.worst > claim(target.plan) or not found.on_lattice
    honest = attack(target, f"honest {mutant.__name__} {algorithm}", 300, ALPHA)
    assert honest.worst <= claim(target.plan) and honest.on_lattice


def test_a_choice_whose_sensitivity_lacks_the_two_is_caught():
    """Calibrated as if one record moved two scores apart by half as much."""
    target = game("frank-wolfe", epsilon=2.5, delta=0.0, company=1, **choosing(1))
    mutant = attack(target, "choice", 12 * ROUNDS, ALPHA, SensitivityWithoutTheTwo)
    assert mutant.worst > claim(target.plan)
    assert attack(target, "honest choice", ROUNDS, ALPHA).worst <= claim(target.plan)


class HalfTilt(Spy):
    """A linear term of half the scale that was priced."""

    def noisy_minimum(self, make):
        return super().noisy_minimum(lambda blocks, term: make(blocks, term / 2))


class TooLong(Spy):
    """Records whose slopes are twice as large as their bound."""

    def noisy_minimum(self, make):
        double = {"slope_bound": 2 * self._plan.schedule.slope_bound}
        wrong = self._plan.schedule.model_copy(update=double)

        def longer(blocks, term):
            plan = self._plan.model_copy(update={"schedule": wrong})
            return minimum(plan, wrong, blocks, term, self, Progress())

        return super().noisy_minimum(longer)


@pytest.mark.parametrize("mutant", [HalfTilt, TooLong])
def test_a_linear_term_that_is_too_small_for_what_it_hides_is_caught(mutant):
    target = game("objective-perturbation", epsilon=11.0, delta=1e-6, **tilted())
    found = attack(target, f"tilt {mutant.__name__}", ROUNDS, ALPHA, mutant)
    assert found.worst > claim(target.plan)
    honest = attack(target, f"honest {mutant.__name__}", 300, ALPHA)
    assert honest.worst <= claim(target.plan)


class HalfNoiseOfLabels(Shadowed):
    """Calibrated as if a replaced label moved their sum by its bound, not by twice that."""

    def __init__(self, game, world, randomness):
        wrong = with_lattice(game.plan, bits=game.plan.lattice.bits - 1)
        super().__init__(replace(game, plan=wrong), world, randomness)
        self._gate._meter = Anything()


def test_a_sum_of_labels_whose_sensitivity_lacks_the_two_is_caught():
    job = {"loss": "logistic", "parameters": {}}
    target = moment_game("best-constant", "same", epsilon=11.0, delta=1e-6, **job)
    mutant = attack(target, "labels", ROUNDS, ALPHA, HalfNoiseOfLabels)
    assert mutant.worst > claim(target.plan)
    assert attack(target, "honest labels", 300, ALPHA).worst <= claim(target.plan)


class KeptBatch(Spy):
    """Every step reads the same rows, although the price is that of fresh secret batches."""

    def noisy_batch(self, weights, batch, start, stop):
        exact = self._sums.gradients(weights, np.arange(start, start + batch))
        return self._vector(exact, self._sum_lattice.step, range(start, stop), batch=batch)


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-2), (1.0, 0.0)])
def test_a_batch_that_is_kept_is_caught(epsilon, delta):
    target = game("accelerated-sgd", epsilon=epsilon, delta=delta, **drawn(2, batch=1))
    mutant = attack(target, f"kept {delta}", ROUNDS, ALPHA, KeptBatch)
    assert mutant.worst > claim(target.plan)
    assert attack(target, f"fresh {delta}", ROUNDS, ALPHA).worst <= claim(target.plan)


def test_a_drawn_batch_whose_sensitivity_lacks_the_two_is_caught():
    """Over many steps what leaks adds up to about a Gaussian of mu^2 = 2 rho, and the price allows for
    little more: a factor 2 stands out."""
    target = game("gradient-descent", epsilon=8.0, delta=1e-6, **drawn(16, batch=6))
    order, release = target.plan.price.order, target.plan.release
    paid = sqrt(2 * release.renyi(order) / order)

    def mu(name, spy):
        worlds = [
            np.array([target.white(play(target, w, key(name, w, i), spy)) for i in range(ROUNDS)])
            for w in (0, 1)
        ]
        return lower_bound(*worlds, ALPHA, mu_of)

    assert mu("long", SensitivityWithoutTheTwo) > paid
    assert 0.3 * paid < mu("short", Spy) <= paid


def two_jobs(first, second, world, number, randomness):
    """The first sums of two jobs on the same data."""
    sums = []
    for target in (first, second):
        spy = Spy(target.plan, target.worlds[world], randomness(target, number, world))
        RUNS[target.plan.algorithm](target.plan, spy, Progress())
        sums.append(spy.seen[0][1])
    return sums


def test_one_key_for_two_jobs_is_caught():
    """Were the Plan not in the key, two jobs under one key would share their noise, and a sum with the
    canary less one without it would show it bare."""
    first, second = (
        game("clipped-sgd", epsilon=11.0, delta=1e-6, position=5, **clipped(steps))
        for steps in (3, 2)
    )
    paid = sqrt(claim(first.plan) ** 2 + claim(second.plan) ** 2)

    def bound(randomness):
        worlds = []
        for world in (0, 1):
            pairs = [two_jobs(first, second, world, i, randomness) for i in range(ROUNDS)]
            worlds.append(np.array([float(first.direction @ (b - a)) for a, b in pairs]))
        return lower_bound(*worlds, ALPHA, mu_of)

    assert bound(lambda game, i, world: Randomness(key("two", world, i), "no plan")) > paid
    honest = bound(lambda game, i, world: Randomness(key("two", world, i), game.plan.digest()))
    assert honest <= paid


def test_a_retry_that_draws_fresh_noise_is_caught():
    """Two answers to one job average the noise away; the same noise twice says nothing new."""
    target = game("gradient-descent", epsilon=11.0, delta=1e-6, **clipped(1))
    paid = claim(target.plan)

    def bound(fresh):
        worlds = []
        for world in (0, 1):
            totals = [
                sum(
                    target.white(play(target, world, key(f"retry {fresh * attempt}", world, i)))
                    for attempt in (0, 1)
                )
                for i in range(4 * ROUNDS)
            ]
            worlds.append(np.array(totals))
        return lower_bound(*worlds, ALPHA, mu_of)

    assert bound(fresh=1) > paid
    assert bound(fresh=0) <= paid
