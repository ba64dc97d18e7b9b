"""Reference pages are what `make docs` writes; README, docs and openapi.yaml agree with the lists."""

import re
from pathlib import Path

import pytest
import yaml

from service.datasets.formats import FORMATS
from service.planning.algorithms import ALGORITHMS
from service.planning.catalog import CATALOG
from service.planning.choose import AUTO
from service.planning.losses import LOSSES
from service.planning.regularisers import REGULARISERS
from service.planning.sets import SETS
from tools.docs import pages, stale

ROOT = Path(__file__).parents[1]
PAGES = pages()
PROSE = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PROSE.remove(ROOT / "CHANGELOG.md")  # which may name what is gone
ENDINGS = {name.rsplit("-", 1)[1] for name in CATALOG}  # sgd, wolfe, descent, ...
NAMES = {
    "algorithm": {*CATALOG, AUTO},
    "loss": {"no_loss", *(loss.name() for loss in LOSSES)},
    "set": {"default", *(feasible.name() for feasible in SETS)},
    "regulariser": {regulariser.name() for regulariser in REGULARISERS},
}
each_page = pytest.mark.parametrize("path", PROSE, ids=lambda p: p.relative_to(ROOT).as_posix())


def algorithms_named_in(text):
    """Words with hyphens that end as the name of an algorithm does; not files, nor what make makes."""
    words = re.findall(r"(?<![\w./-])[a-z]+(?:-[a-z]+)+(?![\w-]|\.\w)", text)
    named = {word for word in words if word.rsplit("-", 1)[1] in ENDINGS}
    return {word for word in named if not word.startswith("bench-")}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name):
    assert (ROOT / name).read_text() == PAGES[name], "run `make docs` and commit what it writes"


def test_no_page_is_about_an_algorithm_that_there_is_not():
    assert stale() == set()


@pytest.mark.parametrize("name", CATALOG)
def test_every_algorithm_has_a_page_and_the_index_leads_to_it(name):
    assert f"docs/algorithms/{name}.md" in PAGES
    assert f"]({name}.md)" in PAGES["docs/algorithms/index.md"]
    assert f'"algorithm": "{name}"' in PAGES[f"docs/algorithms/{name}.md"]


@each_page
def test_an_algorithm_that_is_named_exists(path):
    assert algorithms_named_in(path.read_text()) <= set(CATALOG)


def test_the_check_above_sees():
    assert algorithms_named_in("clipped-sgd, phased-sgdx and clipped-sdg; new-sgd.") == {
        "clipped-sgd",
        "new-sgd",
    }


@each_page
@pytest.mark.parametrize("field", NAMES)
def test_a_job_in_an_example_names_what_exists(path, field):
    pattern = rf'"{field}": (?:"([\w-]+)"|{{"kind": "([\w-]+)")'
    found = {a or b for a, b in re.findall(pattern, path.read_text())}
    assert found <= NAMES[field]


def openapi():
    return yaml.safe_load((ROOT / "openapi.yaml").read_text())


@pytest.mark.parametrize("field", ["loss", "set", "regulariser"])
def test_openapi_takes_the_kinds_of_the_lists(field):
    about = openapi()["components"]["schemas"]["JobSpec"]["properties"][field]
    assert set(about["discriminator"]["mapping"]) == NAMES[field]


def test_openapi_has_the_schedule_of_every_algorithm():
    about = openapi()["components"]["schemas"]["Plan"]["properties"]["schedule"]
    kinds = {one.schedule.model_fields["kind"].default for one in ALGORITHMS.values()}
    assert set(about["discriminator"]["mapping"]) == kinds


def test_openapi_takes_the_formats_of_the_list():
    upload = openapi()["paths"]["/v1/datasets/{dataset_id}/data"]["put"]
    media_types = [media for one in FORMATS for media in one.media_types]
    assert list(upload["requestBody"]["content"]) == media_types
