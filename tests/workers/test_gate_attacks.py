"""What sceptical readers got past earlier gates, and what the gate now says to it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from service.planning.catalog import plan
from tests.planning.cases import facts, spec
from tests.workers.gated import D, N, Recording, data_for, noises, planned, run
from workers.data import Data, Estimate
from workers.gate import GateError
from workers.rows import WrongDataError


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
    read, given = [], data_for(made, Recording)

    def make(blocks):
        read.append(sum(blocks(lambda x, y: len(x), 10)))
        return np.zeros(made.dimension)

    given.noisy_point(make)
    given.noisy_point(make)
    assert [ask.rows for ask in given._gate.asks] == [rows, following]
    assert read == [len(rows), len(following)]


@pytest.mark.parametrize("begun", [False, True])
def test_rows_are_read_for_a_point_only_until_it_is_released(begun):
    made, kept = planned("phased-sgd", 1e-6), []
    given = data_for(made)

    def make(blocks):
        kept.append(blocks(lambda x, y: x.sum(), 10, in_turn=True))
        if begun:
            next(kept[0])
        return np.zeros(made.dimension)

    given.noisy_point(make)
    with pytest.raises(WrongDataError, match="until it is released"):
        next(kept[0])


def test_rows_are_read_for_points_alone_and_a_point_that_fails_shuts_the_gate():
    given = data_for(planned("gradient-descent", 1e-6))
    assert not hasattr(given, "blocks")
    with pytest.raises(WrongDataError, match="the Plan has no point"):
        given.noisy_point(lambda blocks: 1 / 0)

    def fails(x, y):
        raise ZeroDivisionError

    given = data_for(planned("output-perturbation", 1e-6))
    with pytest.raises(ZeroDivisionError):
        given.noisy_point(lambda blocks: list(blocks(fails, 10)))
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
        data_for(made).noisy_point(lambda blocks: odd(made.dimension))


def test_an_array_with_arithmetic_of_its_own_gets_its_noise_all_the_same():
    made = planned("output-perturbation", 1e-6)
    point = np.zeros(made.dimension).view(Odd)
    released = data_for(made).noisy_point(lambda blocks: point)
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
