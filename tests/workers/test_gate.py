"""A run that strays from what was priced is stopped at the gate, whichever algorithm it is.

Each mutant is an algorithm's own run with one mistake; the meter must catch it by itself, with no
statistics."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from service.planning.catalog import plan
from service.planning.lattice import ScoreLattice
from service.planning.releases import Disjoint, Prefixes, Sequence
from service.planning.releases.metering import Prefix
from tests.planning.cases import ROWS, facts, spec
from workers.algorithms import RUNS
from workers.data import Data, Estimate
from workers.gate import Gate, GateError
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError

N, D, KEY = 97, 5, bytes(range(32))
CORNERS = [[1.0] * D, [-1.0] * D, [0.5, -1.0] + [0.0] * (D - 2)]
JOBS = {
    **{name: (name, {}) for name in ROWS},
    "drawn batches": ("gradient-descent", {"parameters": {"steps": 4, "batch": 9}}),
    "drawn phases": ("localized-accelerated-sgd", {"parameters": {"steps": 4, "halvings": 3}}),
    "a chosen clip": ("clipped-sgd", {"parameters": {"clip": "private"}}),
    "several rounds": ("proximally-guided-mirror-descent", {"parameters": {"rounds": 3}}),
    "a tree": (
        "online-to-nonconvex",
        {"parameters": {"mechanism": "tree", "steps": 8, "period": 4}},
    ),
    "many passes": (
        "online-to-nonconvex",
        {"parameters": {"oracle": "first-order-multi-pass", "steps": 8, "period": 4}},
    ),
    "a simplex": ("frank-wolfe", {"set": "simplex"}),
    "vertices": ("frank-wolfe", {"set": {"kind": "polytope", "vertices": CORNERS}}),
}
jobs = pytest.mark.parametrize("job", JOBS)
noises = pytest.mark.parametrize("delta", [1e-6, 0.0])


def planned(job, delta):
    name, more = JOBS[job]
    return plan(spec(name, 1.0, None, **more), facts(rows=N, columns=D, delta=delta))


def data_for(made, gate=Gate, data=Data):
    rng = np.random.default_rng(4)
    x = rng.integers(-900, 900, (N, D)).astype(np.int16)
    y = np.where(rng.uniform(size=N) < 0.5, 1.0, -1.0)
    randomness = Randomness(KEY, made.digest())
    seen = data(made, x, y, randomness, released=np.zeros(made.dimension))
    seen._gate = gate(made, randomness)
    return seen


def run(made, gate=Gate, data=Data):
    given = data_for(made, gate, data)
    RUNS[made.algorithm](made, given, Progress())
    given.close()
    return given._gate


class Recording(Gate):
    """Every ask of an honest run."""

    def __init__(self, made, randomness):
        super().__init__(made, randomness)
        self.asks = []

    def _pay(self, ask):
        self.asks.append(ask)
        super()._pay(ask)


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
        assert starts == {0}  # nothing is disjoint here: every release is over all rows
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
        def noisy_gradient(self, estimate, lattice):
            return super().noisy_gradient(Estimate(estimate.at), self._plan.lattice)

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


# --- what a sceptical reader got past an earlier gate ------------------------------------------------


def test_a_plan_for_points_lets_out_no_sum():
    made = planned("output-perturbation", 1e-6)
    sums = planned("gradient-descent", 1e-6).lattice
    with pytest.raises(WrongDataError, match="this is another"):
        data_for(made).use(sums)
    with pytest.raises(WrongDataError, match="no lattice for sums"):
        data_for(made).noisy_change(np.zeros(D), np.zeros(D), 0.0, 0.5, 0, N)


@noises
@pytest.mark.parametrize(
    "change", [{"derivative_units": 32767}, {"norm": "linf"}, {"bits": 3}, {"points": 2}]
)
def test_sums_are_made_on_the_lattices_of_the_plan_and_no_other(change, delta):
    """What a kernel clamps to and what the meter is told stand in one lattice."""
    made = planned("gradient-descent", delta)
    given = data_for(made)
    with pytest.raises(WrongDataError, match="this is another"):
        given.use(made.lattice.model_copy(update=change))
    with pytest.raises(GateError):  # and who tried does not go on
        given.noisy_sum(np.zeros(D), 0, N)


@noises
def test_a_lattice_whose_bound_is_not_the_kernels_is_refused_even_in_a_plan(delta):
    made = planned("gradient-descent", delta)
    for change in (
        {"derivative_units": made.lattice.derivative_units + 1},
        {"norm": "l1" if delta else "l2"},
    ):
        wrong = made.model_copy(update={"lattice": made.lattice.model_copy(update=change)})
        with pytest.raises(WrongDataError):
            data_for(wrong)


def test_a_row_enters_one_batch_of_a_running_sum_whatever_the_run_says():
    made = planned("polyhedral-stochastic-frank-wolfe", 0.0)
    assert len(made.schedule.rounds) > 1

    class Again(Data):
        """Every round over the first rows."""

        def choose_by_running_sum(self, *arguments, start, stop, **more):
            first = self._rounds[self._round]
            there = {"start": start - first, "stop": stop - first}
            return super().choose_by_running_sum(*arguments, **there, **more)

        def begin_running_sum(self):
            self._rounds = [one.start for one in self._plan.schedule.rounds]
            self._round = getattr(self, "_round", -1) + 1
            super().begin_running_sum()

    with pytest.raises(WrongDataError, match="a row enters one sum"):
        run(made, data=Again)


def test_a_row_enters_one_sum_of_prefixes_even_when_they_begin_anew():
    made = planned("a tree", 1e-6)
    given = data_for(made)
    estimate = Estimate(np.zeros(made.dimension))
    given.begin_prefixes("tree", 1)
    given.noisy_prefix(estimate, made.lattice, 0, 10)
    given.begin_prefixes("tree", 4)
    with pytest.raises(WrongDataError, match="a row enters one sum"):
        given.noisy_prefix(estimate, made.lattice, 0, 10)


def test_an_exception_on_the_way_out_shuts_the_gate():
    """Or a sum that was never paid for could stay in a tree, and a run could try until it fits."""
    made = planned("a tree", 1e-6)
    given = data_for(made)
    given.begin_prefixes("tree", 4)
    with pytest.raises(WrongDataError):
        given.noisy_prefix(Estimate(np.zeros(made.dimension)), made.schedule.later, 90, N + 5)
    with pytest.raises(GateError, match="nothing of it is published"):
        given.close()


def test_as_many_points_are_added_up_as_were_priced():
    made = planned("stationarity-certificate", 1e-6)

    class Shy(list):
        def __len__(self):
            return 1

    given = data_for(made)
    with pytest.raises(WrongDataError, match="sums at 9 points"):
        given.noisy_sum_at(Shy([np.zeros(made.dimension)] * 9), 0, N)


def test_a_point_is_the_next_of_the_plan_and_depends_on_no_other_rows():
    """Its rows and its sensitivity are the Plan's, whatever a run believes."""
    made = planned("phased-sgd", 1e-6)
    (rows, sensitivity), (following, smaller) = made.schedule.released_points(N)[:2]
    assert sensitivity > smaller and rows.stop == following.start
    point, given, gate = np.zeros(made.dimension), data_for(made), Recording
    given = data_for(made, gate)
    given.noisy_point(point)
    list(given.blocks(lambda x, y: None, 10, rows=following))
    given.noisy_point(point)
    assert [ask.rows for ask in given._gate.asks] == [rows, following]
    given = data_for(made)
    list(given.blocks(lambda x, y: None, 10, rows=following))
    with pytest.raises(WrongDataError, match="rows that were read"):
        given.noisy_point(point)


