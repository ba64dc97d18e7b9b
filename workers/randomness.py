"""The only source of randomness for anything that touches data.

AES-256 in counter mode under a key that belongs to one job and one Plan. A stream is addressed by
(use, index): the 16-byte counter block is use (1 byte), index (7 bytes), position (8 bytes), so two
streams never share a block while each is shorter than 2^64 blocks. The same address always gives the
same words: a job that is run again draws the same noise again.
"""

import hashlib
import hmac
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray


class Use(IntEnum):
    """What a stream is for. Numbers are never reused with another meaning."""

    NOISE = 1
    SAMPLING = 2
    OUTPUT = 3  # which iterate is the output
    DIRECTIONS = 4
    PATH = 5


class Randomness:
    def __init__(self, job_key: bytes, plan_digest: str) -> None:
        """The Plan's digest enters the key: another Plan under the same job key draws other noise,
        so noise can never be cancelled between two different sums."""
        message = b"epsilond randomness 1\n" + plan_digest.encode()
        self._key = hmac.digest(job_key, message, hashlib.sha256)

    def stream(self, use: Use, index: int) -> "Stream":
        return Stream(self._key, use, index)


class Stream:
    """Random words in order, as many as asked for."""

    def __init__(self, key: bytes, use: Use, index: int) -> None:
        first_block = use.to_bytes(1, "big") + index.to_bytes(7, "big") + bytes(8)
        self._encryptor = Cipher(AES(key), CTR(first_block)).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` 64-bit words (an even number, so that no block is split)."""
        count += count % 2
        return np.frombuffer(self._encryptor.update(bytes(8 * count)), dtype="<u8")
