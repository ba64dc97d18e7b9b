"""Write a software bill of materials (CycloneDX 1.6, JSON) of what requirements.lock pins.

Made from the lock file alone, so without network, and the same bytes for the same lock file: every
package with its version, purl and the hashes that its files may have, and who depends on whom.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service import __version__

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://epsilond.dev/sbom")
OURS = ("epsilond", "epsilond-client")  # built and signed together
SELF = f"pkg:pypi/epsilond@{__version__}"


def entries(text: str) -> list[tuple[Requirement, list[str], list[str]]]:
    """(pin, its files' SHA-256, who asks for it) of every entry of a lock file that uv wrote."""
    found = []
    for entry in re.split(r"(?m)^(?=[a-z0-9])", text)[1:]:
        pin = Requirement(re.split(r"\\|#", entry)[0])
        comments = (line for line in entry.splitlines() if line.startswith("    #"))
        comment = " ".join(line.strip(" #") for line in comments)
        parents = re.sub(r"\(.*?\)", "", comment.partition("via")[2]).replace(",", " ").split()
        found.append((pin, re.findall(r"sha256:([0-9a-f]{64})", entry), parents))
    return found


def document(text: str) -> dict[str, Any]:
    pinned = entries(text)
    purls: dict[str, list[str]] = {}  # a package may have several versions, by Python's
    for pin, _, _ in pinned:
        purls.setdefault(canonicalize_name(pin.name), []).append(_purl(pin))
    needs: dict[str, set[str]] = {purl: set() for each in purls.values() for purl in each}
    needs[SELF] = set()
    for pin, _, parents in pinned:
        for parent in parents:
            for purl in [SELF] if parent in OURS else purls[canonicalize_name(parent)]:
                needs[purl].add(_purl(pin))
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, __version__ + text)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": SELF,
                "name": "epsilond",
                "version": __version__,
                "purl": SELF,
                "licenses": [{"license": {"id": licence}}],
            }
        },
        "components": [_component(pin, hashes) for pin, hashes, _ in pinned],
        "dependencies": [{"ref": purl, "dependsOn": sorted(needs[purl])} for purl in sorted(needs)],
    }


def _purl(pin: Requirement) -> str:
    (exact,) = pin.specifier
    return f"pkg:pypi/{canonicalize_name(pin.name)}@{exact.version}"


def _component(pin: Requirement, hashes: list[str]) -> dict[str, Any]:
    (exact,) = pin.specifier
    files = {
        "type": "distribution",
        "url": f"https://pypi.org/project/{canonicalize_name(pin.name)}/{exact.version}/",
        "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
    }
    where = [{"name": "epsilond:marker", "value": str(pin.marker)}] if pin.marker else []
    return {
        "type": "library",
        "bom-ref": _purl(pin),
        "name": canonicalize_name(pin.name),
        "version": exact.version,
        "purl": _purl(pin),
        "externalReferences": [files],
    } | ({"properties": where} if where else {})


def write(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"epsilond-{__version__}.cdx.json"
    path.write_text(json.dumps(document(LOCK.read_text()), indent=1) + "\n")
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
