"""Every operation of openapi.yaml, by every role, with requests that schemathesis makes up."""

import re
from contextlib import ExitStack

import pytest

from tests.fuzz.api import ROLES, aftermath, play, seeded, started
from tests.fuzz.hostile import EXAMPLES
from tests.harness import DATABASES

# Coverage alone is a hundred requests an operation, so it is for `make fuzz`.
FEW = [("postgresql", "analyst"), ("sqlite", "owner")]
EVERY = [(kind, role) for kind in DATABASES for role in ROLES]


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """A service and its scene, by database, as long as this module runs."""
    made = {}
    with ExitStack() as stack:

        def stage(kind):
            if kind not in made:
                service = stack.enter_context(started(kind, tmp_path_factory.mktemp(kind)))
                made[kind] = service, seeded(service)
            return made[kind]

        yield stage


@pytest.mark.parametrize(("kind", "role"), EVERY if EXAMPLES else FEW)
def test_every_answer_is_documented_and_the_books_balance_afterwards(kind, role, stages):
    service, scene = stages(kind)
    options = ["--max-examples=1", "--phases=fuzzing", "--seed=1"]
    if EXAMPLES:
        options = [f"--max-examples={EXAMPLES}", "--phases=examples,coverage,fuzzing,stateful"]
    printed, clean = play(service, scene, role, *options)
    print(f"{role} on {kind}: {re.search('[0-9]+ generated.*', printed)[0]}")
    assert clean, printed
    aftermath(service, scene)
