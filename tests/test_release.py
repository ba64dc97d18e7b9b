"""What a release consists of: archives, their checksums, a signature, and a bill of materials."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service.audit.chain import SIGNATURE_PREFIX
from tests.test_lock_files import RUNTIME, pins
from tools import release, sbom

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path):
    for name in ("epsilond-1.tar.gz", "epsilond-1-py3-none-any.whl", "epsilond-1.cdx.json"):
        (tmp_path / name).write_bytes(name.encode() * 100)
    return tmp_path


@pytest.fixture
def key():
    return Ed25519PrivateKey.generate()


def test_what_was_signed_verifies(folder, key):
    public = release.sign(folder, key)
    assert release.verify(folder, public) == []
    if checker := shutil.which("sha256sum"):
        subprocess.run([checker, "-c", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (
            lambda f: (f / "epsilond-1.tar.gz").write_bytes(b"x"),
            "not as it was signed: epsilond-1.tar",
        ),
        (
            lambda f: (f / "epsilond-1.cdx.json").unlink(),
            "not as it was signed: epsilond-1.cdx.json",
        ),
        (lambda f: (f / "more.whl").write_bytes(b""), "not as it was signed: more.whl"),
        (
            lambda f: (f / "SHA256SUMS").write_text(release.sums(f).upper()),
            "not signed by this key",
        ),
        (lambda f: (f / "SHA256SUMS.sig").write_text("00" * 64), "not signed by this key"),
        (lambda f: (f / "SHA256SUMS.sig").write_text("zz"), "cannot be read"),
        (lambda f: (f / "SHA256SUMS").unlink(), "cannot be read"),
    ],
)
def test_whatever_is_tampered_with_is_found(folder, key, tamper, says):
    public = release.sign(folder, key)
    tamper(folder)
    assert any(says in finding for finding in release.verify(folder, public))


def test_no_other_key_and_no_other_purpose_of_a_key_will_do(folder, key):
    release.sign(folder, key)
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    assert release.verify(folder, other) == ["SHA256SUMS was not signed by this key"]
    as_record = key.sign(SIGNATURE_PREFIX + (folder / "SHA256SUMS").read_bytes())
    (folder / "SHA256SUMS.sig").write_text(as_record.hex())
    assert release.verify(folder, key.public_key().public_bytes_raw().hex())


def test_the_commands_make_a_key_that_only_its_owner_reads_and_verify_with_it(
    folder, tmp_path_factory
):
    path = tmp_path_factory.mktemp("key") / "deep" / "release.key"
    command = [sys.executable, "-m", "tools.release"]
    made = subprocess.run(
        [*command, "sign", folder, "--key", path],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert path.stat().st_mode & 0o777 == 0o600
    public = re.fullmatch(r"public key: ([0-9a-f]{64})\n", made.stdout)[1]
    for key, code in ((public, 0), ("00" * 32, 1), ("", 1)):
        run = subprocess.run(
            [*command, "verify", folder, key], cwd=ROOT, check=False, capture_output=True
        )
        assert run.returncode == code


def test_the_bill_of_materials_holds_what_the_lock_file_pins_and_nothing_else(tmp_path):
    bill = json.loads(sbom.write(tmp_path).read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    locked = {
        (
            canonicalize_name(pin.name),
            next(iter(pin.specifier)).version,
            str(pin.marker or ""),
            hashes,
        )
        for pin, hashes in pins("requirements.lock")
    }
    listed = {
        (
            one["name"],
            one["version"],
            one.get("properties", [{"value": ""}])[0]["value"],
            len(one["externalReferences"][0]["hashes"]),
        )
        for one in bill["components"]
    }
    assert listed == locked and len(bill["components"]) == len(listed)
    text = (ROOT / "requirements.lock").read_text()
    for one in bill["components"]:
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert all(f"sha256:{h['content']}" in text for h in one["externalReferences"][0]["hashes"])
    assert sbom.write(tmp_path).read_text() == json.dumps(bill, indent=1) + "\n"


def test_the_bill_of_materials_says_who_depends_on_whom():
    bill = sbom.document((ROOT / "requirements.lock").read_text())
    needs = {one["ref"]: set(one["dependsOn"]) for one in bill["dependencies"]}
    assert needs.keys() == {one["bom-ref"] for one in bill["components"]} | {sbom.SELF}
    direct = {purl.removeprefix("pkg:pypi/").split("@")[0] for purl in needs[sbom.SELF]}
    asked = {canonicalize_name(Requirement(one).name) for one in RUNTIME}
    assert asked <= direct
    reached, waiting = set(), [sbom.SELF]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += needs[one]
    assert reached == needs.keys()
