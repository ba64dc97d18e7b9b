"""Every algorithm under attack: the bound never exceeds the claim, and comes close to it."""

import pytest

from service.planning.catalog import CATALOG
from tests.audit.games import (
    certified,
    choosing,
    choosing_clip,
    clip_game,
    clipped,
    drawn,
    game,
    in_rounds,
    moment_game,
    passing,
    phased,
    prefixed,
    rounds,
    shared,
    solved,
    table_game,
    tilted,
    unbounded,
)
from tests.audit.harness import FAMILY, audit, claim

L1 = {"kind": "l1", "strength": 0.1}
# algorithm, storage, the canary's row, what the job asks: one row per way of being attacked
BOTH = [  # under noise of either kind
    ("gradient-descent", "fixed", 0, clipped(1)),
    ("phased-sgd", "fixed", 0, phased()),
    ("phased-sgd", "fixed", 6, phased("absolute")),
]
GAUSSIAN = [
    *BOTH,
    ("gradient-descent", "fixed", 3, clipped(4, "squared")),
    ("gradient-descent", "float64", 11, clipped(2)),
    ("clipped-sgd", "fixed", 0, clipped(3)),
    ("clipped-sgd", "fixed", 11, clipped(3, "squared")),
    ("clipped-sgd", "float64", 5, clipped(3, "squared")),
    ("accelerated-clipped-sgd", "fixed", 0, clipped(3)),
    ("accelerated-clipped-sgd", "float64", 11, clipped(3, "squared")),
    ("proximal-sgd", "fixed", 4, clipped(3)),
    ("proximal-sgd", "float64", 8, clipped(3) | {"regulariser": L1}),
    (
        "proximal-sgd",
        "fixed",
        1,
        clipped(3) | {"set": {"kind": "box", "lower": -0.2, "upper": 0.2}},
    ),
    ("proximal-sgd", "fixed", 5, clipped(3, "sigmoid") | {"ridge": 0.0}),
    ("proximal-sgd", "float64", 2, clipped(3, "ramp") | {"regulariser": L1}),
    ("localized-subgradient", "fixed", 0, clipped(3, "hinge")),
    ("proximally-guided-mirror-descent", "fixed", 0, rounds(3)),
    ("proximally-guided-mirror-descent", "float64", 7, rounds(2, set={"kind": "l1_ball"})),
    ("stationarity-certificate", "fixed", 3, certified()),
    ("stationarity-certificate", "float64", 11, certified(radius=0.1, points=4)),
    ("localized-subgradient", "float64", 0, clipped(3, "absolute") | {"ridge": 0.0}),
    ("clipped-sgd", "float64", 2, unbounded(3, 1e300)),
    ("accelerated-clipped-sgd", "fixed", 6, unbounded(3, 1e300)),
    ("proximal-sgd", "float64", 3, unbounded(3, 1e9)),
    ("localized-subgradient", "fixed", 0, unbounded(3, 1e30, "absolute")),
    ("accelerated-sgd", "fixed", 2, clipped(4)),
    ("accelerated-sgd", "float64", 7, clipped(2, "hinge")),
    ("accelerated-sgd", "fixed", 1, clipped(3, "hinge") | {"regulariser": L1}),
    ("gradient-descent", "fixed", 8, clipped(3, "absolute") | {"regulariser": L1}),
    ("localized-subgradient", "fixed", 0, clipped(3, "hinge") | {"regulariser": L1}),
    ("localized-accelerated-sgd", "fixed", 0, clipped(3)),
    ("output-perturbation", "fixed", 3, solved(solver="gradient-descent", steps=3)),
    ("output-perturbation", "fixed", 11, solved("absolute", solver="sgd", steps=2)),
    ("output-perturbation", "fixed", 4, solved(solver="averaged-passes", steps=8)),
    ("output-perturbation", "fixed", 2, solved(solver="accelerated", steps=8)),
    (
        "adversarial-output-perturbation",
        "fixed",
        1,
        solved(perturbation=0.002, solver="averaged-passes", steps=8),
    ),
    ("tilted-output-perturbation", "fixed", 5, solved(tilt=0.05, steps=3)),
    (
        "tilted-output-perturbation",
        "fixed",
        2,
        solved(tilt=0.001, solver="averaged-passes", steps=8),
    ),
    (
        "adversarial-output-perturbation",
        "fixed",
        7,
        solved(perturbation=0.002, solver="gradient-descent", steps=3),
    ),
    ("objective-perturbation", "fixed", 4, tilted()),
    (
        "adversarial-output-perturbation",
        "fixed",
        3,
        solved(perturbation=0.05, solver="gradient-descent", steps=3),
    ),
    ("phased-sgd", "fixed", 9, phased({"kind": "pinball", "quantile": 0.5})),
    ("stochastic-frank-wolfe", "fixed", 3, in_rounds(2)),
    ("stochastic-frank-wolfe", "fixed", 9, in_rounds(2, "lp_ball", p=1.2)),
    ("stochastic-frank-wolfe", "fixed", 4, in_rounds(2, "l1_ball")),
    ("online-to-nonconvex", "fixed", 0, prefixed("first-order")),
    ("online-to-nonconvex", "float64", 0, prefixed("zero-order", mechanism="tree")),
    ("online-to-nonconvex", "fixed", 5, passing("zero-order-multi-pass", 2)),
    ("online-to-nonconvex", "float64", 7, passing("first-order-multi-pass", 3)),
]
LAPLACE = [
    *BOTH,
    ("gradient-descent", "float64", 4, clipped(1, "squared")),
    ("clipped-sgd", "fixed", 6, clipped(3)),
    ("clipped-sgd", "fixed", 1, unbounded(3, 1e300)),
    ("accelerated-clipped-sgd", "fixed", 3, clipped(3)),
    ("accelerated-clipped-sgd", "float64", 7, unbounded(3, 1e300)),
    ("proximal-sgd", "float64", 0, clipped(2)),
    ("localized-subgradient", "fixed", 0, clipped(1, "hinge")),
    ("proximally-guided-mirror-descent", "fixed", 5, rounds(1)),
    ("stationarity-certificate", "fixed", 0, certified(radius=0.1, points=4)),
    ("accelerated-sgd", "fixed", 5, clipped(1, "hinge")),
    ("localized-accelerated-sgd", "fixed", 9, clipped(1)),
    ("output-perturbation", "fixed", 0, solved(solver="gradient-descent", steps=3)),
    ("output-perturbation", "fixed", 5, solved(solver="averaged-passes", steps=8)),
    ("tilted-output-perturbation", "fixed", 1, solved(tilt=0.05, steps=3)),
    (
        "adversarial-output-perturbation",
        "fixed",
        2,
        solved(perturbation=0.002, solver="gradient-descent", steps=3),
    ),
    ("objective-perturbation", "fixed", 6, tilted()),
    ("stochastic-frank-wolfe", "fixed", 9, in_rounds(2)),
    ("online-to-nonconvex", "fixed", 0, prefixed("first-order", period=1, steps=2, block=1)),
]
# epsilon, delta, the canary's row, what the job asks: over batches that are drawn
DRAWN = [
    ("accelerated-sgd", 3.0, 1e-2, 0, drawn(2, batch=3)),
    ("accelerated-sgd", 3.0, 1e-2, 5, drawn(1, batch=6)),
    ("gradient-descent", 3.0, 1e-2, 0, drawn(2, batch=11)),
    ("gradient-descent", 2.0, 0.0, 4, drawn(2, batch=6)),
    ("accelerated-sgd", 2.0, 0.0, 11, drawn(2, batch=3)),
    ("localized-accelerated-sgd", 4.0, 1e-2, 0, drawn(2, halvings=2)),
    ("localized-subgradient", 4.0, 1e-2, 0, drawn(2, halvings=2)),
    ("online-to-nonconvex", 3.0, 1e-2, 5, passing("first-order-multi-pass", 2, batch=3)),
]
# epsilon, delta, storage, how the canary differs, what the job asks: the clip is chosen
CLIPS = [
    ("clipped-sgd", 8.0, 0.0, "float64", "longer", choosing_clip(0.8)),
    ("clipped-sgd", 4.0, 0.0, "fixed", "same", choosing_clip(0.1, 0.01)),
    ("accelerated-clipped-sgd", 17.0, 1e-6, "float64", "longer", choosing_clip(0.9)),
    ("proximal-sgd", 17.0, 1e-6, "fixed", "same", choosing_clip(0.1, 0.01)),
    ("localized-subgradient", 17.0, 1e-6, "fixed", "same", choosing_clip(0.1, 0.01)),
    ("gradient-descent", 17.0, 1e-6, "float64", "longer", choosing_clip(0.9)),
    ("accelerated-sgd", 17.0, 1e-6, "fixed", "same", choosing_clip(0.1, 0.01)),
]
# epsilon, delta, the canary's row, how many rows lean its way, what the job asks
CHOICES = [
    ("frank-wolfe", 2.0, 0.0, 0, 1, choosing(1)),
    ("frank-wolfe", 6.0, 0.0, 5, 1, choosing(3)),
    ("frank-wolfe", 9.0, 1e-6, 11, 0, choosing(2)),
    ("polyhedral-stochastic-frank-wolfe", 6.0, 0.0, 3, 1, in_rounds(2, "l1_ball")),
    ("polyhedral-stochastic-frank-wolfe", 9.0, 1e-6, 2, 0, in_rounds(2, "l1_ball")),
]
# epsilon, delta, how the canary differs, how much of what was paid the attack must find, what the job
# asks: rows are seen in coordinates that were released
MOMENTS = [
    ("preconditioned-descent", 17.0, 1e-6, "same", 0.75, shared(3, 0.05)),
    ("preconditioned-descent", 17.0, 1e-6, "across", 0.7, shared(1, 0.9)),
    ("preconditioned-descent", 2.0, 0.0, "same", 0.2, shared(1, 0.1)),
    ("sufficient-statistics", 17.0, 1e-6, "across", 0.75, {"loss": "squared", "parameters": {}}),
    ("sufficient-statistics", 2.0, 0.0, "across", 0.05, {"loss": "squared", "parameters": {}}),
    ("best-constant", 17.0, 1e-6, "same", 0.85, {"loss": "logistic", "parameters": {}}),
    ("best-constant", 2.0, 0.0, "same", 0.4, {"loss": "hinge", "parameters": {}}),
]
HISTOGRAMS = [
    {"kind": "histogram", "column": "age", "bins": 9},
    {"kind": "histogram", "column": "pay", "lower": 0.2, "upper": 0.8, "bins": 3},
]
BOUNDED = [{"kind": "mean", "column": "pay", "lower": 0, "upper": 1}]
# epsilon, delta, storage, how much of what was paid the attack must find, the summaries
TABLES = [
    (17.0, 1e-6, "fixed", 0.85, ["counts"]),
    (17.0, 1e-6, "fixed", 0.85, [*HISTOGRAMS, {"kind": "counts", "column": "city"}]),
    (17.0, 1e-6, "float64", 0.85, ["counts", *HISTOGRAMS]),
    (17.0, 1e-6, "fixed", 0.85, [{"kind": "mean", "column": "age"}]),
    (17.0, 1e-6, "float64", 0.85, [{"kind": "quantiles", "column": "age"}, *BOUNDED]),
    (17.0, 1e-6, "float64", 0.5, [{"kind": "mean", "column": "pay"}]),
    (2.0, 0.0, "fixed", 0.4, ["counts"]),
    (2.0, 0.0, "fixed", 0.4, [{"kind": "mean", "column": "age"}]),
    (2.0, 0.0, "float64", 0.2, ["counts", *HISTOGRAMS]),
]
ALPHA = FAMILY / sum(map(len, (GAUSSIAN, LAPLACE, DRAWN, CHOICES, CLIPS, MOMENTS, TABLES)))
UNGATED_ROUNDS = 3000  # where nothing but the claim is tested


