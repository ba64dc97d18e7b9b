"""What every table is to what is made of it: how far one record moves it."""

from typing import ClassVar

from service.planning.kinds import Kind


class BaseTable(Kind):
    """A function of one row and its label; `column` is the first of its entries in a stored row."""

    squared: ClassVar[int] = 2  # of how far a record moves it, in l2
    absolute: ClassVar[int] = 2  # the same in l1
    largest: ClassVar[int] = 1  # of what one record adds to an entry

    @property
    def size(self) -> int:
        """Of its entries, how many there are."""
        raise NotImplementedError
