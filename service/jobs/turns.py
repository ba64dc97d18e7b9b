"""Turns: what many requests want of one account is done in few transactions.

An account's row is locked by whoever reserves, so reservations of one account happen one after the
other anyway. While one transaction commits, others of this process wait here; whoever gets the turn
next does the work of all that wait, in one transaction, and each gets its own answer. Nothing waits
longer than it would for the lock, and the lock, the round trips and the commit are paid once.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sqlalchemy.exc import IntegrityError

W = TypeVar("W")
A = TypeVar("A")
_TOGETHER = 64


class _Waiting(Generic[W, A]):
    def __init__(self, wanted: W) -> None:
        self.wanted = wanted
        self.answer: A | None = None
        self.error: BaseException | None = None
        self.done = False

    def ends(self, outcome: A | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self.error = outcome
        else:
            self.answer = outcome
        self.done = True


class _Line(Generic[W, A]):
    def __init__(self) -> None:
        self.turn, self.lock = threading.Lock(), threading.Lock()
        self.waiting: list[_Waiting[W, A]] = []
        self.users = 0


class Turns(Generic[W, A]):
    """`act` does what several want in one transaction, and answers each or says why not. If that
    transaction fails because two of them collide, each is done by itself."""

    def __init__(self, act: Callable[[Sequence[W]], Sequence[A | BaseException]]) -> None:
        self._act = act
        self._lines: dict[str, _Line[W, A]] = {}
        self._lock = threading.Lock()

    def take(self, line_id: str, wanted: W) -> A:
        """Wait for the turn at this line, unless somebody else does it meanwhile."""
        mine: _Waiting[W, A] = _Waiting(wanted)
        with self._lock:
            line = self._lines.setdefault(line_id, _Line())
            line.users += 1
        try:
            with line.lock:
                line.waiting.append(mine)
            while not mine.done:
                with line.turn:
                    if not mine.done:
                        with line.lock:
                            batch, line.waiting = (
                                line.waiting[:_TOGETHER],
                                line.waiting[_TOGETHER:],
                            )
                        self._do(batch)
        finally:
            with self._lock:
                line.users -= 1
                if line.users == 0:
                    self._lines.pop(line_id, None)
        if mine.error is not None:
            raise mine.error
        assert mine.answer is not None
        return mine.answer

    def _do(self, batch: list[_Waiting[W, A]]) -> None:
        try:
            outcomes = self._act([one.wanted for one in batch])
        except IntegrityError as error:
            if len(batch) == 1:
                batch[0].ends(error)
                return
            for one in batch:
                self._do([one])
            return
        except BaseException as error:
            for one in batch:
                one.ends(error)
            return
        for one, outcome in zip(batch, outcomes, strict=True):
            one.ends(outcome)
