"""Histories: drawn from a seed, played, and, where one fails, made as short as it can be.

A step is a name and three numbers, and says nothing about the state: numbers count modulo what is
there. So any part of a history is a history too, and dropping steps is all that shrinking takes.
"""

import random
import tempfile
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from sqlalchemy import select

from service.audit import caps, verify
from service.config import Settings
from service.jobs import planned, turns
from service.ledger import check, costs
from service.tables import jobs
from tests.harness import template
from tests.simulation.database import Fate, Lock, SimulatedDatabase, seeded
from tests.simulation.invariants import AFTER_EVERY_STEP, AT_THE_END, findings
from tests.simulation.people import SCENES, People
from tests.simulation.world import CAPS, SHARES, WORKERS, World

STEPS = 90
WEIGHTS = {
    "go": 60,
    "submit": 10,
    "again": 6,
    "group": 3,
    "repeat": 2,
    "cancel": 4,
    "hint": 8,
    "poll": 6,
    "reap": 5,
    "tick": 8,
    "supervise": 3,
    "lapse": 2,
    "top_up": 1,
    "share": 1,
    "freeze": 1,
    "revoke": 1,
    "delete": 0.2,
    "purge": 0.3,
}
FATES = (  # in a hundred
    *((Fate.FINE,) * 87 + (Fate.DIES_BEFORE,) * 2 + (Fate.DIES_AFTER,) * 5),
    *((Fate.AWAY,) * 2 + (Fate.ANSWER_LOST,) * 4),
)
TICKS_MS = (1, 100, 1000, 2500, 5001, 5001, 6000, 6000, 60_000, 3_600_000, -100, -3_000, -600_000)
LEASE_SECONDS = 5.0
MOVES = 300  # of one round, within which everybody must be done
HEALTHY = 1 + 2 * 6 * 5  # habits of a worker that claims and opens at once, and publishes
ROUNDS = 10  # of quiet time, within which every job must end


class Failed(Exception):
    def __init__(self, invariant, found, world):
        super().__init__(f"{invariant}: {'; '.join(found)}")
        self.invariant, self.world = invariant, world


def draw(seed, count=STEPS):
    """The scene and the steps of a seed."""
    rng = random.Random(seed)
    names = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    steps = [(name, *(rng.randrange(10_000) for _ in range(3))) for name in names]
    return seed % len(SCENES), steps


class Stage:
    """One database, for one history after another."""

    def __init__(self, folder):
        path = Path(folder) / "simulated.db"
        path.write_bytes(template("sqlite").read_bytes())
        self.db = SimulatedDatabase(path)
        self.settings = Settings(
            data_dir=Path(folder),
            database_url=self.db.url,
            attempts_max=3,
            starts_max=8,
            lease_seconds=LEASE_SECONDS,
        )
        assert self.settings.keys  # made now: what the first history drew for them, no replay would
        empty, self.scenes = self.db.content(), []
        for number, scene in enumerate(SCENES):
            with seeded(number):
                people = People.settle(self.db, *scene)
            self.scenes.append((self.db.content(), people))
            self.db.load(empty)

    def play(self, scene, steps):
        """The world after these steps and quiet time; Failed at the first finding."""
        content, people = self.scenes[scene]
        self.db.load(content)
        world = World(self.db, self.settings, people)
        with seeded(len(SCENES) + scene):  # not what the scene itself was made of: keys are unique
            try:
                for step in steps:
                    self._take(world, step)
                self._heal(world)
            except Failed:
                raise
            except Exception as error:
                raise Failed("nothing_unexpected_is_raised", [repr(error)], world) from error
            finally:
                for actor in world.actors:
                    actor.throw()
        return world

    def _take(self, world, step):
        before = self.db.changes
        world.steps += 1
        act(world, *step)
        if self.db.changes != before:  # else nothing can have changed
            expect(world, AFTER_EVERY_STEP)

    def _heal(self, world):
        """Let time pass without faults: whoever waits goes on, workers work, leases are reaped."""
        for _ in range(ROUNDS):
            for number in range(MOVES):
                self._take(world, ("go", number, 0, 0))
                if not world.actors:
                    break
            else:
                break
            with world.look() as connection:
                left = select(jobs.c.id).where(
                    jobs.c.state.in_(("queued", "running", "cancelling"))
                )
                if connection.execute(left.limit(1)).first() is None:
                    break
            self.db.now_ms += 1000 * (3600 + int(LEASE_SECONDS))
            self._take(world, ("reap", 0, 0, 0))
            world.work(HEALTHY)
        expect(world, AT_THE_END)

    def close(self):
        self.db.dispose()


def act(world, name, *numbers):
    """One step."""
    ACTIONS[name](world, *numbers)


def _go(world, a, b, c):
    if world.actors:
        world.go(world.actors[a % len(world.actors)], FATES[b % len(FATES)])


def _submit(world, a, b, c):
    world.ask(_person(world, a), [b], False, c % 4 > 0)


def _again(world, a, b, c):
    """Another job like one before, of the same person."""
    before = [request for request in world.requests if not request.group]
    if before:
        like = before[-1 - a % min(3, len(before))]
        world.ask(like.who, [like.choice], False, c % 4 > 0)


def _group(world, a, b, c):
    world.ask(_person(world, a), [b, c, b + c][: 2 + a % 2], True, c % 4 > 0)