def test_every_algorithm_of_the_catalog_is_attacked():
    others = {row[0] for row in (*CHOICES, *MOMENTS)} | {"column-summaries", "model-evaluation"}
    assert {row[0] for row in GAUSSIAN} == {row[0] for row in LAPLACE} == set(CATALOG) - others


def hides(target, name, depth, gate):
    """The canary, as promised: no bound exceeds the claim, and the attack passes its gate."""
    paid = claim(target.plan)
    found, strong = audit(
        target, name, depth, ALPHA, lambda found, rounds: gate(found, paid, rounds)
    )
    assert found.worst <= paid and found.on_lattice
    return strong


@pytest.mark.parametrize(("algorithm", "storage", "position", "job"), GAUSSIAN)
def test_gaussian_noise_hides_the_canary_as_promised_and_hardly_better(
    algorithm, storage, position, job, depth
):
    name = f"{algorithm} {storage} {position} {job}"
    target = game(algorithm, storage, epsilon=17.0, delta=1e-6, position=position, **job)
    assert hides(target, name, depth, lambda found, paid, _: found.white >= 0.85 * paid)


@pytest.mark.parametrize(("algorithm", "storage", "position", "job"), LAPLACE)
def test_laplace_noise_hides_the_canary_as_promised_and_hardly_better(
    algorithm, storage, position, job, depth
):
    name = f"pure {algorithm} {storage} {position} {job}"
    target = game(algorithm, storage, epsilon=2.0, delta=0.0, position=position, **job)
    assert hides(target, name, depth, lambda found, paid, _: found.white >= 0.4 * paid)


