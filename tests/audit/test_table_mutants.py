"""Mistakes in tables of counts, built here and caught by the auditor, with the meter switched off."""

from dataclasses import replace
from math import sqrt

import pytest

from tests.audit.games import table_game
from tests.audit.harness import FAMILY, QUICK, Shadowed, attack, claim
from tests.audit.test_mutants import Anything

ROUNDS, ALPHA = QUICK.looks[0], FAMILY / 8


class Wrong(Shadowed):
    """Runs other counts than were priced; what is claimed stays the true Plan's."""

    def __init__(self, game, world, randomness):
        plan = game.plan
        (counts,) = plan.counted
        lattice = counts.lattice.model_copy(update=self.changed(counts.lattice))
        wrong = counts.model_copy(update={"lattice": lattice})
        schedule = plan.schedule.model_copy(update={"counts": (wrong,)})
        made = plan.model_copy(update={"schedule": schedule, "lattice": lattice})
        super().__init__(replace(game, plan=made), world, randomness)
        for data in (self, self._other):
            data._gate._meter = Anything()

    @staticmethod
    def changed(lattice):
        return {}

    def noisy_counts(self, counts):
        return super().noisy_counts(self._plan.counted[0])


class SensitivityOne(Wrong):
    """Calibrated as if a replaced record moved one cell, not two."""

    @staticmethod
    def changed(lattice):
        return {"weights": tuple(int(sqrt(2) * weight) for weight in lattice.weights)}


class HalfNoise(Wrong):
    @staticmethod
    def changed(lattice):
        return {"bits": lattice.bits - 1}


class WithoutNoise(Wrong):
    def __init__(self, *game):
        super().__init__(*game)
        self._gate.vector = lambda exact, lattice, rows, **how: exact


class ATableMore(Wrong):
    """The same tables once more, with fresh noise, for the price of one."""

    def noisy_counts(self, counts):
        super().noisy_counts(counts)
        return super().noisy_counts(counts)


@pytest.mark.parametrize("mutant", [SensitivityOne, HalfNoise, WithoutNoise, ATableMore])
def test_a_mistake_in_counts_is_caught(mutant):
    target = table_game(["counts"], epsilon=11.0, delta=1e-6)
    assert attack(target, f"counts {mutant.__name__}", ROUNDS, ALPHA, mutant).worst > claim(
        target.plan
    )
    honest = attack(target, f"honest {mutant.__name__}", 300, ALPHA, Wrong)
    assert honest.worst <= claim(target.plan) and honest.on_lattice
