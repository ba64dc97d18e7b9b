"""What is released is a function of what the gate let out: no run gets anything else of the rows.

Every Plan of the frozen corpus runs on data A, and its transcript is kept: each noisy vector and each
choice. Then it runs on other data B at a gate that answers from A's transcript, and must come to A's
weights, to the bit. Mutants, runs that peek, must not; and what a worker publishes of them is either
nothing or free of what they saw."""

import ast
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from service.planning.plan import Plan
from service.planning.tables import Counts
from tests.depth import some
from tests.frozen.corpus import CORPUS, KEY, rows_for
from tests.workers.gated import JOBS, planned
from workers.algorithms import RUNS
from workers.data import Data, Estimate
from workers.gate import Gate, GateError
from workers.held_out import HeldOutData
from workers.progress import Progress
from workers.randomness import Randomness, Use
from workers.transcript import ASKED, PUBLIC, Answers, Rowless, Transcript, digest_of, run_privately

FROZEN = json.loads(gzip.decompress(CORPUS.read_bytes()))


class Kept(Gate):
    """Lets out what a gate lets out, and keeps a copy."""

    def __init__(self, made, randomness):
        super().__init__(made, randomness)
        self.out = []

    def vector(self, *args, **how):
        self.out.append(super().vector(*args, **how))
        return self.out[-1].copy()

    def choice(self, *args):
        self.out.append(super().choice(*args))
        return self.out[-1]


class Again(Kept):
    """Pays and draws as ever, and then answers from the transcript."""

    def __init__(self, made, randomness, transcript):
        super().__init__(made, randomness)
        self._left = iter(transcript)

    def vector(self, *args, **how):
        super().vector(*args, **how)
        return next(self._left).copy()

    def choice(self, *args):
        super().choice(*args)
        return next(self._left)


