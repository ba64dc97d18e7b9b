"""What no release can be: a size that is none, a missing or unknown field, a change afterwards."""

import pytest
from pydantic import ValidationError

from service.planning.releases import (
    Choice,
    Disjoint,
    Exponential,
    Gaussian,
    Laplace,
    PerturbedMinimum,
    Pure,
    Repeat,
    Subsample,
)
from tests.planning.strategies import ANY

NO_SIZE = [0, -1, 1.5, 2.0, float("nan"), float("inf"), -float("inf"), "3", None, True, [2], 0.0]
MINIMUM = {
    "noise": "gaussian",
    **dict.fromkeys(("sensitivity", "scale", "curvature", "strong"), 3),
    "sides": 1,
}
SHAPES = [
    (Gaussian, "sensitivity", {"sigma": 4}),
    (Gaussian, "sigma", {"sensitivity": 4}),
    (Pure, "sensitivity", {"scale": 4}),
    (Pure, "scale", {"sensitivity": 4}),
    *((kind, "sensitivity", {"scale": 4}) for kind in (Exponential, Laplace, Choice)),
    *((kind, "scale", {"sensitivity": 4}) for kind in (Exponential, Laplace, Choice)),
    *(
        (PerturbedMinimum, field, {k: v for k, v in MINIMUM.items() if k != field})
        for field in ("sensitivity", "scale", "curvature", "strong")
    ),
    (Repeat, "times", {"release": Pure(sensitivity=1, scale=1)}),
    (Disjoint, "copies", {"parts": (Pure(sensitivity=1, scale=1),)}),
    (Subsample, "batch", {"release": Pure(sensitivity=1, scale=1), "population": 9}),
    (Subsample, "population", {"release": Pure(sensitivity=1, scale=1), "batch": 1}),
]


@pytest.mark.parametrize("size", NO_SIZE, ids=repr)
@pytest.mark.parametrize(("kind", "field", "rest"), SHAPES, ids=lambda v: getattr(v, "__name__", v))
def test_a_size_is_a_positive_integer_or_no_release(kind, field, rest, size):
    with pytest.raises(ValidationError):
        kind(**rest, **{field: size})


@pytest.mark.parametrize(
    "size", ["NaN", "Infinity", "0", "-3", "1.0", "1e3", '"2"', "true", "null"]
)
def test_json_smuggles_no_size_in(size):
    with pytest.raises(ValidationError):
        ANY.validate_json(f'{{"kind": "gaussian", "sensitivity": {size}, "sigma": 5}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "sequence", "parts": []}',
        '{"kind": "disjoint", "parts": []}',
        '{"kind": "gaussian", "sensitivity": 1}',
        '{"kind": "gaussian", "sensitivity": 1, "sigma": 1, "discount": 2}',
        '{"kind": "free"}',
        '{"kind": "recursive", "sensitivities": [], "kept": [], "scales": [], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1, 2], "kept": [0], "scales": [1, 1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [4294967297], "scales": [1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1.0], "kept": [0], "scales": [1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [-1], "scales": [1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [0], "scales": [true], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [0], "scales": [1], "slack": -1}',
        '{"sensitivity": 1, "sigma": 1}',
        '{"kind": "subsample", "batch": 3, "population": 2,'
        ' "release": {"kind": "pure", "sensitivity": 1, "scale": 1}}',
    ],
)
def test_an_incomplete_or_unknown_release_has_no_price(text):
    with pytest.raises(ValidationError):
        ANY.validate_json(text)


@pytest.mark.parametrize(("kind", "field", "rest"), SHAPES, ids=lambda v: getattr(v, "__name__", v))
def test_a_release_cannot_be_changed(kind, field, rest):
    release = kind(**rest, **{field: 3})
    with pytest.raises(ValidationError):
        setattr(release, field, 1)
