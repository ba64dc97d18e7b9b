"""Reference pages, written from the lists and models that the service itself uses."""

from pathlib import Path

from tools.docs import (
    algorithms,
    budgets,
    campaigns,
    client,
    contributing,
    job_spec,
    papers,
    schema,
)
from tools.docs.markdown import ROOT


def pages() -> dict[str, str]:
    """Every generated page, by its path in the repository."""
    made = (algorithms, job_spec, schema, contributing, budgets, campaigns, client, papers)
    return {name: text for module in made for name, text in module.pages().items()}


def stale(root: Path = ROOT) -> set[str]:
    """Pages about algorithms that there are no longer."""
    found = {path.relative_to(root).as_posix() for path in root.glob(f"{algorithms.FOLDER}/*.md")}
    return found - set(pages())


def write(root: Path = ROOT) -> None:
    for name in stale(root):
        (root / name).unlink()
    for name, text in pages().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
