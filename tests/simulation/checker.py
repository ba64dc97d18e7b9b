"""Whether a history of overlapping calls could have come from one thing that takes them one at a time.

Wing and Gong's search with Lowe's memory: of the calls that have not yet been placed, any may come
next that began before the first of them returned, if the sequential model answers it as it was
answered; a set of placed calls that was reached in the same state before is not tried again. A call
without an answer may have taken effect at any time after it began, or never.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Call:
    began: int
    ended: int
    thread: int
    name: str
    arguments: tuple[Any, ...]
    answer: Any

    def __str__(self) -> str:
        said = ", ".join(map(str, self.arguments))
        return (
            f"{self.began}..{self.ended} thread {self.thread}: {self.name}({said}) -> {self.answer}"
        )


Model = Callable[[Any, str, tuple[Any, ...]], tuple[Any, Any]]
"""(state after, answer) of a call, by its name and arguments."""


def stuck(history: Sequence[Call], state: Hashable, model: Model) -> list[Call]:
    """Empty if the history is linearisable; else the calls of which none can come next, where the
    search got furthest."""
    calls = sorted(history, key=lambda call: call.began)
    ends = [inf if call.answer == UNKNOWN else call.ended for call in calls]
    todo, seen = [(0, 0, 0, state)], set()  # first unplaced, placed as bits from there, how many
    furthest: tuple[int, list[Call]] = (-1, [])
    while todo:
        first, placed, count, state = todo.pop()
        while placed & 1:
            first, placed = first + 1, placed >> 1
        if (first, placed, state) in seen:
            continue
        seen.add((first, placed, state))
        next_end, window = inf, []
        for number in range(first, len(calls)):
            if calls[number].began > next_end:
                break
            if not placed >> (number - first) & 1:
                next_end = min(next_end, ends[number])
                window.append(number)
        if next_end == inf:  # all that were answered are placed
            return []
        window = [number for number in window if calls[number].began <= next_end]
        if count > furthest[0]:
            furthest = count, [calls[number] for number in window]
        for number in reversed(window):
            call = calls[number]
            after, answer = model(state, call.name, call.arguments)
            if call.answer in (UNKNOWN, answer):
                todo.append((first, placed | 1 << (number - first), count + 1, after))
    return furthest[1]
