"""The auditor on evaluations: a canary among the rows that were held out, and mistakes that it must
catch with the meter switched off."""

from math import sqrt

import numpy as np
import pytest

import workers.scored
from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from service.planning.summaries import ColumnFacts
from tests.audit.harness import FAMILY, QUICK, Exact, Game, Shadowed, attack, audit, claim
from tests.audit.test_mutants import Anything
from workers.held_out import HeldOutData
from workers.scored import add_scored

ROWS, COLUMNS, FULL = 12, 4, 4095
WEIGHTS = np.array(
    [-50.0, 100.0, 0.0, 0.0]
)  # the canary's score is as far as scores go, either way
GROUPS = ColumnFacts(name="ward", kind="categorical", position=2, cells=2)
ROUNDS, ALPHA = QUICK.looks[0], FAMILY / 16
JOBS = {
    "binary": {"loss": "logistic", "evaluate": {"by": "ward"}},
    "numeric": {"loss": "pinball", "evaluate": {"by": "ward"}},
}


def score_game(label, *, epsilon, delta, metrics=()):
    """A canary that is called right in world one and wrong in world zero, and is in another group."""
    about = Facts(
        rows=ROWS,
        held_out=ROWS,
        columns=COLUMNS,
        storage="fixed",
        feature_step=1 / FULL,
        linf_units=FULL,
        l2_units=2 * FULL,
        label=label,
        account=AccountTerms.for_ceiling(epsilon, delta),
        described=(GROUPS,),
    )
    asked = JOBS[label] | {"evaluate": {"by": "ward", "metrics": metrics}}
    spec = {"dataset": "d", "algorithm": "model-evaluation", "of": "m"}
    privacy = {"privacy": {"epsilon": epsilon, "delta": delta}}
    made = plan(JobSpec.model_validate(spec | privacy | asked), about)
    worlds = []
    for world in (0, 1):
        x, y = np.zeros((ROWS, COLUMNS), dtype=np.int16), np.ones(ROWS)
        x[:, 0] = x[:, 2] = FULL
        x[3, 1:] = (FULL * world, FULL * world, FULL * (1 - world))
        y[3] = 1.0 if label == "binary" else 2.0 * world - 1
        worlds.append((x, y))
    (counts,) = made.counted
    add = add_scored(about, counts, WEIGHTS[None])
    moved = (add(*worlds[1]) - add(*worlds[0])).astype(float)
    direction = moved / np.linalg.norm(moved)
    return Game(plan=made, worlds=(worlds[0], worlds[1]), position=3, direction=direction)


class ExactScores(Exact, HeldOutData):
    """What the other world would let out."""


class Watched(Shadowed, HeldOutData):
    def __init__(self, game, world, randomness):
        super().__init__(game, world, randomness)
        self._released = WEIGHTS
        self._other = ExactScores(game.plan, *game.worlds[1 - world], randomness)

    def noisy_scores(self, *asked):
        self._other.noisy_scores(*asked)
        return super().noisy_scores(*asked)


@pytest.mark.parametrize(
    ("label", "metrics", "epsilon", "delta", "least"),
    [
        ("binary", (), 17.0, 1e-6, 0.75),
        ("binary", ("accuracy",), 17.0, 1e-6, 0.85),
        ("binary", ("auc",), 17.0, 1e-6, 0.85),
        ("binary", ("accuracy",), 2.0, 0.0, 0.4),
        ("numeric", (), 17.0, 1e-6, 0.7),
        ("numeric", ("coverage",), 2.0, 0.0, 0.4),
    ],
)
def test_an_evaluation_hides_the_canary_as_promised_and_hardly_better(
    label, metrics, epsilon, delta, least, depth
):
    target = score_game(label, metrics=metrics, epsilon=epsilon, delta=delta)
    paid = claim(target.plan)
    name = f"scores {label} {metrics} {epsilon} {delta}"
    found, strong = audit(
        target, name, depth, ALPHA, lambda found, _: found.white >= least * paid, Watched
    )
    assert found.worst <= paid and found.on_lattice and strong


class Wrong(Watched):
    """Runs something else than was priced; what is claimed stays the true Plan's."""

    def __init__(self, *game):
        super().__init__(*game)
        for data in (self, self._other):
            data._gate._meter = Anything()
            data._plan = self.mistaken(data._plan)

    def mistaken(self, made):
        (counts,) = made.counted
        lattice = counts.lattice.model_copy(update=self.lattice(counts.lattice))
        wrong = counts.model_copy(update={"lattice": lattice})
        schedule = made.schedule.model_copy(update={"counts": wrong})
        return made.model_copy(update={"schedule": schedule, "lattice": lattice})

    def lattice(self, lattice):
        return {}

    def noisy_scores(self, counts, models):
        return super().noisy_scores(self._plan.counted[0], models)


class SensitivityOne(Wrong):
    """Calibrated as if a replaced record moved one cell of each table, not two."""

    def lattice(self, lattice):
        return {"weights": tuple(int(sqrt(2) * weight) for weight in lattice.weights)}


class WithoutNoise(Wrong):
    def __init__(self, *game):
        super().__init__(*game)
        self._gate.vector = lambda exact, lattice, rows, **how: exact


class TwoForOne(Wrong):
    """Of a model it tells twice, and pays once."""

    def noisy_scores(self, counts, models):
        super().noisy_scores(counts, models)
        return super().noisy_scores(counts, models)


class Overlapping(Wrong):
    """A record is counted in both groups, so replacing it moves four cells."""

    def noisy_scores(self, counts, models):
        honest = workers.scored._added

        def twice(facts, table, x, rows, y, w):
            counted = honest(facts, table, x, rows, y, w)
            halves = counted.reshape(table.parts, -1)
            return np.tile(halves.sum(axis=0), table.parts)

        workers.scored._added = twice
        try:
            return super().noisy_scores(counts, models)
        finally:
            workers.scored._added = honest


@pytest.mark.parametrize("mutant", [SensitivityOne, WithoutNoise, TwoForOne, Overlapping])
def test_a_mistake_in_an_evaluation_is_caught(mutant):
    target = score_game("binary", metrics=("accuracy",), epsilon=11.0, delta=1e-6)
    caught = attack(target, f"scores {mutant.__name__}", ROUNDS, ALPHA, mutant)
    assert caught.worst > claim(target.plan) or not caught.on_lattice
    honest = attack(target, f"honest scores {mutant.__name__}", 300, ALPHA, Wrong)
    assert honest.worst <= claim(target.plan) and honest.on_lattice
