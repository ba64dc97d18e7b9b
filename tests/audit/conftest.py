"""How deep the auditor goes: `make test` until each game is decided, `make test-full` all the way,
and `make audit` ten times as far."""

import os

import pytest

from tests.audit.harness import QUICK, Depth


@pytest.fixture(scope="session")
def depth():
    rounds = os.environ.get("EPSILOND_AUDIT_ROUNDS")
    return QUICK if rounds is None else Depth(looks=(int(rounds),))
