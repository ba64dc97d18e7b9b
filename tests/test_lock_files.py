"""The lock files pin, by hash, all that pyproject.toml asks for, and name no index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text())["project"]
# the client lies beside, and is installed from there: its dependencies are locked
OURS = [one for one in PROJECT["dependencies"] if one.startswith(CLIENT["name"])]
RUNTIME = [one for one in PROJECT["dependencies"] if one not in OURS] + CLIENT["dependencies"]
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


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_image_holds_what_was_tested(python):
    where = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }

    def there(name):
        found = (pin for pin, _ in pins(name) if not pin.marker or pin.marker.evaluate(where))
        return {(pin.name, str(pin.specifier)) for pin in found}

    assert there("requirements.lock") <= there("requirements-dev.lock")


@pytest.mark.parametrize("name", ASKED)
def test_no_index_is_named(name):
    assert not re.search(r"://|--(extra-)?index-url|--find-links", (ROOT / name).read_text())
