"""A run that strays from what was priced is stopped at the gate, whichever algorithm it is.

Each mutant is an algorithm's own run with one mistake; the meter must catch it by itself, with no
statistics."""

from dataclasses import replace

import numpy as np
import pytest

from service.planning.catalog import plan
from service.planning.lattice import ScoreLattice
from service.planning.releases import Disjoint, Prefixes, Sequence
from service.planning.releases.metering import Prefix
from tests.planning.cases import facts, spec
from tests.workers.gated import JOBS, D, N, Recording, data_for, jobs, noises, planned, run
from workers.algorithms import RUNS
from workers.data import Data, Estimate
from workers.gate import Gate, GateError
from workers.progress import Progress


def mutant(change, first=0):
    """A gate at which everything from the ask number `first` on is asked for with a change."""

    class Mutant(Gate):
        def _pay(self, ask):
            for each in change(ask) if self.number >= first else [ask]:
                super()._pay(each)

    return Mutant


MUTANTS = {
    "one release more": lambda ask: [ask, ask],
    "a larger sensitivity": lambda ask: [replace(ask, sensitivity=ask.sensitivity + 1)],
    "less noise": lambda ask: [replace(ask, scale=ask.scale - 1)],
    "noise of another kind": lambda ask: [
        replace(ask, mechanism="laplace" if ask.mechanism != "laplace" else "gaussian")
    ],
    "a sum of another kind": lambda ask: [
        replace(ask, how=None if ask.how else Prefix(1, 1, ask.rows, np.ones(1, np.int64)))
    ],
    "a batch for a whole, or a whole for a batch": lambda ask: [
        replace(ask, batch=None if ask.batch else 1)
    ],
}


@jobs
@noises
def test_an_honest_run_passes(job, delta):
    made = planned(job, delta)
    gate = run(made, Recording)
    assert gate.asks and gate.number == len(gate.asks)


@jobs
@noises
@pytest.mark.parametrize("name", MUTANTS)
def test_a_run_that_asks_for_more_is_stopped_and_not_published(job, delta, name):
    made = planned(job, delta)
    honest = run(made, Recording).asks
    for first in {0, len(honest) - 1}:  # from the start, or in the last release only
        if name == "one release more" and first == 0 and len(honest) > 1:
            continue  # what follows is then short of one: the last is the sharper case
        given = data_for(made, mutant(MUTANTS[name], first))
        with pytest.raises(GateError, match="left of what was paid for"):
            RUNS[made.algorithm](made, given, Progress())
        with pytest.raises(GateError, match="nothing of it is published"):
            given.close()


def disjoint(made):
    """Whether it has several parts on rows of their own."""
    parts = made.release, *getattr(made.release, "parts", ())
    return any(isinstance(p, Disjoint) and len(p.parts) * p.copies > 1 for p in parts)


@jobs
@noises
def test_rows_that_overlap_are_refused_where_disjoint_ones_were_priced(job, delta):
    made = planned(job, delta)
    honest = run(made, Recording).asks
    starts = {ask.rows.start for ask in honest}
    if not disjoint(made):
        # nothing is disjoint here: every release is over all rows, or all that are held out
        assert starts == {N if made.schedule.evaluates() else 0}
        return
    assert len(starts) > 1

    def back(ask):
        """A range that begins one row early, in the part before it."""
        start = max(0, ask.rows.start - 1)
        if ask.batch is not None:  # as long as before, or its share would be another
            return [replace(ask, rows=range(start, start + len(ask.rows)))]
        return [replace(ask, rows=range(start, ask.rows.stop))]

    with pytest.raises(GateError):
        run(made, mutant(back))


@jobs
@noises
def test_releases_in_another_order_are_refused_where_order_was_priced(job, delta):
    made = planned(job, delta)
    honest = run(made, Recording).asks
    meter = made.release.meter()
    backwards = [meter.spend(ask) for ask in reversed(honest)]
    ordered = disjoint(made) or "recursive" in made.canonical()
    assert all(backwards) != ordered or len(honest) == 1


CHOOSING = [job for job in JOBS if isinstance(planned(job, 1e-6).lattice, ScoreLattice)]


@pytest.mark.parametrize("job", CHOOSING)
@noises
def test_a_choice_with_a_larger_score_range_is_refused(job, delta):
    made = planned(job, delta)

    class Doubled(Data):
        """Its scores move twice as far as it says."""

        def _choice(self, ballot, scale, rows, running=None):
            wide = replace(
                ballot,
                scores=lambda total: 2 * ballot.scores(total),
                probe=lambda total: 2 * ballot.probe(total),
            )
            return super()._choice(wide, scale, rows, running)

    class Declared(Data):
        """It says how far its scores move, and that was not paid for."""

        def _choice(self, ballot, scale, rows, running=None):
            wide = replace(ballot, sensitivity=2 * ballot.sensitivity)
            return super()._choice(wide, scale, rows, running)

    with pytest.raises(GateError, match="moves apart by more"):
        run(made, data=Doubled)
    with pytest.raises(GateError, match="exponential noise of scale"):
        run(made, data=Declared)


def test_eight_whole_gradients_are_not_two_and_six_differences():
    made = planned("many passes", 1e-6)
    assert isinstance(made.release, Sequence) and made.release.parts[0].times == 2

    class Whole(Data):
        def noisy_gradient(self, estimate, lattice, batch=None):
            return super().noisy_gradient(Estimate(estimate.at), self._plan.lattice, batch)

    given = data_for(made, data=Whole)
    with pytest.raises(GateError):
        RUNS[made.algorithm](made, given, Progress())
    assert given._gate.number == 2


@noises
@pytest.mark.parametrize(
    "job", ["clipped-sgd", "accelerated-clipped-sgd", "proximal-sgd", "a chosen clip"]
)
def test_one_batch_again_and_again_is_not_disjoint_batches(job, delta):
    made = planned(job, delta)

    class Same(Data):
        def noisy_sum(self, weights, start, stop):
            return super().noisy_sum(weights, 0, stop - start)

    if made.schedule.steps == 1:
        made = plan(
            spec(JOBS[job][0], 1.0, None, parameters={"steps": 3}),
            facts(rows=N, columns=D, delta=delta),
        )
    with pytest.raises(GateError, match="parts to begin"):
        run(made, data=Same)


def test_a_run_may_leave_releases_unspent():
    made = planned("gradient-descent", 1e-6)
    given = data_for(made)
    given.noisy_sum(np.zeros(D), 0, N)
    given.close()
    with pytest.raises(GateError):  # and then nothing more leaves
        given.noisy_sum(np.zeros(D), 0, N)


def test_prefix_rows_are_metered_by_the_matrix_that_is_used():
    """A run that releases the first sum in every row weighs it more than its column was priced."""
    made = planned("a tree", 1e-6)
    assert isinstance(made.release.parts[0], Prefixes)

    def first_again(ask):
        return [replace(ask, how=replace(ask.how, weights=np.ones(1, np.int64)))] * 2

    with pytest.raises(GateError):
        run(made, mutant(first_again))


@noises
@pytest.mark.parametrize("job", CHOOSING)
def test_the_probe_comes_near_what_is_priced(job, delta):
    """Or it would let a small mistake pass."""
    made = planned(job, delta)
    widest = []

    class Probing(Data):
        def _choice(self, ballot, scale, rows, running=None):
            widest.append(ballot.widest / (ballot.sensitivity + ballot.slack))
            return super()._choice(ballot, scale, rows, running)

    run(made, data=Probing)
    assert 0.99 < max(widest) <= 1
