"""docs/algorithms: a page for each algorithm of the one list, and an index."""

import inspect
import re
from importlib import import_module

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.algorithms import ALGORITHMS
from tools.docs.markdown import doc, escaped, example, fields, names, own_fields, table, written

FOLDER = "docs/algorithms"
PLANS, RUNS = "service/planning/algorithms", "workers/algorithms"
INDEX = f"""# Algorithms

Each algorithm is a plan in [{PLANS}](../../{PLANS}), which says what will be released and why that is
private, and a run of the same name in [{RUNS}](../../{RUNS}). `epsilond algorithms` prints this
list, and `GET /v1/algorithms` sends it. A job names one of them, or `"auto"` for the one with the
smallest expected error ([job spec](../job-spec.md)).

Every algorithm runs with delta > 0 (Gaussian noise, or choices counted by their range) and with
delta = 0 (Laplace noise, or choices counted by their epsilon). More on [columns and labels without
bounds](../heavy-tails.md), on [losses neither smooth nor convex](../nonconvex.md), on
[certificates](../certificates.md), and on [what the letters mean](../notation.md).

"""


def pages() -> dict[str, str]:
    return {f"{FOLDER}/index.md": index()} | {
        f"{FOLDER}/{one.name}.md": page(module, one) for module, one in ALGORITHMS.items()
    }


def index() -> str:
    rows = [
        [
            f"[{one.name}]({one.name}.md)",
            one.problem,
            citation(one),
            "; ".join(one.needs.describe()) or "–",
            one.cost,
        ]
        for one in ALGORITHMS.values()
    ]
    listed = table(["name", "problem", "from", "needs", "cost"], rows)
    papers = "".join(
        f"- {paper}\n" for paper in dict.fromkeys(o.paper for o in ALGORITHMS.values())
    )
    return written(f"{PLANS}/__init__.py") + INDEX + listed + f"\n## Papers\n\n{papers}"


def page(module: str, one: Algorithm) -> str:
    text = inspect.cleandoc(import_module(f"{PLANS.replace('/', '.')}.{module}").__doc__ or "")
    summary, *sections = re.split(r"^\*\*(\w+)\.\*\*\s*", text, flags=re.M)
    about = table(
        ["", ""],
        [
            ["problem", one.problem],
            ["from", f"{one.paper}: {place(one)}"],
            ["cost", one.cost],
            ["plan", link(f"{PLANS}/{module}.py")],
            ["run", link(f"{RUNS}/{module}.py")],
        ],
    )
    argument = "".join(
        f"## {heading}\n\n{linked(escaped(body.strip()))}\n\n"
        for heading, body in zip(sections[::2], sections[1::2], strict=True)
    )
    return (
        written(f"{PLANS}/{module}.py")
        + f"# {one.title}\n\n`{one.name}`: {escaped(summary.strip())}\n\n{about}\n"
        + f"## What it takes\n\n{takes(one)}\n"
        + f"## Parameters\n\n{own_fields(one.parameters) or 'None.' + chr(10)}\n"
        + f"## Example\n\n{example(job(one))}\n"
        + f"{argument}## Fields of the schedule\n\n{escaped(doc(one.schedule))}\n\n"
        + fields(one.schedule)
        + shorthand(text)
    )


def job(one: Algorithm) -> dict[str, object]:
    return {
        "dataset": "ds_...",
        "algorithm": one.name,
        **one.example,
        "privacy": {"epsilon": 1.0},
    }


def takes(one: Algorithm) -> str:
    card = one.needs.takes()
    rows = [
        [what, names(value) if isinstance(value, list) else str(value)]
        for what, value in card.items()
    ]
    needs = [f"- {words}\n" for words in one.needs.describe()]
    asked = f"It needs:\n\n{''.join(needs)}\n" if needs else ""
    return asked + table(["of a job", "it takes"], rows)


def place(one: Algorithm) -> str:
    """Where in its paper it stands."""
    return f"{numbered('algorithm', one.algorithm)}, {numbered('theorem', one.theorem)}"


def numbered(what: str, number: str) -> str:
    if not number[0].isdigit():
        return number
    several = " and " in number or " to " in number
    return f"{what}{'s' if several else ''} {number}"


def citation(one: Algorithm) -> str:
    authors, _, rest = one.paper.partition(":")
    year = rest.rpartition("(")[2].rstrip(")")
    return f"{authors} ({year}), {place(one)}"


def shorthand(text: str) -> str:
    """The papers that the text names by letters."""
    letters = {
        name.replace("_", "-"): paper for name, paper in vars(papers).items() if name[0].isupper()
    }
    named = [
        f"- {name}: {paper}\n" for name, paper in letters.items() if re.search(rf"\b{name}\b", text)
    ]
    return f"\n## Papers\n\n{''.join(named)}" if named else ""


def linked(text: str) -> str:
    """With links to the pages of docs that it names."""
    return re.sub(r"\bdocs/(\S+?\.md)", r"[\1](../\1)", text)


def link(path: str) -> str:
    return f"[{path}](../../{path})"
