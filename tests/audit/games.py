"""The worst neighbouring datasets that we know how to build, one game per algorithm and storage.

Every record is zero but one, the canary: as large as its bound allows, along one direction, with one
label in world zero and the other in world one, so that its gradient is +C in one and -C in the other.
A clip well below the loss's own derivative keeps it at its bound wherever a noisy run wanders.
"""

from dataclasses import replace

import numpy as np

from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from service.planning.summaries import ColumnFacts
from tests.audit.harness import Game
from workers.tables import add_tables

ROWS, COLUMNS = 12, 3


def clipped(steps, loss="logistic"):
    """A job by noisy sums of gradients that stay at their clip."""
    return {"loss": loss, "parameters": {"steps": steps, "clip": 0.05}}


def shared(steps, share):
    """The same with so much of the budget for moments."""
    parameters = {"steps": steps, "clip": 1e-4, "share": share}  # below any slope, however sure
    return {"loss": "logistic", "parameters": parameters}


def drawn(steps, loss="logistic", **parameters):
    """The same over batches that are drawn: `batch` or `halvings` says how large."""
    return {"loss": loss, "parameters": {"steps": steps, "clip": 0.05, **parameters}}


def rounds(steps, **more):
    """A job in two rounds, each on half of the rows."""
    parameters = {"steps": steps, "clip": 0.05, "rounds": 2}
    return {"loss": "logistic", "ridge": 0.0, "parameters": parameters, **more}


def certified(**parameters):
    """A job about a model, which is 0 here."""
    return {"of": {"job": "job_1", "digest": "0" * 64}, "parameters": {"clip": 0.05, **parameters}}


def unbounded(steps, canary, loss="squared"):
    """The same with a label that has no bounds."""
    return {**clipped(steps, loss), "canary": canary}


def solved(loss="huber", **parameters):
    """A job that releases its minimiser. The ridge keeps it so short that the canary's derivative
    stays at its bound, and so the minimiser moves by all that one record can."""
    return {"loss": loss, "ridge": 2.0, "parameters": parameters}


def tilted(loss="logistic"):
    """A job that releases the minimiser of a tilted objective. The ridge keeps it so short that the
    canary's derivative stays at its clip, and so the gradient moves by all that one record can."""
    return {"loss": loss, "ridge": 20.0, "set": "all", "parameters": {"clip": 0.02}}


def phased(loss="hinge"):
    """A job by phases. Rows of zeros move nothing, so a canary at the head of its phase moves all of
    the phase's iterates by all that one record can."""
    return {"loss": loss, "ridge": 0.0}


def prefixed(oracle, **parameters):
    """A job by prefix sums of one period. The smoothness makes differences too short to be the
    costliest, so the canary is in the first sum."""
    more = {"oracle": oracle, "clip": 0.05, "radius": 0.02, "smoothness": 0.1, **parameters}
    return {"loss": "logistic", "parameters": {"steps": 4, "period": 4, "block": 2, **more}}


def passing(oracle, steps, **batches):
    """The same over many passes, by whole gradients, of all 12 rows unless fewer are drawn."""
    more = {"oracle": oracle, "clip": 0.05, "radius": 0.02, "block": 1, "batch": 12, **batches}
    return {"loss": "logistic", "parameters": {"steps": steps, "period": 1, **more}}


def choosing(steps):
    """A job by choices among the ends of the axes, over so small a set that slopes stay at their
    bound."""
    return {
        "loss": "hinge",
        "set": {"kind": "l1_ball", "radius": 0.1},
        "ridge": 0.0,
        "parameters": {"steps": steps},
    }


def in_rounds(rounds, kind="l2_ball", **more):
    """A job by rounds of batches, over so small a set that slopes hardly change and stay near their
    bound."""
    return {
        "loss": "squared",
        "set": {"kind": kind, "radius": 0.001, **more},
        "ridge": 0.0,
        "parameters": {"rounds": rounds},
    }


def choosing_clip(share, quantile=0.5):
    """A job whose clip is chosen, for this share of what it may spend."""
    more = {"clip": "private", "clip_share": share, "clip_quantile": quantile}
    return {"parameters": {"steps": 2, **more}}


def facts(storage, delta, label="binary"):
    fixed = {"feature_step": 1 / 4095, "linf_units": 4095, "l2_units": 4095}
    return Facts.model_validate(
        {
            "rows": ROWS,
            "columns": COLUMNS,
            "storage": storage,
            "label": label,
            "account": AccountTerms.for_ceiling(30.0, delta),
            **(fixed if storage == "fixed" else {}),
        }
    )