def _repeat(world, a, b, c):
    keyed = [request for request in world.requests if request.key]
    if keyed:
        world.fault("a request sent again")
        world.send(keyed[a % len(keyed)])


def _cancel(world, a, b, c):
    with world.look() as connection:
        found = connection.execute(select(jobs.c.id).order_by(jobs.c.id)).scalars().all()
    if found:
        world.cancel(found[a % len(found)])


def _hint(world, a, b, c):
    """Any of them, in any order; lost, delivered, or delivered and kept to be delivered again."""
    if not world.hints:
        return
    number = a % len(world.hints)
    what = ("lost", "doubled", "delivered", "delivered")[b % 4]
    if number:
        world.fault("a hint overtaken")
    if what != "delivered":
        world.fault(f"a hint {what}")
    if what != "lost":
        _poll(world, c)
    if what != "doubled":
        del world.hints[number]


def _poll(world, habits, *_):
    if len(_workers(world)) < WORKERS:
        world.work(habits)


def _lapse(world, habits, *_):
    """Leases run out while workers go on: their jobs are reaped, and another worker claims one."""
    if not _workers(world):
        return
    world.fault("leases run out")
    world.db.now_ms += int(1000 * LEASE_SECONDS) + 1
    for start in (world.reap, lambda: world.work(habits)):
        there = len(world.actors)
        start()
        for actor in world.actors[there:]:
            world.go(actor, Fate.FINE)


def _tick(world, a, b, c):
    jump = TICKS_MS[a % len(TICKS_MS)]
    world.db.now_ms += jump
    world.note(f"the clock moves by {jump} ms")
    if jump < 0 or jump >= 60_000:
        world.fault("the clock jumps")


def _delete(world, a, b, c):
    world.fault("data deleted")
    world.delete(world.people.datasets[a % 3])


def _person(world, number):
    return (*world.people.analysts, world.people.owner)[number % 3]


def _workers(world):
    return [actor for actor in world.actors if actor.name.startswith("worker")]


ACTIONS = {
    "go": _go,
    "submit": _submit,
    "again": _again,
    "group": _group,
    "repeat": _repeat,
    "cancel": _cancel,
    "hint": _hint,
    "poll": _poll,
    "lapse": _lapse,
    "tick": _tick,
    "delete": _delete,
    "supervise": lambda world, a, b, c: world.supervise(a),
    "reap": lambda world, a, b, c: world.reap(),
    "purge": lambda world, a, b, c: world.purge(),
    "top_up": lambda world, a, b, c: world.top_up(a, CAPS[b % len(CAPS)]),
    "share": lambda world, a, b, c: world.share(a, _person(world, b), SHARES[c % len(SHARES)]),
    "revoke": lambda world, a, b, c: world.revoke(_person(world, a)),
    "freeze": lambda world, a, b, c: world.freeze(a, b % 3 == 0),
}


def expect(world, invariants):
    if found := findings(world, invariants):
        raise Failed(*found, world)


def failure(stage, scene, steps):
    try:
        stage.play(scene, steps)
    except Failed as failed:
        return failed
    return None


def shrink(stage, scene, steps):
    """A history at which the same invariant fails, of which no step can be dropped any more: by
    dropping ever smaller runs of steps, and putting 0 for numbers."""
    wanted, size = failure(stage, scene, steps).invariant, len(steps)

    def fails(candidate):
        found = failure(stage, scene, candidate)
        return found is not None and found.invariant == wanted

    while True:
        before = steps
        while size:
            at = 0
            while at < len(steps):
                fewer = steps[:at] + steps[at + size :]
                steps, at = (fewer, at) if fails(fewer) else (steps, at + size)
            size //= 2
        for at, (name, *numbers) in enumerate(steps):
            plain = [*steps[:at], (name, *(0 for _ in numbers)), *steps[at + 1 :]]
            steps = plain if plain != steps and fails(plain) else steps
        if steps == before:
            return steps
        size = 1


@contextmanager
def opened_stage():
    with tempfile.TemporaryDirectory() as folder, computed_once():
        stage = Stage(folder)
        try:
            yield stage
        finally:
            stage.close()


@contextmanager
def computed_once():
    """Planning and pricing are pure, and not what is played: no Plan is made or priced twice."""
    release_of = cache(costs.release_of)  # one object per Plan, so that its id is as good as itself
    with ExitStack() as stack:
        stack.enter_context(patch.object(turns, "threading", SimpleNamespace(Lock=Lock)))
        for module, name, key in (
            (verify, "make_plan", lambda spec, facts: (_text(facts), _text(spec))),
            (verify, "fits_own_target", lambda release, *rest: (_text(release), *rest)),
            (verify, "price_units", lambda release, terms: (_text(release), terms)),
            (
                check,
                "_price",
                lambda release, key, account: (id(release), key, account.terms.delta),
            ),
            (caps, "price_units", lambda release, terms: (_text(release), terms)),
        ):
            stack.enter_context(patch.object(module, name, _memoised(getattr(module, name), key)))
        every = cache(planned._planned.__wrapped__)  # of any number of Plans
        stack.enter_context(patch.object(planned, "_planned", every))
        for module in (check, costs):
            stack.enter_context(patch.object(module, "release_of", release_of))
        yield


def _memoised(function, key):
    known = {}

    def once(*arguments):
        found = key(*arguments)
        if found not in known:
            known[found] = function(*arguments)
        return known[found]

    return once


def _text(model):
    return model.model_dump_json()