def other_rows(made, x, y):
    """Nothing is as it was: rows turned over and doubled where there is room, labels exchanged."""
    x = np.ascontiguousarray(-x[::-1] // 2 if x.dtype == np.int16 else -2 * x[::-1])
    return x, y[::-1] * 1.0 if made.facts.label == "categorical" else -y


def neighbour(made, x, y):
    """One record replaced by its opposite."""
    x, y = x.copy(), y.copy()
    place = len(y) // 2
    x[place], y[place] = -x[place], y[place - 1] if made.facts.label == "categorical" else -y[place]
    return x, y


def data_for(made, x, y, gate):
    randomness = Randomness(KEY, made.digest())
    data = Data(made, x, y, randomness, np.linspace(-1.0, 1.0, made.dimension))
    data._gate = gate(made, randomness)
    return data


def replayed(made, run, change):
    """The weights on A; on the changed data, at A's answers; and the steps that either reported."""
    x, y = rows_for(made)
    first, steps = data_for(made, x, y, Kept), (Progress(), Progress())
    weights = run(made, first, steps[0])
    second = data_for(made, *change(made, x, y), lambda *of: Again(*of, first._gate.out))
    return weights, run(made, second, steps[1]), [progress.done for progress in steps]


@pytest.mark.parametrize(("name", "change"), some(FROZEN, [neighbour, other_rows]))
def test_the_same_answers_on_other_data_are_the_same_weights(name, change):
    made = Plan.model_validate_json(FROZEN[name]["plan"])
    here, there, steps = replayed(made, RUNS[made.algorithm], change)
    assert here.tobytes() == there.tobytes()
    assert steps == [made.schedule.steps] * 2


def published(made, run, change=lambda made, x, y: (x, y)):
    """As a worker does."""
    data = data_for(made, *change(made, *rows_for(made)), Gate)
    of = np.linspace(-1.0, 1.0, made.dimension)
    rowless = Rowless(made, Randomness(KEY, made.digest()), of)
    return run_privately(run, made, data, rowless, Progress())


@pytest.mark.parametrize("name", [name for (name,) in some(FROZEN)])
def test_a_worker_publishes_what_a_plain_run_gives(name):
    made = Plan.model_validate_json(FROZEN[name]["plan"])
    plain = RUNS[made.algorithm](made, data_for(made, *rows_for(made), Gate), Progress())
    assert published(made, RUNS[made.algorithm]).tobytes() == plain.tobytes()


# --- Mutants: an algorithm's own run, with something of the rows in its result ---


def raw_factor(made, data, progress):
    """The noisy sum times a factor of the data."""
    return RUNS[made.algorithm](made, data, progress) * (1 + data._rows._x.mean())


def raw_branch(made, data, progress):
    w = RUNS[made.algorithm](made, data, progress)
    return w if data._rows._x[: len(data._rows._x) // 2].sum() > 0 else -w


def raw_rows(made, data, progress):
    """As if rows were where they once lay."""
    rows = data._rows if isinstance(data, Data) else data._x
    return RUNS[made.algorithm](made, data, progress) + rows._x[len(rows._x) // 2].sum()


def raw_sum(made, data, progress):
    """An exact sum instead of a noisy one."""
    w = RUNS[made.algorithm](made, data, progress)
    x = data._rows._x.astype(np.float64)
    return w + x.sum(axis=0).mean()


PEEKING = [raw_factor, raw_branch, raw_rows, raw_sum]
PEEKED = ["gradient-descent", "frank-wolfe", "output-perturbation", "a tree", "a chosen clip"]


@pytest.mark.parametrize("mutant", PEEKING)
@pytest.mark.parametrize("job", PEEKED)
def test_a_run_that_peeks_is_seen_by_the_replay_and_gets_no_rows_from_a_worker(mutant, job):
    made = planned(job, 1e-6)
    here, there, _ = replayed(made, mutant, other_rows)
    assert here.tobytes() != there.tobytes()
    with pytest.raises(AttributeError, match="a run is given no"):
        published(made, mutant)


def keeps(made, data, progress):
    """The function that makes a point also writes down what it saw."""
    seen = [0.0]

    class Spied:
        def __getattr__(self, name):
            return getattr(data, name)

        def noisy_point(self, make):
            def more(blocks):
                seen.append(float(sum(blocks(lambda x, y: float(x.sum()), 50, in_turn=True))))
                return make(blocks)

            return data.noisy_point(more)

    return RUNS[made.algorithm](made, Spied(), progress) + seen[-1]


@pytest.mark.parametrize("job", ["output-perturbation", "phased-sgd"])
def test_what_the_maker_of_a_point_keeps_is_not_published(job):
    made = planned(job, 1e-6)
    here, there, _ = replayed(made, keeps, other_rows)
    assert here.tobytes() != there.tobytes()
    assert published(made, keeps).tobytes() == published(made, RUNS[made.algorithm]).tobytes()


def noisy_sum_at_what_was_seen(kept):
    """Asks for a sum at weights that no release has led to; the same question to any gate."""

    def run(made, data, progress):
        w = np.zeros(made.dimension)
        w[0] = kept.pop() if kept else 0.0
        return data.noisy_sum(w, 0, made.facts.rows)

    return run


def test_a_question_that_is_no_function_of_earlier_answers_is_refused():
    """The sums' noise would hide their values, but not the choice of where they were made."""
    made = planned("gradient-descent", 1e-6)
    with pytest.raises(GateError, match="without the rows for another noisy_sum"):
        published(made, noisy_sum_at_what_was_seen([0.25]))
    assert published(made, noisy_sum_at_what_was_seen([])).shape == (made.dimension,)


@pytest.mark.parametrize(
    ("times", "says"), [([1, 2], "nothing more"), ([2, 1], "without the rows it did not")]
)
def test_a_run_asks_as_often_the_second_time(times, says):
    made, left = planned("gradient-descent", 1e-6), list(times)

    def run(made, data, progress):
        w = np.zeros(made.dimension)
        return [data.noisy_sum(w, 0, made.facts.rows) for _ in range(left.pop(0))][-1]

    with pytest.raises(GateError, match=says):
        published(made, run)


def test_a_refusal_that_a_run_hides_is_no_result():
    made = planned("gradient-descent", 1e-6)

    def run(made, data, progress):
        try:
            data.stream(Use.NOISE, 0)
        except GateError:
            return np.zeros(made.dimension)

    with pytest.raises(GateError, match="nothing of it is published"):
        published(made, run)


def test_answers_have_the_ways_out_of_the_data_and_nothing_else():
    made = planned("gradient-descent", 1e-6)
    data = data_for(made, *rows_for(made), Gate)
    transcript = Transcript()
    given = transcript.recorded(data)
    both = {*vars(Data), *vars(HeldOutData)}
    ways = {name for name in both if not name.startswith("_")} - {"close"}
    assert ways == {*ASKED, *PUBLIC}
    assert isinstance(given, Answers) and not hasattr(given, "__dict__")
    for name in ("_rows", "_x", "_y", "_sums", "_gate", "_plan", "close", "blocks"):
        with pytest.raises(AttributeError):
            getattr(given, name)
    transcript.close()


def test_vectors_beyond_the_memory_go_to_a_file_and_come_back(monkeypatch):
    monkeypatch.setattr("workers.transcript.MEMORY_BYTES", 100)
    made = planned("gradient-descent", 1e-6)
    plain = RUNS[made.algorithm](made, data_for(made, *rows_for(made), Gate), Progress())
    assert published(made, RUNS[made.algorithm]).tobytes() == plain.tobytes()


def test_questions_that_differ_in_a_bit_have_other_digests():
    w = np.zeros(3)
    asked = [
        *((w,), (w + 5e-324,), (-w,), (w[:2],), (w, 1), (w, 1.0), ([w],), ([w, w],)),
        *((Estimate(w),), (Estimate(w, w),), (Estimate(w, None, w),), ("tree", 4), ("root", 4)),
        *(({"kept": 1},), ({"gain": 1},), (None,), (planned("a tree", 1e-6).lattice,)),
        (planned("a tree", 1e-6).schedule.later,),
    ]
    assert len({digest_of(*one) for one in asked}) == len(asked)


# --- What the sources of runs may not contain ---

RUN_FILES = [
    path
    for folder in ("algorithms", "optimizers")
    for path in sorted((Path(__file__).parents[2] / "workers" / folder).glob("*.py"))
    if path.name != "__init__.py"
]
REFLECTION = {
    *("getattr", "setattr", "delattr", "vars", "dir", "globals", "locals", "open", "eval", "exec"),
    *("object", "type", "super", "id", "print", "breakpoint", "__import__", "__builtins__"),
}
MAY_IMPORT = (
    *("collections.abc", "functools", "itertools", "math", "typing", "numpy", "service.planning"),
    *("workers.data", "workers.arrays", "workers.kernels", "workers.directions"),
    *("workers.optimizers", "workers.progress", "workers.randomness"),
)


PLAIN_BASES = ("NamedTuple", "RuntimeError")


def faults(source):
    """A run has no way round its answers: no private name of another's, no state that outlives it."""
    out = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) if name.startswith("_"):
                out.append(f"reads .{name}")
            case ast.Name(id=name) if name in REFLECTION or name.startswith("__"):
                out.append(f"uses {name}")
            case ast.Global():
                out.append("keeps a global")
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                out.append("changes an object")
            case ast.Import(names=named):
                out += [a.name for a in named if not a.name.startswith(MAY_IMPORT)]
            case ast.ImportFrom(module=module, names=named):
                out += [module] if not module.startswith(MAY_IMPORT) else []
                out += [a.name for a in named if a.name.startswith("_") or a.name == "Data._rows"]
        match node:  # what is kept from one call to the next, or answers for something else
            case ast.FunctionDef(decorator_list=decorators, args=args):
                out += [f"decorated by {ast.unparse(d)}" for d in decorators if not _is_plain(d)]
                given = [one for one in (*args.defaults, *args.kw_defaults) if one is not None]
                out += [f"defaults to {ast.unparse(d)}" for d in given if _can_change(d)]
            case ast.ClassDef(bases=bases, body=body, decorator_list=decorators):
                out += [
                    f"is a {ast.unparse(b)}" for b in bases if ast.unparse(b) not in PLAIN_BASES
                ]
                out += [f"keeps {ast.unparse(b)}" for b in body if isinstance(b, ast.Assign)]
                out += [f"decorated by {ast.unparse(d)}" for d in decorators]
    for node in ast.parse(source).body:  # at the top: names of types and constants alone
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.List | ast.Dict | ast.Set | ast.Call | ast.ListComp | ast.DictComp
        ):
            out.append(f"keeps {ast.unparse(node)}")
    return out


def _is_plain(decorator):
    return ast.unparse(decorator) in ("property", "classmethod", "staticmethod")


def _can_change(default):
    return isinstance(default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.Call)


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_a_run_has_no_way_round_its_answers(path):
    assert faults(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "w = data._rows",
        "data._x.mean()",
        "data.noisy_sum.__closure__",
        "getattr(data, name)",
        "import gc",
        "from inspect import stack",
        "from service.datasets.store import open_arrays",
        "from workers.rows import Rows",
        "def run(plan, data, progress):\n    global seen",
        "seen = []",
        "def run(plan, data, progress, seen=[]):\n    pass",
        "import functools\n@functools.cache\ndef make(plan):\n    pass",
        "class Seen:\n    rows = []",
        "class Other(Counts):\n    pass",
        "def run(plan, data, progress):\n    run.seen = 1",
    ],
)
def test_the_check_above_sees(source):
    assert faults(source) != []


def test_every_job_of_the_gates_table_is_a_plan_of_this_catalog():
    assert {JOBS[job][0] for job in JOBS} == set(RUNS)


class Spy(np.ndarray):
    """An array that answers for itself where rows are multiplied with it."""

    def __array_function__(self, func, types, args, kwargs):
        return args[-1]


class Equal(Counts):
    def __eq__(self, other):
        return True

    __hash__ = Counts.__hash__


class Subtracts(float):
    def __rsub__(self, other):
        return other[0]


@pytest.mark.parametrize(
    "argument",
    [
        np.zeros(3).view(Spy),
        Subtracts(1.0),
        [Subtracts(1.0)],
        Equal.model_construct(),
        np.array([Subtracts(1.0)], object),
    ],
    ids=["an array", "a number", "in a list", "a part of a Plan", "in an array of objects"],
)
def test_nothing_that_could_answer_for_itself_is_shown_to_who_sees_rows(argument):
    with pytest.raises(GateError, match="a run asked with a"):
        digest_of((argument,), {})
