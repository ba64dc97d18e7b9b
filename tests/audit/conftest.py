"""How long the auditor may take: `make audit` plays many more rounds than the suite."""

import os

import pytest


@pytest.fixture(scope="session")
def audit_rounds():
    return int(os.environ.get("EPSILOND_AUDIT_ROUNDS", "10000"))
