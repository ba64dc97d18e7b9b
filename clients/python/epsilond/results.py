"""What the service answers, with names for editors and type checkers.

Every result is the JSON as it came, a dict: `job["state"]` and `job.state` are the same, and a field
that a newer service adds is there under its name. In notebooks each shows itself as a small table.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Literal, TypeVar

from epsilond.encode import JSON
from epsilond.html import as_html, as_table

ENDED = ("succeeded", "failed", "cancelled")


class Result(dict[str, Any]):
    """A JSON object whose fields are attributes too."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"it has no {name!r}; it has {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *map(str, self)})

    def facts(self) -> JSON:
        """What a notebook shows."""
        return {name: self.get(name) for name in self.shown or self}

    def _repr_html_(self) -> str:
        return as_html(str(self.get("object", "")), self.facts())


T = TypeVar("T", bound=Result)


class Results(list[T], Generic[T]):
    """A list of results."""

    def _repr_html_(self) -> str:
        shown = (type(self[0]).shown or self[0]) if self else ()
        return as_table(shown, self)


class Job(Result):
    shown = ("id", "dataset", "state", "price_units", "created_at", "finished_at")
    id: str
    dataset: str
    state: Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
    spec: JSON
    choice: JSON | None
    plan_digest: str
    price_units: int
    progress: dict[str, int]
    data_opened: bool
    error: dict[str, str] | None
    metadata: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def facts(self) -> JSON:
        spec = self.spec
        loss = spec.get("loss") or {"kind": None}  # none of a job that asks for summaries
        asked = {"algorithm": spec["algorithm"], "loss": loss["kind"], **spec["privacy"]}
        return super().facts() | asked | (self.error or {})


class Group(Result):
    id: str
    data: list[JSON]

    def _repr_html_(self) -> str:
        return as_table(Job.shown, self.data)


class Dataset(Result):
    shown = ("id", "name", "state", "rows", "columns", "storage", "created_at")
    id: str
    name: str
    owner: str
    state: Literal["empty", "ready", "deleted"]
    rows: int | None
    columns: int
    storage: Literal["fixed", "float64"]
    schema: JSON
    features: list[str]
    losses: list[str]
    report: JSON

    def _repr_html_(self) -> str:
        report = self.get("report")
        if report is None:
            return super()._repr_html_()
        names = ("name", "clipped", "filled", "other", "constant")
        said = as_table(names, report["columns"]) if report["columns"] else "<p>nothing changed</p>"
        return super()._repr_html_() + said


class Budget(Result):
    shown = ("dataset", "epsilon", "delta", "kind", "units_ceiling", "units_remaining")
    epsilon: float
    delta: float
    units_ceiling: int
    units_remaining: int


class Quote(Result):
    shown = ("epsilon", "fits", "refusal", "largest_epsilon", "jobs_that_fit", "steps", "advice")
    epsilon: float
    fits: bool
    refusal: str | None
    largest_epsilon: float
    jobs_that_fit: int
    steps: int
    advice: str | None
    choice: JSON | None
    plan: JSON
    plan_digest: str
    budget: JSON

    def facts(self) -> JSON:
        return {"algorithm": self.plan["algorithm"], **super().facts()}


class Comparison(Result):
    choice: JSON | None
    data: list[JSON]

    def _repr_html_(self) -> str:
        names = ("algorithm", "noise", "excess_risk", "steps", "price_units", "refusal")
        return as_table(names, self.data)


def listed(rows: Iterable[JSON]) -> Results[Result]:
    return Results(map(Result, rows))