def game(algorithm, storage="fixed", *, epsilon, delta, position=0, company=0, canary=1.0, **more):
    """A Plan for (epsilon, delta) and the two worlds, with the canary at a row's position; `more` is
    what the job asks besides. The canary's label is `canary` or its negative; where that is not 1,
    labels have no bounds. `company` rows are like the canary in world zero: where a choice is
    released, they make the other one rare."""
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_audit",
            "algorithm": algorithm,
            "loss": "logistic",
            "set": {"radius": 0.5},
            "ridge": 0.1,
            "privacy": {"epsilon": epsilon, "delta": delta},
            **more,
        }
    )
    made = plan(spec, facts(storage, delta, "binary" if canary == 1 else "unbounded"))
    # where the bound on a row is one on its l2 norm, its l1 norm is largest along the diagonal
    corner = delta == 0 and storage == "fixed" and made.lattice.kind != "score"
    row = np.ones(COLUMNS) / np.sqrt(COLUMNS) if corner else np.array([1.0, 0.0, 0.0])
    worlds = []
    for label in (canary, -canary):
        x = np.zeros((ROWS, COLUMNS), dtype=np.int16 if storage == "fixed" else np.float64)
        for place in range(position, position + 1 + company):
            x[place % ROWS] = 4095 * row if storage == "fixed" else row
        y = np.ones(ROWS)
        y[position] = label
        worlds.append((x, y))
    norm = np.abs(row).sum() if delta == 0 else 1.0
    return Game(plan=made, worlds=(worlds[0], worlds[1]), position=position, direction=-row / norm)


def moment_game(algorithm, pair, **job):
    """Labels that balance, and a canary whose row is at its bound in both worlds, with one label or
    the other: the same row, which moves sums the most, or one "across", which moves second moments."""
    target = game(algorithm, position=3, **job)
    worlds = []
    for world in (0, 1):
        x, y = np.zeros((ROWS, COLUMNS), dtype=np.int16), np.where(np.arange(ROWS) % 2, 1.0, -1.0)
        x[3] = (0, 0, 4095) if world and pair == "across" else (0, 4095, 0)
        y[3] = (1.0, -1.0)[world]
        worlds.append((x, y))
    return replace(target, worlds=(worlds[0], worlds[1]))


DESCRIBED = (
    ColumnFacts(name="age", kind="numeric", position=1),
    ColumnFacts(name="pay", kind="unbounded", position=1),
    ColumnFacts(name="city", kind="categorical", position=1, cells=2),
)


def table_game(summaries, storage="fixed", **privacy):
    """A canary that is in one cell of every table in world zero and in another in world one."""
    about = facts(storage, privacy["delta"]).model_copy(update={"described": DESCRIBED})
    spec = {"dataset": "d", "algorithm": "column-summaries", "privacy": privacy}
    made = plan(JobSpec.model_validate(spec | {"summaries": summaries}), about)
    add = add_tables(about, made.counted[0])
    worlds = []
    for share, label in ((0, 1.0), (1, -1.0)):
        x = np.zeros((ROWS, COLUMNS), dtype=np.int16 if storage == "fixed" else np.float64)
        full = 4095 if storage == "fixed" else 1
        x[:, 0] = full
        x[3, 1], x[3, 2] = full * share, full * (1 - share)
        y = np.ones(ROWS)
        y[3] = label
        worlds.append((x, y))
    moved = (add(*worlds[1]) - add(*worlds[0])).astype(float)
    direction = np.zeros(made.dimension)
    direction[: moved.size] = moved / np.linalg.norm(moved)
    return Game(plan=made, worlds=(worlds[0], worlds[1]), position=3, direction=direction)


def clip_game(algorithm, storage, canary, **job):
    """A "longer" canary is zero in one world and longer than any clip in the other. Besides, five rows
    are zero, one has a gradient of length 1 and five are longer than any clip, so that below 1 the
    count falls from the rank, 6, and above 1 it falls to it: scores move in opposite directions.
    "Opposite" canaries are alike in length and differ in their label."""
    target = game(algorithm, storage, position=0, **job)
    worlds = []
    for world in (0, 1):
        x, y = (array.copy() for array in target.worlds[world])
        if canary == "longer":
            x[:, 0] = [(0.0, 2.0**50)[world]] + [0.0] * 5 + [2.0] + [2.0**50] * 5
            y[0] = 1.0
        worlds.append((x, y))
    return replace(target, worlds=(worlds[0], worlds[1]))
