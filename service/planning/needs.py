"""What an algorithm takes of a job, as data: cards, the words of refusals and the choice of another
algorithm are derived from it. What depends on numbers (rows, steps, radii) is checked where the
numbers are, in the plan functions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

from service.planning.losses import Traits, losses_for, traits
from service.planning.spec import Facts, FeasibleSet, JobSpec, Loss


def kinds_of(union: Any) -> dict[str, Any]:
    """The members of a discriminated union of the spec, by their kind."""
    return {each.model_fields["kind"].default: each for each in get_args(get_args(union)[0])}


LOSSES = {kind: traits(loss()) for kind, loss in kinds_of(Loss).items()}
LABELS: tuple[str, ...] = get_args(Facts.model_fields["label"].annotation)
ANY_SET = tuple(kinds_of(FeasibleSet))
WITH_A_PROJECTION = ("l2_ball", "all", "l1_ball", "simplex", "box")
WITH_VERTICES = ("l1_ball", "simplex", "polytope")
BALL_OR_ALL = ("l2_ball", "all")


class Misfit(NamedTuple):
    """What of a job an algorithm does not take, and what it would take in its place."""

    says: str
    instead: str
    elsewhere: bool = True  # whether another algorithm may take the job as it is


@dataclass(frozen=True)
class Needs:
    """The defaults take the most: convex losses of linear models, on any rows and labels."""

    sets: tuple[str, ...]
    margins: Literal["one", "some", "any"] = "any"  # of a loss; a geometric median has none
    smooth: bool = False
    convexity: Literal["convex", "weakly convex", "any"] = "convex"  # for a linear model
    models: tuple[str, ...] = ("linear",)
    regularisers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # with their sets
    bounded_rows: bool = False
    bounded_labels: bool = False
    ridge_min: float = 0.0
    ridge_over_all: bool = False  # over all of R^d it needs a ridge
    released_model: bool = False  # it is about a model that `of` names

    def takes(self) -> dict[str, Any]:
        """For the card: the names that may stand in a job."""
        losses = [kind for kind, has in LOSSES.items() if self._takes_loss(has)]
        labels = [label for label in LABELS if losses_for(label) & set(losses)]
        if self.bounded_labels:
            labels.remove("unbounded")
        return {
            "losses": losses,
            "sets": list(self.sets),
            "models": list(self.models),
            "regularisers": ["none", *self.regularisers],
            "rows": "bounded" if self.bounded_rows else "any",
            "labels": labels,
        }

    def describe(self) -> list[str]:
        """For the card: the same in words, as far as something is asked at all."""
        told = {
            "a convex loss": self.convexity == "convex",
            "a weakly convex loss": self.convexity == "weakly convex",
            "a smooth loss": self.smooth,
            "a loss of one margin": self.margins == "one",
            "a loss of margins": self.margins == "some",
            f"the set {either(self.sets)}": self.sets != ANY_SET,
            "a bound on every column": self.bounded_rows,
            "a bound on the label": self.bounded_labels,
            f"ridge of at least {self.ridge_min:g}": self.ridge_min > 0,
            "ridge > 0 over the set all": self.ridge_over_all,
            "a model that a job on the same dataset has released": self.released_model,
        }
        return [words for words, asked in told.items() if asked]

    def misfits(self, spec: JobSpec, facts: Facts) -> Iterator[Misfit]:
        """All that this job has and the algorithm does not take, the most telling first."""
        yield from self._regulariser(spec)
        yield from self._model(spec)
        yield from self._loss(spec, facts)
        yield from self._set(spec)
        yield from self._storage(facts)
        if spec.ridge < self.ridge_min:
            yield Misfit(
                "needs strong convexity",
                f"set ridge to at least {self.ridge_min:g} (for example 0.01)",
            )

    def _regulariser(self, spec: JobSpec) -> Iterator[Misfit]:
        kind = spec.regulariser.kind
        if kind != "none" and kind not in self.regularisers:
            yield Misfit("takes no regulariser besides ridge", 'leave "regulariser" out')

    def _model(self, spec: JobSpec) -> Iterator[Misfit]:
        if spec.model.kind not in self.models:
            known = either(self.models)
            released = f', and set "of" to a job that fitted a {known} one'
            yield Misfit(
                f"is for the model {known}, and {spec.model.kind} is another",
                f"use the model {known}{released if self.released_model else ''}",
            )
        if self.released_model and spec.of is None:
            yield Misfit(
                "is about a model that was released",
                'set "of" to the id of a job on this dataset that has one',
                elsewhere=False,
            )
        if not self.released_model and spec.of is not None:
            yield Misfit("begins afresh, from no released model", 'leave "of" out')

    def _loss(self, spec: JobSpec, facts: Facts) -> Iterator[Misfit]:
        has, kind = traits(spec.loss), spec.loss.kind
        fitting = [name for name, other in LOSSES.items() if self._takes_loss(other)]
        instead = "use the loss " + either(sorted(losses_for(facts.label) & set(fitting)))
        if not self._takes_margins(has):
            wanted = "one margin <w, x>" if self.margins == "one" else "margins <w, x>"
            yield Misfit(f"needs a loss of {wanted}, which {kind} is not", instead)
        if spec.model.kind != "linear":
            if has.margins != "one":
                yield Misfit(
                    f"needs a loss of one margin for a {spec.model.kind}, which {kind} is not",
                    "use a linear model",
                )
        elif not self._takes_weak(has):
            yield Misfit(
                f"needs a {self.convexity} loss and {kind} is not"
                + (", for it has a corner that points up" if not isfinite(has.weak) else ""),
                instead,
            )
        if self.smooth and not has.smooth:
            yield Misfit(f"needs a smooth loss and {kind} has a corner", instead)

    def _set(self, spec: JobSpec) -> Iterator[Misfit]:
        kind, of = spec.regulariser.kind, ""
        sets = self.sets
        if kind in self.regularisers:
            sets, of = self.regularisers[kind], f" with the regulariser {kind}"
        if spec.set.kind not in sets:
            yield Misfit(
                f"does not run over the set {spec.set.kind}{of}; it runs over: {', '.join(sets)}",
                "use one of these",
            )
        if spec.set.kind == "all" and self.ridge_over_all and spec.ridge == 0:
            yield Misfit(
                "needs strong convexity over all of R^d",
                "set ridge (for example 0.01), or use the set l2_ball",
            )

    def _storage(self, facts: Facts) -> Iterator[Misfit]:
        if self.bounded_rows and facts.storage != "fixed":
            yield Misfit(
                "rests on a bound on every row and this dataset has unbounded columns",
                "declare bounds for every column",
            )
        if self.bounded_labels and facts.label == "unbounded":
            yield Misfit(
                "rests on a bound on every label and this dataset's has none",
                "declare bounds for it",
            )

    def _takes_loss(self, has: Traits) -> bool:
        return (
            self._takes_margins(has) and self._takes_weak(has) and (has.smooth or not self.smooth)
        )

    def _takes_margins(self, has: Traits) -> bool:
        return has.margins in {"one": ["one"], "some": ["one", "several"]}.get(
            self.margins, ["one", "several", "none"]
        )

    def _takes_weak(self, has: Traits) -> bool:
        if self.convexity == "convex":
            return has.weak == 0
        return self.convexity == "any" or isfinite(has.weak)


def either(names: Any) -> str:
    """a, b or c."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else str(last)
