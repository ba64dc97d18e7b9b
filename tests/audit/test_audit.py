"""Every algorithm under attack: the bound never exceeds the claim, and comes close to it."""

import pytest

from service.planning.catalog import CATALOG
from tests.audit.games import game
from tests.audit.harness import FAMILY, attack, claim

# algorithm, storage, loss, steps, canary's row: one row per way of being attacked
GAUSSIAN = [
    ("gradient-descent", "fixed", "logistic", 1, 0),
    ("gradient-descent", "fixed", "squared", 4, 3),
    ("gradient-descent", "float64", "logistic", 2, 11),
    ("clipped-sgd", "fixed", "logistic", 3, 0),
    ("clipped-sgd", "fixed", "squared", 3, 11),
    ("clipped-sgd", "float64", "squared", 3, 5),
]
LAPLACE = [
    ("gradient-descent", "fixed", "logistic", 2, 0),
    ("gradient-descent", "float64", "squared", 1, 4),
    ("clipped-sgd", "fixed", "logistic", 3, 6),
]
ALPHA = FAMILY / (len(GAUSSIAN) + len(LAPLACE))


def test_every_algorithm_of_the_catalog_is_attacked():
    assert {row[0] for row in GAUSSIAN} == {row[0] for row in LAPLACE} == set(CATALOG)


@pytest.mark.parametrize(("algorithm", "storage", "loss", "steps", "position"), GAUSSIAN)
def test_gaussian_noise_hides_the_canary_as_promised_and_hardly_better(
    algorithm, storage, loss, steps, position, audit_rounds
):
    name = f"{algorithm} {storage} {loss} {steps} {position}"
    target = game(
        algorithm, storage, epsilon=17.0, delta=1e-6, steps=steps, loss=loss, position=position
    )
    found, paid = attack(target, name, audit_rounds, ALPHA), claim(target.plan)
    print(f"{name}: paid mu {paid:.3f}, white box {found.white:.3f}, black box {found.black:.3f}")
    assert found.worst <= paid and found.on_lattice
    assert found.white >= 0.85 * paid


@pytest.mark.parametrize(("algorithm", "storage", "loss", "steps", "position"), LAPLACE)
def test_laplace_noise_hides_the_canary_as_promised_and_hardly_better(
    algorithm, storage, loss, steps, position, audit_rounds
):
    name = f"pure {algorithm} {storage} {loss} {steps} {position}"
    target = game(
        algorithm, storage, epsilon=2.0, delta=0.0, steps=steps, loss=loss, position=position
    )
    found, paid = attack(target, name, audit_rounds, ALPHA), claim(target.plan)
    print(
        f"{name}: paid epsilon {paid:.3f}, white box {found.white:.3f}, black box {found.black:.3f}"
    )
    assert found.worst <= paid and found.on_lattice
    assert found.white >= 0.4 * paid