def test_blocks_count_when_they_are_read_and_not_when_they_are_asked_for():
    made = planned("phased-sgd", 1e-6)
    (rows, _), *_ = made.schedule.released_points(N)
    given = data_for(made)
    late = given.blocks(lambda x, y: x.sum(), 10, rows=rows, in_turn=True)
    given.noisy_point(np.zeros(made.dimension))
    next(late)
    with pytest.raises(WrongDataError, match="rows that were read"):
        given.noisy_point(np.zeros(made.dimension))


def test_blocks_are_for_points_and_what_was_read_is_released_or_not_published():
    with pytest.raises(WrongDataError, match="the Plan has none"):
        next(data_for(planned("gradient-descent", 1e-6)).blocks(lambda x, y: None, 10))
    given = data_for(planned("output-perturbation", 1e-6))
    list(given.blocks(lambda x, y: None, 10))
    with pytest.raises(WrongDataError, match="not released"):
        given.close()

    def fails(x, y):
        raise ZeroDivisionError

    given = data_for(planned("output-perturbation", 1e-6))
    with pytest.raises(ZeroDivisionError):
        list(given.blocks(fails, 10))
    with pytest.raises(GateError, match="nothing of it is published"):
        given.close()


class Odd(np.ndarray):
    """Would come out of an addition as it went in."""

    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        return self


