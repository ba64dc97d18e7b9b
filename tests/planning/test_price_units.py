"""Prices in units, rounded up; terms of accounts and facts that contradict themselves are refused."""

import pytest
from pydantic import ValidationError

from service.planning.price import (
    AccountTerms,
    NotPureError,
    fits_own_target,
    price_units,
)
from service.planning.releases import Gaussian, Pure
from service.planning.spec import Facts
from tests.planning.cases import facts

RENYI, PURE_TERMS = AccountTerms.for_ceiling(1.0, 1e-6), AccountTerms.for_ceiling(1.0, 0.0)
PRICES = [
    (Pure(sensitivity=1, scale=3), PURE_TERMS, 333_333_333_334),
    (Pure(sensitivity=1, scale=2), PURE_TERMS, 500_000_000_000),
    (Pure(sensitivity=1, scale=10**30), PURE_TERMS, 1),  # never free
    (Pure(sensitivity=1, scale=100), RENYI, 50_000_000),  # eps^2/2
    (Pure(sensitivity=22, scale=1), RENYI, 10**12),  # eps/order
    (Gaussian(sensitivity=1, sigma=3), RENYI, 55_555_555_556),  # 1/18
    (Gaussian(sensitivity=1, sigma=10**30), RENYI, 1),
]


@pytest.mark.parametrize(("release", "terms", "units"), PRICES)
def test_a_price_is_rounded_up_to_the_next_unit(release, terms, units):
    assert RENYI.order == 22
    assert price_units(release, terms) == units


def test_gaussian_noise_has_no_price_on_a_pure_account():
    with pytest.raises(NotPureError):
        price_units(Gaussian(sensitivity=1, sigma=9), PURE_TERMS)
    assert not fits_own_target(Gaussian(sensitivity=1, sigma=10**9), 100.0, 0.0)


@pytest.mark.parametrize(
    "terms",
    [
        {"kind": "renyi", "delta": 1e-6},
        {"kind": "renyi", "delta": 0.0, "order": 9},
        {"kind": "renyi", "delta": 1e-6, "order": 1},
        {"kind": "pure", "delta": 1e-6, "order": 9},
        {"kind": "pure", "delta": 1e-6},
        {"kind": "pure", "delta": 0.0, "order": 9},
        {"kind": "renyi", "delta": float("nan"), "order": 9},
        {"kind": "renyi", "delta": 1.0, "order": 9},
    ],
)
def test_account_terms_that_contradict_themselves_are_refused(terms):
    with pytest.raises(ValidationError):
        AccountTerms.model_validate(terms)


@pytest.mark.parametrize(
    "change",
    [
        {"storage": "float64"},  # unbounded rows with a row bound
        {"l2_units": None},
        {"feature_step": None},
        {"l2_units": 0},
        {"l2_units": -4095},
        {"feature_step": float("nan")},
        {"rows": 0},
    ],
)
def test_facts_that_contradict_themselves_are_refused(change):
    with pytest.raises(ValidationError):
        Facts.model_validate(facts().model_dump() | change)
