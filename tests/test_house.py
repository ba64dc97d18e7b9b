"""The shape of the sources: one algorithm is two files and a line of one list; no module is long."""

import ast
import re
from pathlib import Path

import pytest

from service.planning.algorithms import ALGORITHMS, MODULES
from service.planning.catalog import CATALOG
from service.planning.draft import Schedule
from service.planning.losses import LOSSES
from service.planning.needs import ANY_SET
from service.planning.regularisers import REGULARISERS
from workers.algorithms import RUNS

ROOT = Path(__file__).parents[1]
FOLDERS = ("service/planning/algorithms", "workers/algorithms")
SOURCES = sorted(
    path for package in ("service", "workers") for path in (ROOT / package).rglob("*.py")
)
LINES_MAX = 400
# a solver of minimisers is called this in stored Plans, whatever algorithms there are
NOT_THE_ALGORITHM = {("service/planning/shared/minimiser.py", "gradient_descent")}


def spellings(module: str) -> str:
    """A pattern for a module's name: clipped_sgd, clipped-sgd, ClippedSgd."""
    pascal = "".join(word.capitalize() for word in module.split("_"))
    snake, kebab = re.escape(module), re.escape(module.replace("_", "-"))
    return rf"(?<![\w-])({snake}|{kebab})(?![\w-])|(?<![A-Za-z]){pascal}(?![a-z])"


def named_in(source: str) -> set[str]:
    return {module for module in MODULES if re.search(spellings(module), source)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_source_names_no_algorithm_but_its_own(path):
    place = path.relative_to(ROOT).as_posix()
    if place == f"{FOLDERS[0]}/__init__.py":  # the list
        return
    own = {path.stem} if place.startswith(FOLDERS) else set()
    found = {(place, module) for module in named_in(path.read_text()) - own}
    assert found <= NOT_THE_ALGORITHM


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("use clipped-sgd.", {"clipped_sgd"}),
        ("accelerated_clipped_sgd.run", {"accelerated_clipped_sgd"}),
        ("class StochasticFrankWolfeSchedule", {"stochastic_frank_wolfe"}),
        ("FrankWolfe", {"frank_wolfe"}),
        ("the Frank-Wolfe gap, by gradient descent", set()),
    ],
)
def test_the_check_above_sees(source, names):
    assert named_in(source) == names


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_list_and_the_folders_agree(folder):
    stems = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
    assert stems == set(MODULES)
    assert len(set(MODULES)) == len(MODULES)


def test_an_algorithm_is_called_as_its_files_are():
    names = [module.replace("_", "-") for module in MODULES]
    assert list(CATALOG) == names == [entry.name for entry in ALGORITHMS.values()]
    assert set(RUNS) == set(CATALOG)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("module", MODULES)
def test_no_algorithm_imports_a_sibling(folder, module):
    tree = ast.parse((ROOT / folder / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            siblings = {f"{one.replace('/', '.')}.{other}" for one in FOLDERS for other in MODULES}
            siblings -= {f"{one.replace('/', '.')}.{module}" for one in FOLDERS}
            assert node.module not in siblings
            assert node.module not in {one.replace("/", ".") for one in FOLDERS}


@pytest.mark.parametrize("module", MODULES)
def test_a_plan_is_explained_under_the_same_headings(module):
    text = (ROOT / FOLDERS[0] / f"{module}.py").read_text().split('"""')[1]
    found = re.findall(r"^\*\*(\w+)\.\*\*", text, re.M)
    wanted = ["Problem", "Schedule", "Sensitivity", "Proof", "Errata"]
    assert found == [heading for heading in wanted if heading in found]
    assert {"Problem", "Schedule", "Sensitivity"} <= set(found)


@pytest.mark.parametrize("name", CATALOG)
def test_what_an_algorithm_takes_are_names_of_the_spec(name):
    entry = CATALOG[name]
    takes = entry.card()["takes"]
    assert set(takes["losses"]) <= {loss.name() for loss in LOSSES}
    assert bool(takes["losses"]) != entry.summarises
    assert set(takes["sets"]) <= set(ANY_SET) and takes["sets"]
    assert set(takes["models"]) <= {"linear", "relu_network"} and "linear" in takes["models"]
    assert set(takes["regularisers"]) <= {each.name() for each in REGULARISERS}
    for sets in entry.needs.regularisers.values():
        assert set(sets) <= set(entry.needs.sets)
    assert issubclass(entry.schedule, Schedule) and entry.examples


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_is_long(path):
    assert len(path.read_text().splitlines()) <= LINES_MAX
