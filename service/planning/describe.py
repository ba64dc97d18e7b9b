"""A Plan in words and numbers, for people: what it fits, what leaves the data, how often, over which
rows, under which noise.

A walk over the Plan's tree of releases. Nothing is computed from data and nothing here is charged: the
Plan itself, its price and its digest say what counts. Sensitivity and noise are given in the units of
what is released, so each release is read together with its lattice. A schedule says where a release is
made by the names of its fields, which all schedules share:

    lattice, later      the lattice of a phase's sums; that of differences, beside the Plan's own
    lattice_step        the units of a point per lattice unit
    batch, first_batch  the rows of a step; of the first step of a period
    term_step           the units of an objective's linear term per lattice unit
    phases, rounds      parts that read rows of their own, `rows` of them or those in [start, stop)
    step_from_zero()    how far one unit of a noisy sum moves a weight, where one step is all
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isinf, sqrt
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.planning.plan import Plan
from service.planning.releases import (
    Choice,
    Disjoint,
    Exponential,
    Gaussian,
    Laplace,
    PerturbedMinimum,
    PrefixSums,
    Pure,
    Recursive,
    Release,
    Repeat,
    SampledGaussian,
    Sequence,
    Subsample,
)
from service.planning.spec import JobSpec

Reads = Literal["all", "disjoint", "sampled"]


class DescribedRelease(BaseModel):
    """Releases that are alike: how they are made, over which rows, and how often."""

    mechanism: Literal["Gaussian", "Laplace", "exponential"]
    released: str = Field(description="What one release is, in words.")
    sensitivity: float = Field(
        description="The most by which replacing one record moves it, in `unit`."
    )
    noise: float = Field(
        description="In `unit`: the standard deviation of Gaussian noise in one coordinate, the scale "
        "of Laplace noise or of a choice."
    )
    norm: Literal["l2", "l1"] | None = Field(description="Of the sensitivity; null for a choice.")
    unit: str
    times: int = Field(description="How many such releases there are.")
    rows: int = Field(description="The rows that one release reads; where they differ, the most.")
    reads: Reads = Field(
        description="all: the same rows each time. disjoint: rows in ranges that no other release "
        "reads. sampled: a secret batch, drawn anew each time."
    )
    ranges: int = Field(
        description="Disjoint ranges of rows that they read: costs within a range add up, and all "
        "ranges together cost what the most expensive one costs."
    )
    population: int | None = Field(description="The rows that a secret batch is drawn from.")
    reading: str = Field(description="Which rows one release reads, in words.")
    words: str = Field(description="All of this in sentences.")


_MOMENTS = ("a sum of labels", "a sum of rows and squares", "a sum of second moments")


class Description(BaseModel):
    summary: str = Field(description="What the Plan fits, on what, and how.")
    releases: list[DescribedRelease] = Field(description="All that leaves the data, in order.")
    release_count: int = Field(description="How many vectors or choices that is.")
    weight_noise: float | None = Field(
        description="The standard deviation of the noise in one weight, before projection, where the "
        "model is one noisy point or one noisy step from 0; null where no single number says it."
    )


def describe(plan: Plan) -> Description:
    rows = plan.facts.held_out if plan.schedule.evaluates() else plan.facts.rows
    context = _Context(plan, plan.schedule, plan.lattice, rows)
    found = list(_walk(plan.release, context))
    return Description(
        summary=_summary(plan),
        releases=found,
        release_count=_count(plan.release),
        weight_noise=_weight_noise(plan, found),
    )


@dataclass(frozen=True)
class _Context:
    """Where in a Plan a release is: in which part of the schedule, on which lattice and rows."""

    plan: Plan
    part: Any  # the schedule, or a phase of it
    lattice: Any
    rows: int
    reads: Reads = "all"
    population: int | None = None
    times: int = 1
    ranges: int = 1

    def repeated(self, times: int) -> "_Context":
        return replace(self, times=self.times * times)

    def on_ranges(self, ranges: int, rows: int) -> "_Context":
        more = replace(self, rows=rows, reads="disjoint", ranges=self.ranges * ranges)
        return more.repeated(ranges)

    def drawn(self, batch: int, population: int) -> "_Context":
        return replace(self, rows=batch, reads="sampled", population=population)


def _walk(node: Release, context: _Context) -> Iterator[DescribedRelease]:
    match node:
        case Repeat():
            yield from _walk(node.release, context.repeated(node.times))
        case Sequence():
            yield from _sequence(node, context)
        case Disjoint():
            yield from _disjoint(node, context)
        case PrefixSums():
            yield from _prefixes(node, context)
        case Subsample():
            yield from _walk(node.release, context.drawn(node.batch, node.population))
        case SampledGaussian():
            drawn = context.drawn(node.batch, node.population)
            yield _vector(drawn, "Gaussian", node.sensitivity, node.sigma)
        case Gaussian():
            yield _vector(context, "Gaussian", node.sensitivity, node.sigma)
        case Pure() | Laplace():
            yield _vector(context, "Laplace", node.sensitivity, node.scale)
        case PerturbedMinimum():
            yield _minimum(context, node)
        case Exponential() | Choice():
            yield _choice(context, node.sensitivity, node.scale)
        case Recursive():  # choices differ; the first says how large they are
            every = context.repeated(len(node.scales))
            yield _choice(every, node.sensitivities[0], node.scales[0])


def _count(node: Release) -> int:
    """How many vectors or choices leave; of prefix sums, one vector may be made of several sums."""
    match node:
        case Repeat():
            return node.times * _count(node.release)
        case Sequence() | Disjoint():
            copies = node.copies if isinstance(node, Disjoint) else 1
            return copies * sum(map(_count, node.parts))
        case Subsample():
            return _count(node.release)
        case PrefixSums():
            return node.vectors
        case Recursive():
            return len(node.scales)
    return 1


def _sequence(node: Sequence, context: _Context) -> Iterator[DescribedRelease]:
    """Moments come first, on lattices of their own; sums in sequence are on the Plan's lattice and
    then, of differences, on the schedule's other."""
    later = getattr(context.part, "later", context.lattice)
    schedule = context.plan.schedule
    first = (*schedule.moment_lattices(), *(each.lattice for each in schedule.counted()))
    lattices = iter((*first, context.lattice, later))
    for inner in node.parts:
        chosen = isinstance(inner, Exponential | Choice | PerturbedMinimum)
        own = context if chosen else replace(context, lattice=next(lattices, context.lattice))
        yield from _walk(inner, own)


