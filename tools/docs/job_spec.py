"""docs/job-spec.md: every field of a job, and every loss, set, regulariser and model it may name."""

from collections.abc import Iterable
from typing import get_args

from pydantic import BaseModel

from service.planning.catalog import CATALOG
from service.planning.default_set import ROOM, SPARSE
from service.planning.evaluate import Evaluate
from service.planning.loss import BaseLoss
from service.planning.losses import LOSSES
from service.planning.needs import LABELS
from service.planning.regularisers import REGULARISERS
from service.planning.sets import SETS
from service.planning.shared.reach import HARM, REACH
from service.planning.spec import JobSpec, ModelKind, Privacy, Released
from tools.docs.markdown import doc, escaped, example, names, own_fields, parameters, table, written

PAGE = "docs/job-spec.md"
SOURCE = "service/planning"
INTRODUCTION = """# The job spec

What an analyst asks, as the JSON body of `POST /v1/quotes` (free: the plan and its price) and of
`POST /v1/jobs`. The same spec on the same dataset always makes the same plan. A refusal says what
would work.

"""
EXAMPLE = {
    "dataset": "ds_...",
    "algorithm": "auto",
    "loss": {"kind": "huber", "threshold": 0.5},
    "set": {"kind": "l2_ball", "radius": 5.0},
    "ridge": 0.01,
    "privacy": {"epsilon": 0.5, "delta": 1e-7},
}
SHORT = """A kind without parameters, or with their defaults, may be given by its name alone:
`"loss": "logistic"` is `"loss": {"kind": "logistic"}`.

"""


SETS_ARE = f"""All weights lie in a convex set. A job that names none (`default`) gets the one that its
algorithm does best with, and its Plan names it: `all` for those whose steps need no set, and where
labels have no bounds; else an `l2_ball`, or an `l1_ball` where vertices are chosen. How far weights
are expected to be follows from public facts. With the usual size of a margin M (labels are within 1,
log-odds within 3), rows whose entries are at most `linf`, and the noise of one mean gradient in units
of its clip, D is M times the smaller of {REACH:g}/linf and {HARM:g}/noise. An l2 ball has the radius
{ROOM:g} D, an l1 ball {SPARSE:g} D. So it does not matter how many columns there are, and where noise
is large the model stays near a constant.

"""


def pages() -> dict[str, str]:
    JobSpec.model_validate(EXAMPLE | {"dataset": "ds"})
    text = (
        written(SOURCE)
        + INTRODUCTION
        + example(EXAMPLE)
        + f"\n{own_fields(JobSpec)}\n{SHORT}"
        + f"## Losses\n\n{losses()}\n"
        + f"## Sets\n\n{SETS_ARE}{kinds(SETS, 'sets')}\n"
        + "## Regularisers\n\nBesides `ridge`. Intercepts are left out.\n\n"
        + f"{kinds(REGULARISERS, 'regularisers')}\n"
        + f"## Models\n\n{kinds(get_args(get_args(ModelKind)[0]), 'models')}\n"
        + f"## Privacy\n\n{own_fields(Privacy)}\n"
        + f"## A released model\n\n{escaped(doc(Released))}\n\n{own_fields(Released)}\n"
        + f"## An evaluation\n\n{escaped(doc(Evaluate))}\n\n{own_fields(Evaluate)}\n"
        + "## Parameters\n\nThose of each algorithm are on its page: "
        + ", ".join(f"[{name}](algorithms/{name}.md)" for name in CATALOG)
        + ".\n"
    )
    return {PAGE: text}


def losses() -> str:
    rows = [
        [
            f"`{loss.name()}`",
            escaped(doc(loss)),
            parameters(loss),
            ", ".join(label for label in LABELS if label in loss.labels),
            convexity(loss()),
            "yes" if loss().smooth else "no",
            takers("losses", loss.name()),
        ]
        for loss in LOSSES
    ]
    headers = ["loss", "of a record", "parameters", "labels", "convex", "smooth", "algorithms"]
    return table(headers, rows)


def convexity(loss: BaseLoss) -> str:
    return "yes" if loss.convex else "weakly" if loss.weakly_convex else "no"


def kinds(listed: Iterable[type[BaseModel]], what: str) -> str:
    rows = [
        [f"`{name}`", escaped(doc(kind)), parameters(kind), takers(what, name)]
        for kind in listed
        for name in [kind.model_fields["kind"].default]
    ]
    return table([what[:-1], "meaning", "parameters", "algorithms"], rows)


def takers(what: str, name: str) -> str:
    """The algorithms that take this one; those that do not, where they are fewer."""
    taking = [each.name for each in CATALOG.values() if name in each.needs.takes()[what]]
    others = [each for each in CATALOG if each not in taking]
    if not others:
        return "all"
    return names(taking) if len(taking) <= len(others) else f"all but {names(others)}"
