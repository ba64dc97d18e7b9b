"""Releases of every kind, drawn at random for property tests."""

from hypothesis import strategies as st
from pydantic import TypeAdapter

from service.planning.releases import (
    Choice,
    Disjoint,
    Exponential,
    Gaussian,
    Laplace,
    LaplacePrefixes,
    Leaf,
    PerturbedMinimum,
    Pure,
    Recursive,
    Release,
    Repeat,
    Sequence,
    Subsample,
)

ANY = TypeAdapter(Release)
integers = st.integers(1, 50)
mechanisms = st.one_of(
    st.builds(Gaussian, sensitivity=integers, sigma=integers),
    *(
        st.builds(kind, sensitivity=integers, scale=integers)
        for kind in (Pure, Laplace, Exponential, Choice)
    ),
    st.builds(
        PerturbedMinimum,
        noise=st.sampled_from(("gaussian", "laplace")),
        **dict.fromkeys(("sensitivity", "scale", "curvature", "strong"), integers),
        sides=st.sampled_from((1, 2)),
    ),
    st.builds(
        LaplacePrefixes,
        scale=integers,
        leaves=st.lists(
            st.builds(Leaf, sensitivity=integers, squares=integers, absolutes=integers),
            min_size=1,
            max_size=2,
        ).map(tuple),
        vectors=integers,
    ),
)
choices = st.lists(st.tuples(integers, st.integers(0, 2**32), integers), min_size=1, max_size=4)
mechanisms |= st.builds(
    lambda rows, slack: Recursive(**recursive(rows), slack=slack), choices, st.integers(0, 9)
)
releases = st.recursive(
    mechanisms,
    lambda inner: st.one_of(
        st.builds(Sequence, parts=st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Repeat, release=inner, times=integers),
        st.builds(
            Disjoint, parts=st.lists(inner, min_size=1, max_size=3).map(tuple), copies=integers
        ),
        st.builds(
            lambda release, batch, others: Subsample(
                release=release, batch=batch, population=batch + others
            ),
            inner,
            integers,
            st.integers(0, 500),
        ),
    ),
    max_leaves=4,
)
orders = st.sampled_from((2, 3, 4, 7, 12))


def recursive(rows):
    """The fields of a recursive release from (sensitivity, kept, scale) per choice."""
    names = ("sensitivities", "kept", "scales")
    return dict(zip(names, (tuple(column) for column in zip(*rows, strict=True)), strict=True))