def _disjoint(node: Disjoint, context: _Context) -> Iterator[DescribedRelease]:
    """By the schedule's phases or rounds where these are as many as the ranges, else batches alike."""
    phases = getattr(context.part, "phases", None) or getattr(context.part, "rounds", ())
    phases = phases if isinstance(phases, tuple) else ()
    ranges = node.parts * node.copies if len(node.parts) == 1 else node.parts
    if len(ranges) == len(phases):
        for inner, phase in zip(ranges, phases, strict=True):
            lattice = getattr(phase, "lattice", context.lattice)
            own = replace(context, part=phase, lattice=lattice).on_ranges(1, _rows(phase))
            yield from _walk(inner, own)
        return
    largest = max((phase.rows for phase in phases), default=0)
    batch = getattr(context.part, "batch", None) or largest or context.rows // len(ranges)
    for inner in node.parts:
        yield from _walk(inner, context.on_ranges(node.copies, batch))


def _rows(phase: Any) -> int:
    return int(phase.stop - phase.start if hasattr(phase, "stop") else phase.rows)


def _prefixes(node: PrefixSums, context: _Context) -> Iterator[DescribedRelease]:
    """The first sum of a period is of whole gradients, the later ones are of differences."""
    schedule = context.part
    kinds = (
        (context.lattice, schedule.first_batch, 1),
        (schedule.later, schedule.batch, schedule.period - 1),
    )
    mechanism: Literal["Gaussian", "Laplace"] = (
        "Gaussian" if node.noise == "gaussian" else "Laplace"
    )
    for leaf, (lattice, batch, times) in zip(node.leaves, kinds, strict=False):
        own = replace(context, lattice=lattice).on_ranges(times, batch)
        yield _vector(own, mechanism, leaf.sensitivity, node.scale, ", within prefix sums")


def _vector(
    context: _Context,
    mechanism: Literal["Gaussian", "Laplace"],
    sensitivity: int,
    scale: int,
    more: str = "",
) -> DescribedRelease:
    plan, lattice = context.plan, context.lattice
    if lattice.kind == "point":
        step = context.part.lattice_step
        released, unit = "a point computed from the data", "weights"
    elif lattice.kind == "moment":
        step, unit = lattice.step, "lattice units of rows"
        released = _MOMENTS[lattice.order]
    elif lattice.kind == "count":
        step, unit = 1 / max(lattice.weights), "records, for the most precise of them"
        released = f"{_plural(len(lattice.sizes), 'table')} of {sum(lattice.sizes)} numbers"
    else:
        step = lattice.step
        differences = lattice is not plan.lattice and lattice is getattr(
            context.part, "later", None
        )
        of = "differences of gradients" if differences else "gradients"
        released = f"a sum of clipped {of}{more}"
        unit = "gradients" if plan.private_clip is None else "gradients per unit of the clip"
    return _described(
        context,
        mechanism=mechanism,
        released=released,
        sensitivity=sensitivity * step,
        noise=scale * step,
        norm=lattice.norm,
        unit=unit,
    )


def _minimum(context: _Context, node: PerturbedMinimum) -> DescribedRelease:
    """Its noise enters through the objective, where sensitivity and scale are those of a gradient."""
    step = context.part.term_step
    return _described(
        context,
        mechanism="Gaussian" if node.noise == "gaussian" else "Laplace",
        released="the sum of clipped gradients, by way of the minimiser of the objective",
        sensitivity=node.sensitivity * step,
        noise=node.scale * step,
        norm="l2" if node.noise == "gaussian" else "l1",
        unit="gradients",
    )


