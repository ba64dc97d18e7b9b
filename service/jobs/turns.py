"""Turns: what many requests want of one account is done in few transactions.

An account's row is locked by whoever reserves, so reservations of one account happen one after the
other anyway. While one transaction commits, others of this process wait here; whoever gets the turn
next does the work of all that wait, in one transaction, and each gets its own answer. Nothing waits
longer than it would for the lock, and the lock, the round trips and the commit are paid once.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import Generic, TypeVar

from sqlalchemy.exc import IntegrityError

W = TypeVar("W")
A = TypeVar("A")
_TOGETHER = 64
_LINES_AT_ONCE = 20  # that coroutines wait at: as many connections as are kept


class _Waiting(Generic[W, A]):
    def __init__(self, wanted: W) -> None:
        self.wanted = wanted
        self.answer: A | None = None
        self.error: BaseException | None = None
        self.done = False
        self.told: Callable[[], object] = lambda: None

    def ends(self, outcome: A | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self.error = outcome
        else:
            self.answer = outcome
        self.done = True
        with suppress(RuntimeError):  # its loop has ended, and so has whoever waited
            self.told()

    def result(self) -> A:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class _Line(Generic[W, A]):
    def __init__(self) -> None:
        self.turn, self.lock = threading.Lock(), threading.Lock()
        self.waiting: list[_Waiting[W, A]] = []
        self.users = 0
        self.served = False  # a thread does what coroutines wait for


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
        line = self._enter(line_id)
        try:
            with line.lock:
                line.waiting.append(mine)
            while not mine.done:
                with line.turn:
                    if not mine.done:
                        self._do(self._next(line))
        finally:
            self._leave(line_id, line)
        return mine.result()

    async def give(self, line_id: str, wanted: W) -> A:
        """The same for a coroutine: a thread serves the line while anybody waits at it, so that nobody
        needs one to wait in."""
        mine, loop, told = _Waiting[W, A](wanted), asyncio.get_running_loop(), asyncio.Event()
        mine.told = lambda: loop.call_soon_threadsafe(told.set)
        line = self._enter(line_id)
        try:
            with line.lock:
                line.waiting.append(mine)
                begins, line.served = not line.served, True
            if begins:
                self._threads.submit(self._serve, line)
            await told.wait()
        finally:
            self._leave(line_id, line)
        return mine.result()

    def close(self) -> None:
        """No coroutine waits any more, nor will."""
        self._threads.shutdown()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_LINES_AT_ONCE, thread_name_prefix="epsilond-turns")

    def _serve(self, line: _Line[W, A]) -> None:
        while True:
            with line.turn:
                batch = self._next(line)
                self._do(batch)
            with line.lock:
                if not line.waiting:
                    line.served = False
                    return

    def _enter(self, line_id: str) -> _Line[W, A]:
        with self._lock:
            line = self._lines.setdefault(line_id, _Line())
            line.users += 1
        return line

    def _leave(self, line_id: str, line: _Line[W, A]) -> None:
        with self._lock:
            line.users -= 1
            if line.users == 0:
                self._lines.pop(line_id, None)

    def _next(self, line: _Line[W, A]) -> list[_Waiting[W, A]]:
        with line.lock:
            batch, line.waiting = line.waiting[:_TOGETHER], line.waiting[_TOGETHER:]
        return batch

    def _do(self, batch: list[_Waiting[W, A]]) -> None:
        if not batch:  # others did it
            return
        try:
            outcomes = list(zip(batch, self._act([one.wanted for one in batch]), strict=True))
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
        for one, outcome in outcomes:
            one.ends(outcome)
