"""The lock files pin, by hash, all that pyproject.toml asks for, and name no index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = PROJECT["dependencies"]
ASKED = {
    "requirements.lock": RUNTIME,
    "requirements-dev.lock": RUNTIME + PROJECT["optional-dependencies"]["dev"],
}


def pins(name):
    """(requirement, hashes) of every entry; a package may have several, by Python's version."""
    joined = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]
    return [(Requirement(line.split("--hash")[0]), line.count("--hash=sha256:")) for line in lines]


@pytest.mark.parametrize("name", ASKED)
def test_every_dependency_is_pinned_within_its_range(name):
    locked = {}
    for pin, hashes in pins(name):
        (exact,) = pin.specifier
        assert exact.operator == "==" and hashes
        locked.setdefault(canonicalize_name(pin.name), []).append(exact.version)
    for asked in map(Requirement, ASKED[name]):
        versions = locked[canonicalize_name(asked.name)]
        assert all(asked.specifier.contains(version) for version in versions), asked


def test_the_image_holds_what_was_tested():
    tested = {str(pin) for pin, _ in pins("requirements-dev.lock")}
    assert {str(pin) for pin, _ in pins("requirements.lock")} <= tested


@pytest.mark.parametrize("name", ASKED)
def test_no_index_is_named(name):
    assert not re.search(r"://|--(extra-)?index-url|--find-links", (ROOT / name).read_text())