def _choice(context: _Context, sensitivity: int, scale: int) -> DescribedRelease:
    clip = context.plan.private_clip
    of_clip = clip is not None and (sensitivity, scale) == (clip.SENSITIVITY, clip.scale)
    return _described(
        context,
        mechanism="exponential",
        released="a choice of the clip by scores" if of_clip else "a choice of a vertex by scores",
        sensitivity=float(sensitivity),
        noise=float(scale),
        norm=None,
        unit="scores",
    )


def _described(context: _Context, **what: Any) -> DescribedRelease:
    made = DescribedRelease(
        **what,
        times=context.times,
        rows=context.rows,
        reads=context.reads,
        population=context.population,
        ranges=context.ranges,
        reading="",
        words="",
    )
    read = made.model_copy(update={"reading": _reading(made)})
    return read.model_copy(update={"words": _words(read)})


def _reading(r: DescribedRelease) -> str:
    how = {
        "all": f"over all {_number(r.rows)} rows",
        "disjoint": f"over up to {_number(r.rows)} rows that no other reads",
        "sampled": f"over a secret batch of {_number(r.rows)} of {_number(r.population or 0)} rows",
    }[r.reads]
    if r.reads == "disjoint" and r.times > r.ranges:
        ranges = f"{_number(r.times // r.ranges)} over each of {_number(r.ranges)} disjoint ranges"
        how = f"{ranges} of up to {_number(r.rows)} rows"
    if r.reads == "disjoint" and r.times > r.ranges == 1:
        how = f"all over the same {_number(r.rows)} rows, which no other reads"
    return how


def _words(r: DescribedRelease) -> str:
    each = "" if r.times == 1 else f"{_number(r.times)} times "
    if r.norm is None:
        return (
            f"{each}{r.released}, {r.reading}; a candidate is e times less likely for every "
            f"{_number(r.noise)} that its score is worse. Replacing one record moves the difference "
            f"of two scores by at most {_number(r.sensitivity)}."
        )
    size = "standard deviation" if r.mechanism == "Gaussian" else "scale"
    return (
        f"{each}{r.released}, {r.reading}, plus {r.mechanism} noise of {size} {_number(r.noise)}. "
        f"Replacing one record moves it by at most {_number(r.sensitivity)} ({r.norm})."
    )


def _weight_noise(plan: Plan, releases: list[DescribedRelease]) -> float | None:
    """The last point that is released is the model; so is a sum, where one step from 0 is all. The
    noise of an objective moves its minimiser by what the rows' curvature says: no number is public."""
    if hasattr(plan.schedule, "term_step"):
        return None
    last = releases[-1]
    deviation = last.noise * (sqrt(2.0) if last.mechanism == "Laplace" else 1.0)
    if plan.lattice.kind == "point":
        return deviation
    step = getattr(plan.schedule, "step_from_zero", None)
    if step is None or sum(release.times for release in releases) > 1:
        return None
    return float(step(plan.facts.rows) * deviation)


def _summary(plan: Plan) -> str:
    spec = plan.spec
    if spec.summaries:
        told = _plural(len(spec.summaries), "summary", "summaries")
        rows = _plural(plan.facts.rows, "row")
        return f"It tells {told} of columns, on {rows}, by {plan.algorithm}."
    if plan.schedule.evaluates():
        models, rows = (
            _plural(len(spec.named), "model"),
            _plural(plan.facts.held_out, "held-out row"),
        )
        return f"It evaluates {models} of {_kind(spec.loss)} loss on {rows}, by {plan.algorithm}."
    everywhere = isinf(spec.set.l2_radius(plan.dimension))
    where = "every weight vector" if everywhere else f"the set {_kind(spec.set)}"
    verb = f"At the model of {spec.named[0].job} it measures" if spec.named else "It fits"
    said = [f"{verb} the {_kind(spec.loss)} loss over {where}"]
    if spec.ridge:
        said.append(f" with ridge {_number(spec.ridge)}")
    for name, field in JobSpec.model_fields.items():
        value = getattr(spec, name)
        usual = getattr(field.get_default(call_default_factory=True), "kind", None)
        if name not in ("loss", "set") and getattr(value, "kind", usual) != usual:
            said.append(f", with the {name} {_kind(value)}")
    said.append(f", on {_plural(plan.facts.rows, 'row')} and {_plural(plan.dimension, 'weight')}")
    return "".join(said) + f", by {plan.algorithm}."


def _kind(thing: BaseModel) -> str:
    """A loss, a set or the like with its numbers: "huber (threshold 0.1)"."""
    values = thing.model_dump()
    kind = str(values.pop("kind")).replace("_", " ")
    given = ", ".join(
        f"{name.replace('_', ' ')} {_number(value)}"
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    return f"{kind} ({given})" if given else kind


def _plural(number: int, noun: str, many: str = "") -> str:
    return f"{_number(number)} {noun if number == 1 else many or noun + 's'}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
