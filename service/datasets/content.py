"""The keyed fingerprint by which data that is uploaded again is recognised."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.cells import as_digit, parse_number, texts
from service.datasets.read import Block


class ContentMac:
    """A keyed fingerprint of a file's content, the same for every arrangement of that content.

    It serves to notice that data is uploaded again, which must not mint a second budget. So it
    covers all columns of the file, ignored ones and the label too, and must not change with the
    order or the names of columns, the order of rows, quoting, the spelling of a number or a boolean,
    the file format or the schema:

        cell   a 64-bit word: the float64 of a cell that spells a number (one zero, one NaN, which
               also stands for missing; 1 for true, 0 for false), else 64 bits of keyed BLAKE2b of
               its stripped text
        row    keyed BLAKE2b-256 of its words in ascending order
        file   keyed BLAKE2b-256 of the sum of the rows' hashes mod 2^256 and the number of rows

    The sum makes a multiset hash (MSet-Add-Hash, Clarke et al. 2003): unlike xor it counts
    repeated rows. Rows that share their words (permuted cells, integers beyond 2^53) err on the
    safe side: equal MACs share a budget, they never create one. Cells that a schema takes for the same
    (cells.py) have the same word, so that files that are encoded alike are recognised as one. Without
    the key the MAC tells nothing of the data.

    Earlier versions took booleans for the texts "True" and "False", and nothing else differs: of a
    file without booleans the MAC is what it was. `earlier()` is the MAC as they made it, so that what
    they stored is still recognised.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sum = self._earlier = self._rows = 0
        self._booleans = False  # in the block at hand

    def add(self, block: Block) -> None:
        columns = list(block.values())
        self._booleans = any(values.dtype.kind == "b" for values in columns)
        added = self._sum_of([self._words(values) for values in columns])
        self._rows += len(columns[0])
        self._sum = (self._sum + added) % (1 << 256)
        if self._booleans:
            added = self._sum_of([self._words(values, earlier=True) for values in columns])
        self._earlier = (self._earlier + added) % (1 << 256)

    def hexdigest(self) -> str:
        return self._digest(self._sum)

    def earlier(self) -> str:
        return self._digest(self._earlier)

    def _digest(self, total: int) -> str:
        content = total.to_bytes(32, "little") + self._rows.to_bytes(8, "little")
        return hashlib.blake2b(content, digest_size=32, key=self._key, person=b"file").hexdigest()

    def _sum_of(self, columns: list[NDArray[np.uint64]]) -> int:
        words = np.empty((len(columns[0]), len(columns)), "<u8")
        for j, column in enumerate(columns):
            words[:, j] = column
        words.sort(axis=1)
        rows, width = words.view(np.uint8).reshape(-1).data, 8 * len(columns)
        keyed = hashlib.blake2b(digest_size=32, key=self._key, person=b"row")
        digests = bytearray()
        for start in range(0, len(rows), width):
            row = keyed.copy()
            row.update(rows[start : start + width])
            digests += row.digest()
        # by 32 bits, which no block of rows makes overflow
        limbs = np.frombuffer(digests, "<u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
        return sum(int(limb) << 32 * i for i, limb in enumerate(limbs))

    def _words(self, values: NDArray[Any], *, earlier: bool = False) -> NDArray[np.uint64]:
        if values.dtype.kind in "iuf" or (values.dtype.kind == "b" and not earlier):
            numbers = values.astype(np.float64)
            numbers += 0.0  # -0.0 + 0.0 is 0.0
            numbers[np.isnan(numbers)] = np.nan
            return numbers.view(np.uint64)
        cells = list(map(repr, values.tolist())) if values.dtype.kind == "b" else texts(values)
        table = {}
        for cell in set(cells):
            digit = cell if earlier else as_digit(cell)
            self._booleans |= digit is not cell
            table[cell] = self._word(digit)
        return np.fromiter(map(table.__getitem__, cells), np.uint64, len(cells))

    def _word(self, cell: str) -> int:
        number = parse_number(cell)
        if number is not None:
            return int(self._words(np.array([number]))[0])
        text = cell.strip().encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, key=self._key, person=b"text")
        return int.from_bytes(digest.digest(), "little")
