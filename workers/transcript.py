"""What a run is given instead of the data, and why nothing else of the data can be in its result.

A run gets `Answers`: the ways out of the data and public draws, and no rows. Every answer is written
down as it leaves, with a digest of what was asked. Then the run is made a second time, in a world
without rows: each question must be the one that was asked, in its turn, and gets the answer that was
written down. **The second result is published, and the first thrown away.** So a model is a function
of the Plan, of draws that no row enters and of what the gate let out, whatever a run may have got at;
and each question, the weights of a sum above all, is a function of earlier answers, as every price
assumes. A run that asks otherwise the second time publishes nothing.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from tempfile import SpooledTemporaryFile
from types import FunctionType
from typing import Any, cast

import numpy as np
from pydantic import BaseModel

from service.planning.lattice import ScoreLattice
from service.planning.plan import Plan
from workers.arrays import Floats
from workers.data import Data
from workers.gate import Gate, GateError
from workers.progress import Progress, Quiet
from workers.randomness import Randomness
from workers.vertices import VertexScores

Run = Callable[[Plan, Data, Progress], Floats]
ASKED = (
    *("settle_clip", "use", "noisy_sum", "noisy_sum_at", "noisy_batch", "noisy_change"),
    *("noisy_gradient", "begin_prefixes", "noisy_prefix", "noisy_point"),
    "noisy_minimum",
    *("set_clip", "choose_label_range", "noisy_label_sum", "noisy_means"),
    *("noisy_moments", "derive", "noisy_counts", "noisy_scores"),
    *("choose", "begin_running_sum", "choose_by_running_sum"),
)
PUBLIC = ("corners", "drawn", "released", "stream")  # depends on no row
MEMORY_BYTES = 64 << 20  # of answers; more of them go to an unnamed file


class Answers:
    """Stands for `Data` in a run, by the names above and no other."""

    __slots__ = ("_answer", "_public")

    def __init__(self, answer: Callable[..., Any], public: Callable[[str], Any]) -> None:
        self._answer, self._public = answer, public

    def __getattr__(self, name: str) -> Any:
        if name in ASKED:
            return partial(self._answer, name)
        if name in PUBLIC:
            return self._public(name)
        raise AttributeError(f"a run is given no {name}")


class Rowless(Data):
    """Public draws and names, as a run has them, without rows behind them."""

    def __init__(self, plan: Plan, randomness: Randomness, released: Floats | None) -> None:
        self._plan, self._released, self._gate = plan, released, Gate(plan, randomness)
        if isinstance(plan.lattice, ScoreLattice):
            self._vertices = VertexScores(plan, plan.lattice.derivative_units)


class Transcript:
    """Questions and answers, in order. Vectors lie in a file of the process's own, one by one."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, bytes, Any]] = []
        self._vectors = SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 - closed with this

    def recorded(self, data: Data) -> Data:
        """`data` for the first run: its answers, written down."""

        def answer(name: str, *args: Any, **kwargs: Any) -> Any:
            digest = digest_of(args, kwargs)  # before an answer can change what was asked
            found = getattr(data, name)(*args, **kwargs)
            if isinstance(found, np.ndarray):
                self._vectors.write(found.astype("<f8").tobytes())
                self._asked.append((name, digest, found.shape))
            else:
                self._asked.append((name, digest, found))
            return found

        return cast(Data, Answers(answer, partial(getattr, data)))

    @contextmanager
    def replayed(self, world: Rowless) -> Iterator[Data]:
        """The data for the second run: what was written down, once and in order."""
        self._vectors.seek(0)
        left = iter(self._asked)

        def answer(name: str, *args: Any, **kwargs: Any) -> Any:
            asked, digest, found = next(left, ("nothing more", b"", None))
            if (asked, digest) != (name, digest_of(args, kwargs)):
                raise GateError(f"a run asked for {asked}, and without the rows for another {name}")
            if not isinstance(found, tuple):
                return found
            size = int(np.prod(found))
            return np.frombuffer(self._vectors.read(8 * size), "<f8").reshape(found).copy()

        yield cast(Data, Answers(answer, partial(getattr, world)))
        if (more := next(left, None)) is not None:
            raise GateError(f"a run asked for {more[0]}, and without the rows it did not")

    def close(self) -> None:
        self._vectors.close()


def run_privately(
    run: Run,
    plan: Plan,
    data: Data,
    world: Rowless,
    progress: Progress,
) -> Floats:
    """What may be published of a run on this data."""
    transcript = Transcript()
    try:
        run(plan, transcript.recorded(data), progress)
        data.close()
        with transcript.replayed(world) as answers:
            return run(plan, answers, Quiet(progress))
    finally:
        transcript.close()


def digest_of(*asked: Any) -> bytes:
    """Of a question, to the bit. The function that makes a point is not part of it: it sees rows, and
    what it makes of them has the sensitivity that its plan proves. All else that is asked with is
    plain: an object of a class that a run made would be handed to code that sees rows, and could
    answer there as it likes."""
    total = hashlib.sha256()

    def add(part: Any) -> None:
        kind = type(part)
        if part is None or kind in _NUMBERS:
            total.update(f"{kind.__name__} {part!r};".encode())
        elif kind is np.ndarray and part.dtype != object:
            total.update(f"{part.dtype.str} {part.shape};".encode())
            total.update(np.ascontiguousarray(part).data)
        elif kind in (list, tuple):
            total.update(f"{len(part)} of;".encode())
            for each in part:
                add(each)
        elif kind is dict:
            add(sorted(part.items()))
        elif isinstance(part, BaseModel) and _is_ours(kind):
            add(part.model_dump_json())
        elif is_dataclass(part) and _is_ours(kind):
            add([getattr(part, field.name) for field in fields(part)])
        elif kind in _FUNCTIONS:
            add("a function")
        else:
            raise GateError(f"a run asked with a {kind.__name__}")

    add(asked)
    return total.digest()


_NUMBERS = (bool, int, float, str, np.float64, np.int64, np.bool_)
_FUNCTIONS = (FunctionType, partial)
_OURS, _OF_RUNS = ("service.planning.", "workers."), ("workers.algorithms.", "workers.optimizers.")


def _is_ours(kind: type) -> bool:
    """Whether it stands in a module of planning's or of the worker's, and not in a run's."""
    name = kind.__module__
    found = getattr(sys.modules.get(name), kind.__name__, None)
    return found is kind and name.startswith(_OURS) and not name.startswith(_OF_RUNS)
