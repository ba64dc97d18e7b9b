"""Meters let out what their release was priced for: as often, over such rows, in such an order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planning.releases import (
    Choice,
    Disjoint,
    Exponential,
    Gaussian,
    Laplace,
    Leaf,
    PerturbedMinimum,
    Prefixes,
    Pure,
    Recursive,
    Repeat,
    SampledGaussian,
    Sequence,
    Subsample,
)
from service.planning.releases.metering import Ask, LinearTerm, Prefix, Running
from service.planning.shared.prefixes import columns, vectors
from workers.prefixes import prefixes

ALL = range(100)
GAUSSIAN, LAPLACE, CHOICE = (
    Gaussian(sensitivity=3, sigma=8),
    Laplace(sensitivity=3, scale=8),
    Choice(sensitivity=3, scale=8),
)
ASKS = {
    GAUSSIAN: Ask("gaussian", 3, 8, ALL),
    LAPLACE: Ask("laplace", 3, 8, ALL),
    CHOICE: Ask("exponential", 3, 8, ALL),
    Pure(sensitivity=3, scale=8): Ask("laplace", 3, 8, ALL),
    Exponential(sensitivity=3, scale=8): Ask("exponential", 3, 8, ALL),
}


MINIMUM = PerturbedMinimum(
    noise="gaussian", sensitivity=3, scale=8, curvature=1, strong=20, sides=1
)


def taken(release, asks):
    """Which of the asks, one after the other, are granted."""
    meter = release.meter()
    return [meter.spend(ask) for ask in asks]


def rows(start, stop):
    return replace(ASKS[GAUSSIAN], rows=range(start, stop))


@pytest.mark.parametrize("release", ASKS)
def test_one_release_is_let_out_once_and_as_it_was_priced(release):
    ask = ASKS[release]
    others = [
        *(replace(ask, mechanism=m) for m in ("gaussian", "laplace", "exponential")),
        *(replace(ask, sensitivity=s) for s in (2, 4)),
        *(replace(ask, scale=s) for s in (7, 9)),
        replace(ask, batch=5),
        replace(ask, how=Running(1, 1, ALL, 2**32, 0)),
    ]
    assert taken(release, [*(o for o in others if o != ask), ask, ask]) == [False] * 8 + [
        True,
        False,
    ]


def test_a_linear_term_is_let_out_as_such_and_for_the_objective_that_was_priced():
    ask = replace(ASKS[GAUSSIAN], how=LinearTerm(1, 20, 1))
    others = [
        ASKS[GAUSSIAN],
        *(replace(ask, how=LinearTerm(*how)) for how in ((2, 20, 1), (1, 19, 1), (1, 20, 2))),
        replace(ask, mechanism="laplace"),
        replace(ask, sensitivity=4),
        replace(ask, scale=9),
        replace(ask, batch=5),
    ]
    assert taken(MINIMUM, [*others, ask, ask]) == [False] * 8 + [True, False]
    assert taken(GAUSSIAN, [ask, ASKS[GAUSSIAN]]) == [False, True]
    assert "linear term, by 1/20" in str(ask) and "linear term" in MINIMUM.meter().left()
    both = Sequence(parts=(MINIMUM, GAUSSIAN))
    assert taken(both, [ask, ASKS[GAUSSIAN], ask, ASKS[GAUSSIAN]]) == [True, True, False, False]


def test_a_sequence_is_let_out_in_any_order_and_each_part_once():
    release = Sequence(parts=(GAUSSIAN, CHOICE, Repeat(release=LAPLACE, times=2)))
    g, c, p = ASKS[GAUSSIAN], ASKS[CHOICE], ASKS[LAPLACE]
    assert taken(release, [p, c, g, p]) == [True] * 4
    assert taken(release, [g, g, p, c, c, p, p]) == [True, False, True, True, False, True, False]


@given(times=st.integers(1, 9), asked=st.integers(0, 12))
def test_so_many_times_and_no_more(times, asked):
    granted = taken(Repeat(release=GAUSSIAN, times=times), [ASKS[GAUSSIAN]] * asked)
    assert granted == [True] * min(times, asked) + [False] * max(0, asked - times)


def test_interleaved_parts_of_a_sequence_have_counts_of_their_own():
    """Whole gradients and differences by turns, as over many passes."""
    other = Gaussian(sensitivity=1, sigma=8)
    parts = Repeat(release=GAUSSIAN, times=2), Repeat(release=other, times=4)
    release, whole = Sequence(parts=parts), ASKS[GAUSSIAN]
    change = replace(whole, sensitivity=1)
    period = [whole, change, change]
    assert taken(release, period * 2) == [True] * 6
    assert taken(release, [whole] * 8) == [True, True] + [False] * 6


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=12))
def test_disjoint_parts_read_disjoint_rows(ranges):
    """Whatever is asked: no position is read by two parts, and no more parts begin than priced."""
    release = Disjoint(parts=(GAUSSIAN,), copies=4)
    asks = [rows(start, start + size) for start, size in ranges]
    read = [ask.rows for ask, granted in zip(asks, taken(release, asks), strict=True) if granted]
    assert len(read) <= 4
    assert sum(map(len, read)) == len(set().union(*read))


def test_the_same_rows_four_times_are_not_four_disjoint_batches():
    release = Disjoint(parts=(GAUSSIAN,), copies=4)
    assert taken(release, [rows(0, 50)] * 4) == [True, False, False, False]
    assert taken(release, [rows(t * 25, t * 25 + 25) for t in range(5)]) == [True] * 4 + [False]
    assert taken(release, [rows(0, 25), rows(24, 50)]) == [True, False]
    assert taken(release, [rows(50, 75), rows(0, 25)]) == [True, False]


def test_parts_of_disjoint_rows_come_in_the_order_of_the_price():
    small = Gaussian(sensitivity=1, sigma=8)
    release = Disjoint(parts=(Repeat(release=GAUSSIAN, times=2), small), copies=2)
    large, little = rows(0, 10), replace(rows(10, 20), sensitivity=1)
    again = rows(20, 30)
    assert taken(release, [large, large, little, again, again]) == [True] * 5
    assert taken(release, [replace(large, sensitivity=1)]) == [False]
    assert taken(release, [large, little, little]) == [True, True, False]
    assert taken(release, [large, large, large]) == [True, True, False]


def test_epochs_of_disjoint_batches_begin_again_as_often_as_was_priced():
    release = Repeat(release=Disjoint(parts=(GAUSSIAN,), copies=2), times=2)
    epoch = [rows(0, 50), rows(50, 100)]
    assert taken(release, epoch * 3) == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("release", "mechanism"),
    [
        (SampledGaussian(sensitivity=3, sigma=8, batch=5, population=100), "gaussian"),
        (Subsample(release=LAPLACE, batch=5, population=100), "laplace"),
        (Subsample(release=CHOICE, batch=5, population=100), "exponential"),
    ],
)
def test_a_drawn_batch_is_let_out_at_its_share_only(release, mechanism):
    ask = Ask(mechanism, 3, 8, ALL, batch=5)
    wrong = [replace(ask, batch=b) for b in (None, 4, 6)] + [replace(ask, rows=range(99))]
    assert taken(release, [*wrong, ask, ask]) == [False] * 4 + [True, False]


def test_several_releases_of_one_batch_cannot_be_run():
    drawn = SampledGaussian(sensitivity=3, sigma=8, batch=1, population=5)
    for several in (Repeat(release=LAPLACE, times=2), drawn):
        with pytest.raises(TypeError, match="single release"):
            Subsample(release=several, batch=5, population=100).meter()


# --- prefix sums ------------------------------------------------------------------------------------


def prefix_release(mechanism, length, first=6, later=4):
    both = columns(mechanism, length)
    kinds = zip((first, later)[: min(2, length)], both, strict=False)
    return Prefixes(
        noise="gaussian",
        scale=8,
        leaves=tuple(
            Leaf(sensitivity=s, squares=c.squares, absolutes=c.absolutes) for s, c in kinds
        ),
        vectors=vectors(mechanism, length),
    )


def prefix_asks(mechanism, length, first=6, later=4, start=0):
    """What an honest run asks for, over 5 rows a time."""
    sums = prefixes(mechanism, length, 1)
    for t in range(length):
        fresh = range(start + 5 * t, start + 5 * t + 5)
        for weights, _ in sums.due(np.zeros(1, dtype=np.int64)):
            sensitivity = later if t else first
            hull = range(start, fresh.stop)
            how = Prefix(start, t + 1, fresh, weights)
            yield Ask("gaussian", sensitivity, 8, hull, None, how)


MATRICES = [(m, n) for m in ("root", "tree") for n in (1, 2, 3, 8, 13, 64)]


@pytest.mark.parametrize(("mechanism", "length"), MATRICES)
def test_the_rows_of_prefix_sums_are_let_out_once_in_order(mechanism, length):
    release, asks = prefix_release(mechanism, length), list(prefix_asks(mechanism, length))
    assert all(taken(release, asks))
    assert taken(release, [*asks, asks[-1]])[-1] is False  # no row more
    assert all(
        taken(
            Disjoint(parts=(release,), copies=2),
            [*asks, *prefix_asks(mechanism, length, start=500)],
        )
    )
    assert not any(taken(release, [replace(asks[0], how=None)]))


@pytest.mark.parametrize(("mechanism", "length"), [m for m in MATRICES if m[1] > 2])
def test_no_column_of_prefix_sums_weighs_more_than_was_priced(mechanism, length):
    release, asks = prefix_release(mechanism, length), list(prefix_asks(mechanism, length))
    heavy = [replace(ask, how=replace(ask.how, weights=2 * ask.how.weights)) for ask in asks]
    assert not all(taken(release, heavy))
    twice = [asks[0]] * len(asks)  # the first sum in every row
    assert sum(taken(release, twice)) < len(asks)
    swapped = [replace(asks[0], sensitivity=4), *asks[1:]]
    assert taken(release, swapped)[0] is False
    stale = [asks[0], replace(asks[1], how=replace(asks[1].how, fresh=range(4, 9)))]
    assert taken(release, stale) == [True, False]  # a row of the first sum again


# --- choices by a running sum -----------------------------------------------------------------------

RUNNING = Recursive(sensitivities=(7, 5, 4), kept=(0, 2**31, 2**30), scales=(9, 10, 11), slack=3)


def running_asks():
    for t, (s, k, scale) in enumerate(
        zip(RUNNING.sensitivities, RUNNING.kept, RUNNING.scales, strict=True)
    ):
        fresh = range(10 * t, 10 * t + 10)
        yield Ask("exponential", s, scale, range(fresh.stop), None, Running(1, t + 1, fresh, k, 3))


def test_choices_by_a_running_sum_come_in_order_over_fresh_rows():
    asks = list(running_asks())
    assert taken(RUNNING, [*asks, asks[-1]]) == [True, True, True, False]
    assert taken(RUNNING, [asks[1], asks[0]]) == [False, True]
    for wrong in (
        replace(asks[1], sensitivity=7),
        replace(asks[1], scale=9),
        replace(asks[1], how=replace(asks[1].how, kept=2**32)),  # all of the sum
        replace(asks[1], how=replace(asks[1].how, slack=2)),
        replace(asks[1], how=replace(asks[1].how, fresh=asks[0].how.fresh)),  # the batch again
        replace(asks[1], how=replace(asks[1].how, series=2)),  # another running sum
        replace(asks[1], how=replace(asks[1].how, number=3)),  # to which another batch was added
    ):
        assert taken(RUNNING, [asks[0], wrong]) == [True, False]


def test_a_refusal_changes_nothing_and_says_what_is_left():
    asks = list(running_asks())
    meter = RUNNING.meter()
    assert not meter.spend(asks[2]) and meter.spend(asks[0])
    assert "2 choices, the next of scale 10 for a sensitivity of 5" in meter.left()
    apart = Disjoint(parts=(GAUSSIAN,), copies=3).meter()
    assert apart.spend(rows(0, 10)) and not apart.spend(rows(5, 15))
    assert "gaussian noise of scale 8 for a sensitivity of 3" in apart.left()
    assert "2 parts to begin" in apart.left()
    assert str(rows(5, 15)).endswith("over the rows 5 to 15")


# --- what a sceptical reader got past an earlier meter -----------------------------------------------


@pytest.mark.parametrize("wrong", [range(5, 5), range(100, 0), range(99, -1, -1), range(-1, 5)])
def test_rows_are_a_range_upwards_and_not_empty(wrong):
    """A range that ends where it began would move the barrier between disjoint parts back."""
    with pytest.raises(ValueError, match="a range of positions"):
        replace(ASKS[GAUSSIAN], rows=wrong)
    with pytest.raises(ValueError, match="a range of positions"):
        Running(1, 1, wrong, 0, 0)
    with pytest.raises(ValueError, match="a range of positions"):
        Prefix(1, 1, wrong, np.ones(1, np.int64))


def test_the_newest_rows_are_among_those_that_a_release_depends_on():
    for hull in (range(20, 30), range(5)):
        with pytest.raises(ValueError, match="the newest rows"):
            Ask("exponential", 7, 9, hull, None, Running(1, 1, range(10), 0, 3))


@pytest.mark.parametrize("weights", [np.array([-(2**63)]), np.ones(2, np.int32), np.array([2**31])])
def test_weights_whose_squares_would_wrap_are_refused(weights):
    with pytest.raises(ValueError, match="below 2\\^31"):
        Prefix(1, 1, range(5), weights)


def test_a_new_sum_over_the_same_rows_is_no_other_row_of_the_old_one():
    release, asks = prefix_release("tree", 8), list(prefix_asks("tree", 8))
    again = replace(asks[0], how=replace(asks[0].how, number=2))
    assert taken(release, [asks[0], again, replace(again, sensitivity=4)]) == [True, False, False]


def test_a_meter_of_prefix_sums_follows_one_series():
    """Sums that another one took would shift its columns."""
    asks = list(prefix_asks("tree", 8))
    other = [replace(ask, how=replace(ask.how, series=7)) for ask in asks]
    assert taken(prefix_release("tree", 8), [asks[0], *other[1:3]]) == [True, False, False]
    assert taken(prefix_release("tree", 8), [asks[0], *asks[3:]])[1] is False  # one was left out


def test_a_running_sum_that_keeps_some_of_an_earlier_one_is_not_run():
    carried = RUNNING.model_copy(update={"kept": (2**32, 2**31, 2**30)})
    with pytest.raises(ValueError, match="nothing kept"):
        carried.meter()


def test_a_column_that_would_leave_64_bits_is_not_run():
    leaf = Leaf(sensitivity=1, squares=2**63 - 1, absolutes=1)
    with pytest.raises(ValueError, match="weighs so much"):
        Prefixes(noise="gaussian", scale=8, leaves=(leaf,), vectors=3).meter()
