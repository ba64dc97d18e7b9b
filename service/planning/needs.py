"""What an algorithm takes of a job, as data: cards, the words of refusals and the choice of another
algorithm are derived from it. What depends on numbers (rows, steps, radii) is checked where the
numbers are, in the plan functions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Literal, NamedTuple, get_args

from service.planning.loss import BaseLoss
from service.planning.losses import LOSSES, fitting
from service.planning.regularisers import REGULARISERS
from service.planning.sets import SETS
from service.planning.spec import Facts, JobSpec

LABELS: tuple[str, ...] = get_args(Facts.model_fields["label"].annotation)
ANY_SET = tuple(each.name() for each in SETS)
WITH_A_PROJECTION = tuple(each.name() for each in SETS if each.has_projection)
WITH_VERTICES = tuple(each.name() for each in SETS if each.has_vertices)
WITH_A_LOWEST_POINT = tuple(each.name() for each in SETS if each.has_lowest)
BALL_OR_ALL = ("l2_ball", "all")
WITH_THEIR_SETS = {  # regularisers, but for none, whose operator on the set is known
    each.name(): tuple(one.name() for one in SETS if each.suits(one))
    for each in REGULARISERS
    if each.name() != "none"
}


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
    smooth: Literal[False, True, "if convex"] = False
    parabola: bool = False  # the squared loss: its slope is a line without an end
    mean_tells: bool = False  # a loss of y m, or the squared one: its best constant is of the mean
    convexity: Literal["convex", "weakly convex", "any"] = "convex"  # for a linear model
    models: tuple[str, ...] = ("linear",)
    regularisers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # with their sets
    bounded_rows: bool = False
    bounded_labels: bool = False
    ridge_min: float = 0.0
    ridge_over_all: bool = False  # over all of R^d it needs a ridge
    lipschitz: bool = False  # it rests on a bound on slopes, which some have over bounded sets only
    released_model: bool = False  # it is about a model that `of` names
    evaluates: bool = False  # it measures models that `of` names on the rows that were held out
    best_over_all: bool = False  # no set does it better than all of R^d
    summaries: bool = False  # it tells of columns what `summaries` ask, and fits no loss

    def sets_for(self, spec: JobSpec) -> tuple[str, ...]:
        """The kinds of sets that it takes with this job's regulariser."""
        return self.regularisers.get(spec.regulariser.kind, self.sets)

    def takes(self) -> dict[str, Any]:
        """For the card: the names that may stand in a job."""
        losses = self._losses()
        fit = [label for label in LABELS if set(fitting(label)) & set(losses)]
        labels = list(LABELS) if self.summaries else fit
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
            "a smooth loss": self.smooth is True,
            "a smooth loss, if it is convex": self.smooth == "if convex",
            "the squared loss": self.parabola,
            "a loss of y m, or the squared one": self.mean_tells,
            "a loss of one margin": self.margins == "one",
            "a loss of margins": self.margins == "some",
            f"the set {either(self.sets)}": self.sets != ANY_SET,
            "a bound on every column": self.bounded_rows,
            "a bound on the label": self.bounded_labels,
            f"ridge of at least {self.ridge_min:g}": self.ridge_min > 0,
            "ridge > 0 over the set all": self.ridge_over_all,
            "a Lipschitz loss over the set all": self.lipschitz,
            "a model that a job on the same dataset has released": self.released_model,
            "summaries in the place of a loss": self.summaries,
        }
        return [words for words, asked in told.items() if asked]

    def misfits(self, spec: JobSpec, facts: Facts) -> Iterator[Misfit]:
        """All that this job has and the algorithm does not take, the most telling first."""
        if self.evaluates:
            yield from self._model(spec)  # of its loss there is nothing to say without it
        if self.summaries or spec.summaries or spec.loss.kind == "no_loss":
            yield from self._fits(spec)
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

    def _fits(self, spec: JobSpec) -> Iterator[Misfit]:
        """Whether a model is asked for, or summaries."""
        if not self.summaries and spec.summaries:
            yield Misfit("fits a model and tells no summaries", 'leave "summaries" out')
        elif not self.summaries:
            yield Misfit(
                "fits a loss, and the job names none", f"use the loss {either(self._losses())}"
            )
        elif not spec.summaries:
            yield Misfit(
                "tells of columns, and the job names none",
                'set "summaries", for example to [{"kind": "mean", "column": "age"}]',
                elsewhere=False,
            )
        elif spec.loss.kind != "no_loss" or spec.ridge:
            yield Misfit("fits no model", 'leave "loss" and "ridge" out', elsewhere=False)

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
        if not self.evaluates and len(spec.named) > 1:
            yield Misfit("is about one model", 'name one job in "of"')
        if not self.evaluates and spec.evaluate is not None:
            yield Misfit("evaluates no model", 'leave "evaluate" out')

    def _loss(self, spec: JobSpec, facts: Facts) -> Iterator[Misfit]:
        loss, kind = spec.loss, spec.loss.kind

        def instead() -> str:
            fits = sorted(set(fitting(facts.label)) & set(self._losses()))
            return f"use the loss {either(fits)}" if fits else f"a {facts.label} label has none"

        if not self._takes_margins(loss):
            wanted = "one margin <w, x>" if self.margins == "one" else "margins <w, x>"
            yield Misfit(f"needs a loss of {wanted}, which {kind} is not", instead())
        if spec.model.kind != "linear":
            if not loss.margin:
                yield Misfit(
                    f"needs a loss of one margin for a {spec.model.kind}, which {kind} is not",
                    "use a linear model",
                )
        elif not self._takes_convexity(loss):
            yield Misfit(
                f"needs a {self.convexity} loss and {kind} is not"
                + ("" if loss.weakly_convex else ", for it has a corner that points up"),
                instead(),
            )
        if self.parabola and not self._takes_parabola(loss):
            yield Misfit(f"is for the squared loss, and {kind} is another", instead())
        if self.mean_tells and not self._takes_mean(loss):
            says = f"rests on a constant that follows from a mean, and that of {kind} does not"
            yield Misfit(says, instead())
        if not self._takes_corner(loss, spec.model.kind == "linear" and loss.convex):
            yield Misfit(f"needs a smooth loss and {kind} has a corner", instead())

    def _set(self, spec: JobSpec) -> Iterator[Misfit]:
        kind, sets = spec.regulariser.kind, self.sets_for(spec)
        of = f" with the regulariser {kind}" if kind in self.regularisers else ""
        if spec.set.kind not in sets:
            yield Misfit(
                f"does not run over the set {spec.set.kind}{of}; it runs over: {', '.join(sets)}",
                "use one of these",
            )
        if not spec.set.bounded and self.lipschitz and not _lipschitz(spec.loss):
            yield Misfit(
                "rests on a bound on gradients, which this loss does not have over all of R^d",
                "use the set l2_ball",
            )
        if not spec.set.bounded and self.ridge_over_all and spec.ridge == 0:
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

    def _losses(self) -> list[str]:
        """Those that it takes with a linear model, by their name."""
        if self.summaries:
            return []
        return [each.name() for each in LOSSES if self._takes_loss(each(kind=each.name()))]

    def _takes_loss(self, loss: BaseLoss) -> bool:
        fits = self._takes_margins(loss) and self._takes_convexity(loss)
        fits = fits and (self._takes_parabola(loss) or not self.parabola)
        fits = fits and (self._takes_mean(loss) or not self.mean_tells)
        return fits and self._takes_corner(loss, loss.convex)

    def _takes_corner(self, loss: BaseLoss, convex: bool) -> bool:
        return loss.smooth or not self.smooth or (self.smooth == "if convex" and not convex)

    def _takes_parabola(self, loss: BaseLoss) -> bool:
        if not loss.margin:
            return False
        slope = loss.scalar()
        return slope.straight and slope.argument == "residual" and slope.jump == inf

    def _takes_mean(self, loss: BaseLoss) -> bool:
        return loss.margin and (loss.scalar().argument == "margin" or self._takes_parabola(loss))

    def _takes_margins(self, loss: BaseLoss) -> bool:
        if self.margins == "one":
            return loss.margin
        return self.margins == "any" or not loss.located

    def _takes_convexity(self, loss: BaseLoss) -> bool:
        if self.convexity == "convex":
            return loss.convex
        return self.convexity == "any" or loss.weakly_convex


def _lipschitz(loss: BaseLoss) -> bool:
    """Over all of R^d, for a bounded label."""
    return loss.margin and isfinite(loss.scalar().lipschitz(inf))


def either(names: Any) -> str:
    """a, b or c."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else str(last)