@pytest.mark.parametrize(("algorithm", "epsilon", "delta", "position", "company", "job"), CHOICES)
def test_choices_hide_the_canary_as_promised(
    algorithm, epsilon, delta, position, company, job, depth
):
    name = f"{algorithm} {epsilon} {delta} {position} {company} {job}"
    privacy = {"epsilon": epsilon, "delta": delta}
    target = game(algorithm, **privacy, position=position, company=company, **job)
    assert hides(target, name, depth, lambda found, paid, _: found.worst > 0.1 * paid)


@pytest.mark.parametrize(("algorithm", "epsilon", "delta", "position", "job"), DRAWN)
def test_drawn_batches_hide_the_canary_as_promised(algorithm, epsilon, delta, position, job, depth):
    """No lower gate: who does not know the batches sees much less than the price allows for."""
    name = f"drawn {algorithm} {epsilon} {delta} {position} {job}"
    target = game(algorithm, epsilon=epsilon, delta=delta, position=position, **job)
    assert hides(target, name, depth, lambda _, paid, rounds: rounds >= UNGATED_ROUNDS)


@pytest.mark.parametrize(("algorithm", "epsilon", "delta", "storage", "canary", "job"), CLIPS)
def test_chosen_clips_and_sums_under_them_hide_the_canary_as_promised(
    algorithm, epsilon, delta, storage, canary, job, depth
):
    """Attacked by the choice where the canary's length differs, and by the sums where its sign does:
    one canary cannot do all it may to both."""
    name = f"clip {algorithm} {epsilon} {delta} {storage} {canary} {job}"
    target = clip_game(algorithm, storage, canary, epsilon=epsilon, delta=delta, **job)
    choice = float(target.plan.private_clip.release().pure())

    def gate(found, paid, _):
        return found.clip >= 0.2 * choice if canary == "longer" else found.white >= 0.1 * paid

    assert hides(target, name, depth, gate)


@pytest.mark.parametrize(("algorithm", "epsilon", "delta", "pair", "least", "job"), MOMENTS)
def test_moments_and_sums_over_derived_rows_hide_the_canary_as_promised(
    algorithm, epsilon, delta, pair, least, job, depth
):
    name = f"moments {algorithm} {epsilon} {delta} {pair} {job}"
    target = moment_game(algorithm, pair, epsilon=epsilon, delta=delta, **job)
    assert hides(target, name, depth, lambda found, paid, _: found.white >= least * paid)


@pytest.mark.parametrize(("epsilon", "delta", "storage", "least", "summaries"), TABLES)
def test_tables_of_counts_hide_the_canary_as_promised_and_hardly_better(
    epsilon, delta, storage, least, summaries, depth
):
    name = f"tables {epsilon} {delta} {storage} {summaries}"
    target = table_game(summaries, storage, epsilon=epsilon, delta=delta)
    assert hides(target, name, depth, lambda found, paid, _: found.white >= least * paid)
