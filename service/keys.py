"""The two secrets that live outside the database, and what is derived from them.

The master key wraps each job's noise key and derives the key of content hashes; the signing key signs
audit records. Both come from the environment, or from files that only this user can read.
"""

import hmac
import os
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NOISE_KEY_BYTES = 32


class MalformedSecretError(ValueError):
    """A secret that is not 64 hex digits."""


@dataclass(frozen=True)
class Keys:
    master: bytes
    signing: Ed25519PrivateKey

    @classmethod
    def load(cls, folder: Path, master: str | None, signing: str | None) -> Self:
        return cls(
            master=_secret(folder / "master.key", master, "EPSILOND_MASTER_KEY"),
            signing=Ed25519PrivateKey.from_private_bytes(
                _secret(folder / "signing.key", signing, "EPSILOND_SIGNING_KEY")
            ),
        )

    def derive(self, purpose: str) -> bytes:
        return _derived(self.master, purpose)

    def commitment(self, dataset_id: str, content_mac: str) -> str:
        """What a dataset's records commit to: its content, under a key that nobody can query.

        Never the content hash itself. Any owner can have the hash of a table of their choice made,
        and an analyst who knows all records but one would compare candidates with it.
        """
        message = f"{dataset_id}\n{content_mac}".encode()
        return hmac.digest(self.derive("commitment"), message, "sha256").hex()

    def public_hex(self) -> str:
        return self.signing.public_key().public_bytes_raw().hex()

    def new_noise_key(self, job_id: str) -> bytes:
        """A job's own noise key, wrapped. It is drawn by the operating system, and stirred with the
        master key and the job's id: were the draw ever one that somebody knows, the key would be
        another for each job all the same, and nobody's who has not the master key."""
        drawn = secrets.token_bytes(NOISE_KEY_BYTES)
        stirred = hmac.digest(self.derive("noise keys"), drawn + job_id.encode(), "sha256")
        return self.wrap(stirred, job_id)

    def wrap(self, secret: bytes, bound: str) -> bytes:
        """A secret as it is stored in the database: useless without the master key, and in another
        place than it was bound to (a job's id, for its noise key)."""
        nonce = secrets.token_bytes(12)
        return nonce + AESGCM(self.derive("wrap")).encrypt(nonce, secret, bound.encode())

    def unwrap(self, wrapped: bytes, bound: str) -> bytes:
        return AESGCM(self.derive("wrap")).decrypt(wrapped[:12], wrapped[12:], bound.encode())


@lru_cache(maxsize=64)
def _derived(master: bytes, purpose: str) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=f"epsilond/{purpose}".encode()).derive(master)


def _secret(path: Path, given: str | None, variable: str) -> bytes:
    """32 bytes from the environment, else from the file, which is created if missing."""
    if given is not None:
        return _parse_hex(given, variable)
    return _parse_hex(read_or_create(path, secrets.token_hex(32)), str(path))


def read_or_create(path: Path, text: str) -> str:
    """The file's content; a missing file is first created with `text`.

    Written under another name and linked, so that of two processes that start at once one wins, both
    read the same, and neither reads half a file.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()


def _parse_hex(text: str, source: str) -> bytes:
    try:
        value = bytes.fromhex(text.strip())
    except ValueError:
        value = b""
    if len(value) != 32:
        raise MalformedSecretError(
            f"{source} must hold 64 hexadecimal digits (try: openssl rand -hex 32)"
        )
    return value
