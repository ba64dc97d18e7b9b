"""What parsers are fed: values that break parsers elsewhere, and small changes to good documents."""

import copy
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("EPSILOND_FUZZ_EXAMPLES", "0"))
"""An operation or a parser: `make fuzz` sets it; without it a few, the same every time."""


def fuzzed(few, each=10):
    """Hypothesis's settings: a parser is much faster than a request."""
    return settings(
        max_examples=each * EXAMPLES or few,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


NUMBERS = [
    *("0", "-0", "-0.0", "+1", ".5", "5.", "007", "1e5", "1E+5", "1e-999999", "1e999999"),
    *("-1e999999", "NaN", "nan", "-nan", "+NaN", "NAN", "nan(1)", "inf", "-Infinity", "infinity"),
    *(
        "1_000",
        "0x10",
        "0b1",
        "1,5",
        "1 000",
        "٣",
        "１２",
        "½",
        "1e",
        "--1",
        "9" * 400,
        "0." + "9" * 400,
    ),
    *("1d5", "1f", "1j", "true", "True", "NA", "N/A", "?", "null", "None", "", " ", " 1 ", "\t1"),
]
TEXTS = [
    *("\0", "a\0b", "\ud800", "\udfff\ud800", "\ufeff", "\u2028", "\x85", "\x1c", "\x1a", "\u202e"),
    *(
        "'; DROP TABLE jobs; --",
        "=1+1",
        "../../etc/passwd",
        "{{7*7}}",
        "%s%n",
        "<script>",
        "\\",
        '"',
    ),
    *("e\u0301", "\xe9", "İ", "ß", "x" * 300, "x" * 70_000, "<other>", "(intercept)", "__class__"),
]
numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(
        [0, -1, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -0.0, 5e-324, 1.7e308, 1e-300]
    ),
)
scalars = st.one_of(
    numbers, st.none(), st.booleans(), st.sampled_from([*NUMBERS, *TEXTS]), st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(document, here=()):
    """The path of every value of a document."""
    yield here
    pairs = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in pairs:
        yield from places(value, (*here, key))


@st.composite
def changed(draw, documents, other=values, most=3):
    """One of the documents with values replaced, left out, doubled or swapped."""
    document = {"": copy.deepcopy(draw(documents))}
    for _ in range(draw(st.integers(1, most))):
        found = [place for place in places(document) if place]
        *path, last = draw(st.sampled_from(found))
        holder = document
        for key in path:
            holder = holder[key]
        act = draw(st.sampled_from(["replace", "replace", "drop", "copy", "double", "nudge"]))
        value = holder[last]
        if act == "drop" and path:
            del holder[last]
        elif act == "copy":
            *source, name = draw(st.sampled_from(found))
            origin = document
            for key in source:
                origin = origin[key]
            holder[last] = copy.deepcopy(origin[name])
        elif act == "double" and isinstance(value, list):
            holder[last] = value * 2
        elif act == "nudge" and isinstance(value, (int, float)):
            holder[last] = draw(
                st.sampled_from([value + 1, value - 1, -value, value * 2, value / 3])
            )
        else:
            holder[last] = draw(other)
    return document[""]


@st.composite
def damaged(draw, originals, most=4):
    """Bytes that were good, with some flipped, cut, repeated or put in."""
    data = bytearray(draw(originals))
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(data)))
        act = draw(st.sampled_from(["flip", "flip", "cut", "insert", "repeat", "truncate"]))
        if act == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif act == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        elif act == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif act == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 60))]
        elif act == "truncate":
            del data[at:]
    return bytes(data)
