"""Sign a folder of release archives, and verify one.

    python -m tools.release sign dist [--key FILE]
    python -m tools.release verify dist PUBLIC_KEY

SHA256SUMS lists every file, as sha256sum writes it. SHA256SUMS.sig is an Ed25519 signature of that
list, in hexadecimal, with a prefix that no other use of a key of ours has: it cannot be mistaken for
an audit record's. The key is 64 hexadecimal digits in a file that only its owner reads; it is made
where there is none. The public key stands on the page of the release.
"""

import argparse
import hashlib
import secrets
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from service.keys import read_or_create

PREFIX = b"epsilond release\n"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
KEY = Path.home() / ".config" / "epsilond" / "release.key"


def sums(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.name not in (SUMS, SIGNATURE))
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)


def sign(folder: Path, key: Ed25519PrivateKey) -> str:
    """Write the list and its signature; the public key."""
    listed = sums(folder)
    (folder / SUMS).write_text(listed)
    (folder / SIGNATURE).write_text(key.sign(PREFIX + listed.encode()).hex() + "\n")
    return key.public_key().public_bytes_raw().hex()


def verify(folder: Path, public_key: str) -> list[str]:
    """Findings, one line each; empty means that these are the files that the key's holder signed."""
    try:
        listed = (folder / SUMS).read_bytes()
        signature = bytes.fromhex((folder / SIGNATURE).read_text())
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(signature, PREFIX + listed)
    except (OSError, ValueError) as error:
        return [f"the list, its signature or the public key cannot be read: {error}"]
    except InvalidSignature:
        return [f"{SUMS} was not signed by this key"]
    stated, present = set(listed.decode().splitlines()), set(sums(folder).splitlines())
    return [f"not as it was signed: {line.split('  ')[1]}" for line in sorted(stated ^ present)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools.release")
    parser.add_argument("act", choices=["sign", "verify"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("public_key", nargs="?")
    parser.add_argument("--key", type=Path, default=KEY)
    options = parser.parse_args(arguments)
    if options.act == "sign":
        secret = read_or_create(options.key, secrets.token_hex(32))
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret.strip()))
        print(f"public key: {sign(options.folder, key)}")
        return 0
    findings = verify(options.folder, options.public_key or "")
    print("\n".join(findings or ["these are the files that the holder of this key signed"]))
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
