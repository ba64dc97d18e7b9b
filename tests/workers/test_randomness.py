"""Streams: AES in counter mode, the same for the same address and disjoint for any other."""

import hashlib
import hmac
from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from workers.randomness import Randomness, Stream, Use

KEY = bytes(range(32))


def words(key=KEY, digest="plan", use=Use.NOISE, index=0, count=64):
    return Randomness(key, digest).stream(use, index).words(count)


def by_block(key: bytes, digest: str, use: int, index: int, count: int) -> list[int]:
    """The same words from single encryptions of counter blocks, put together by hand."""
    inner = hmac.new(key, b"epsilond randomness 1\n" + digest.encode(), hashlib.sha256).digest()
    encrypt = Cipher(AES(inner), ECB()).encryptor().update
    out = []
    for position in range(-(-count // 2)):
        block = encrypt(((use << 120) + (index << 64) + position).to_bytes(16, "big"))
        out += [int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")]
    return out


@pytest.mark.parametrize("index", [0, 1, 255, 2**32, 2**56 - 1])
@pytest.mark.parametrize("digest", ["plan", "0" * 64])
def test_a_stream_is_aes_256_of_its_counter_blocks(index, digest):
    got = words(digest=digest, index=index, count=1000)
    assert [int(word) for word in got] == by_block(KEY, digest, Use.NOISE, index, 1000)


def test_the_first_words_are_these_for_ever():
    """A stored job that is run again by a later version must draw the same noise."""
    assert [hex(int(word)) for word in words(count=2)] == [
        "0x533d3cd9dccb7a2",
        "0xd06d1cc538b7cb89",
    ]


def test_a_stream_is_the_same_however_it_is_read():
    stream = Randomness(KEY, "plan").stream(Use.NOISE, 7)
    pieces = [stream.words(count) for count in (2, 10, 0, 64, 24)]
    assert np.array_equal(np.concatenate(pieces), words(index=7, count=100))


def test_an_odd_count_is_rounded_up_so_that_no_block_is_split():
    stream = Randomness(KEY, "plan").stream(Use.NOISE, 7)
    assert stream.words(3).size == 4
    assert np.array_equal(stream.words(2), words(index=7, count=6)[4:])


def test_the_same_address_gives_the_same_words_and_any_other_gives_others():
    """16384 words of each of eight addresses: not one 64-bit word in common."""
    other_use = Stream(Randomness(KEY, "plan")._key, 2, 0).words(16384)  # type: ignore[arg-type]
    streams = [
        words(count=16384),
        words(index=1, count=16384),
        words(index=2**55, count=16384),
        words(digest="plan2", count=16384),
        words(digest="", count=16384),
        words(key=bytes(32), count=16384),
        words(key=KEY[::-1], count=16384),
        other_use,
    ]
    assert np.array_equal(streams[0], words(count=16384))
    assert np.unique(np.concatenate(streams)).size == 8 * 16384


def test_streams_are_2_to_the_64_blocks_apart():
    """Counter blocks are numbers; (use, index) are their upper halves, so ranges cannot meet."""
    blocks = [(use << 120) + (index << 64) for use in (1, 2, 255) for index in (0, 1, 2, 2**56 - 1)]
    assert min(b - a for a, b in pairwise(blocks)) >= 2**64
    assert blocks[-1] + 2**64 <= 2**128


@pytest.mark.parametrize("index", [-1, 2**56])
def test_an_index_outside_its_seven_bytes_is_refused(index):
    with pytest.raises(OverflowError):
        words(index=index)


def test_words_cannot_be_overwritten():
    with pytest.raises(ValueError, match="read-only"):
        words()[0] = 0


def test_each_bit_of_a_word_is_even():
    """64 x 200000 bits under a fixed key: every column within 5.7 standard deviations."""
    bits = (
        np.unpackbits(words(count=200_000).view(np.uint8))
        .reshape(-1, 64)
        .sum(axis=0, dtype=np.int64)
    )
    assert np.abs(bits - 100_000).max() < 5.7 * np.sqrt(200_000) / 2
