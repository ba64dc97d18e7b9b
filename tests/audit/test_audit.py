"""Every algorithm under attack: the bound never exceeds the claim, and comes close to it."""

import pytest

from service.planning.catalog import CATALOG
from tests.audit.games import clipped, game
from tests.audit.harness import FAMILY, attack, claim

# algorithm, storage, the canary's row, what the job asks: one row per way of being attacked
GAUSSIAN = [
    ("gradient-descent", "fixed", 0, clipped(1)),
    ("gradient-descent", "fixed", 3, clipped(4, "squared")),
    ("gradient-descent", "float64", 11, clipped(2)),
    ("clipped-sgd", "fixed", 0, clipped(3)),
    ("clipped-sgd", "fixed", 11, clipped(3, "squared")),
    ("clipped-sgd", "float64", 5, clipped(3, "squared")),
]
LAPLACE = [
    ("gradient-descent", "fixed", 0, clipped(2)),
    ("gradient-descent", "float64", 4, clipped(1, "squared")),
    ("clipped-sgd", "fixed", 6, clipped(3)),
]
ALPHA = FAMILY / (len(GAUSSIAN) + len(LAPLACE))


def test_every_algorithm_of_the_catalog_is_attacked():
    assert {row[0] for row in GAUSSIAN} == {row[0] for row in LAPLACE} == set(CATALOG)


@pytest.mark.parametrize(("algorithm", "storage", "position", "job"), GAUSSIAN)
def test_gaussian_noise_hides_the_canary_as_promised_and_hardly_better(
    algorithm, storage, position, job, audit_rounds
):
    name = f"{algorithm} {storage} {position} {job}"
    target = game(algorithm, storage, epsilon=17.0, delta=1e-6, position=position, **job)
    found, paid = attack(target, name, audit_rounds, ALPHA), claim(target.plan)
    print(f"{name}: paid mu {paid:.3f}, white box {found.white:.3f}, black box {found.black:.3f}")
    assert found.worst <= paid and found.on_lattice
    assert found.white >= 0.85 * paid


@pytest.mark.parametrize(("algorithm", "storage", "position", "job"), LAPLACE)
def test_laplace_noise_hides_the_canary_as_promised_and_hardly_better(
    algorithm, storage, position, job, audit_rounds
):
    name = f"pure {algorithm} {storage} {position} {job}"
    target = game(algorithm, storage, epsilon=2.0, delta=0.0, position=position, **job)
    found, paid = attack(target, name, audit_rounds, ALPHA), claim(target.plan)
    print(
        f"{name}: paid epsilon {paid:.3f}, white box {found.white:.3f}, black box {found.black:.3f}"
    )
    assert found.worst <= paid and found.on_lattice
    assert found.white >= 0.4 * paid