@pytest.mark.parametrize(
    "odd",
    [
        lambda d: np.zeros((d, 1)),
        lambda d: np.zeros((1, d)),
        lambda d: np.zeros(d + 1),
        lambda d: np.zeros(1),
        lambda d: 0.0,
    ],
)
def test_noise_is_added_to_one_vector_of_the_plans_size(odd):
    """An array of another shape would be repeated until it fits, under one vector of noise."""
    made = planned("output-perturbation", 1e-6)
    with pytest.raises(GateError, match="one per weight"):
        data_for(made).noisy_point(odd(made.dimension))


def test_an_array_with_arithmetic_of_its_own_gets_its_noise_all_the_same():
    made = planned("output-perturbation", 1e-6)
    released = data_for(made).noisy_point(np.zeros(made.dimension).view(Odd))
    assert type(released) is np.ndarray and (released != 0).any()


@pytest.mark.parametrize("loss", ["logistic", "geometric_median"])
@pytest.mark.parametrize(
    "weights", [np.zeros(1), np.zeros(D + 1), np.zeros((1, D)), np.zeros(D, np.float32)]
)
def test_kernels_meet_as_many_weights_as_the_plan_has(loss, weights):
    made = plan(spec("gradient-descent", loss=loss), facts(rows=N, columns=D))
    with pytest.raises(WrongDataError, match="weights"):
        data_for(made).noisy_sum(weights, 0, N)


def test_directions_are_as_long_as_the_weights():
    more = {"parameters": {"oracle": "zero-order-multi-pass", "steps": 4, "period": 2}}
    made = plan(spec("online-to-nonconvex", **more), facts(rows=N, columns=D))
    estimate = Estimate(np.zeros(1), None, np.ones((1, 1)), 0.5)
    with pytest.raises(WrongDataError, match="weights"):
        data_for(made).noisy_gradient(estimate, made.lattice)


def test_what_equals_a_lattice_of_the_plan_is_not_used_in_its_place():
    made = planned("many passes", 1e-6)
    later = made.schedule.later
    shadowed = made.lattice.model_copy(update={"release": later.release})
    assert shadowed == made.lattice  # as far as fields go
    given = data_for(made, Recording)
    given.noisy_gradient(Estimate(np.zeros(D)), shadowed)
    assert given._gate.asks[0].sensitivity == made.lattice.release().sensitivity


def test_threads_of_a_run_draw_noise_of_their_own():
    made = plan(spec("gradient-descent", parameters={"steps": 40}), facts(rows=N, columns=D))
    given = data_for(made)
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda _: given.noisy_sum(np.zeros(D), 0, N), range(40)))
    assert len({total.tobytes() for total in sums}) == 40
