"""Losses, sets and regularisers: one list each, and all else is derived from it."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

import service.planning
import workers.losses
from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.loss import ALL_LABELS
from service.planning.losses import LOSSES, Loss, fitting
from service.planning.problem import problem
from service.planning.regularisers import REGULARISERS, Regulariser
from service.planning.sets import SETS, FeasibleSet
from service.planning.sets.lp_ball import LpBall
from service.planning.sets.polytope import Polytope
from service.planning.spec import Facts
from service.planning.vectors import norm
from tests.planning.cases import facts, spec

FOLDER = Path(service.planning.__file__).parent
LISTS = {
    "losses": (LOSSES, Loss),
    "sets": (SETS, FeasibleSet),
    "regularisers": (REGULARISERS, Regulariser),
}


def files(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("folder", LISTS)
def test_the_list_names_every_file_of_its_folder_and_no_other(folder):
    kinds, _ = LISTS[folder]
    assert sorted(kind.name() for kind in kinds) == files(FOLDER / folder)
    for kind in kinds:
        assert kind.__module__ == f"service.planning.{folder}.{kind.name()}"


def test_every_loss_has_a_kernel_of_its_name_and_no_other_has():
    assert files(Path(workers.losses.__file__).parent) == sorted(loss.name() for loss in LOSSES)


@pytest.mark.parametrize("folder", LISTS)
def test_a_job_may_name_what_is_listed_and_nothing_else(folder):
    kinds, annotated = LISTS[folder]
    adapter = TypeAdapter(annotated)
    names = {
        option["properties"]["kind"]["const"] for option in adapter.json_schema()["$defs"].values()
    }
    assert names == {kind.name() for kind in kinds}
    with pytest.raises(ValidationError):
        adapter.validate_python({"kind": "base"})


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name())
@pytest.mark.parametrize("label", sorted(ALL_LABELS))
def test_a_loss_is_taken_with_the_labels_that_it_says_it_fits(loss, label):
    about = facts().model_dump() | {
        "label": label,
        "classes": 3 if label == "categorical" else None,
    }
    about, job = Facts.model_validate(about), spec("gradient-descent", loss=loss().model_dump())
    if label in loss.labels:
        assert problem(job, about).n == about.rows
        assert loss.name() in fitting(label)
    else:
        with pytest.raises(PlanRefused, match="these do: " + ", ".join(fitting(label))):
            problem(job, about)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name())
def test_what_a_loss_says_of_itself_is_what_a_problem_says_of_it(loss):
    about = facts()
    if "binary" not in loss.labels:
        about = Facts.model_validate(about.model_dump() | {"label": "categorical", "classes": 3})
    found = problem(spec("gradient-descent", loss=loss().model_dump()), about)
    assert loss().smooth == found.is_smooth
    assert loss().convex == (found.weak == 0)
    assert loss().weakly_convex == np.isfinite(found.weak)
    if not loss.margin:
        with pytest.raises(TypeError, match="not a loss of one margin"):
            loss().scalar()


EXAMPLES = {"polytope": {"vertices": [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [-1.0, 2.0, 0.5]]}}
FEASIBLE = [kind(**EXAMPLES.get(kind.name(), {})) for kind in SETS]
FAR = np.random.default_rng(1).normal(size=(20, 3)) * 30
each_set = pytest.mark.parametrize("feasible", FEASIBLE, ids=lambda feasible: feasible.kind)


@each_set
def test_a_set_projects_as_it_says(feasible):
    assert np.isfinite(feasible.l2_radius(3)) == feasible.bounded
    if not feasible.has_projection:
        with pytest.raises(TypeError, match="no projection"):
            feasible.project(FAR[0])
        return
    for z in FAR:
        w = feasible.project(z)
        assert np.linalg.norm(w) <= feasible.l2_radius(3) * (1 + 1e-12)
        assert feasible.project(w) == pytest.approx(w, abs=1e-12)
        assert z @ w >= feasible.least(z) - 1e-9
        assert not feasible.radial or np.cross(w, z) == pytest.approx(np.zeros(3), abs=1e-9)
        assert not feasible.separable or w[:1] == pytest.approx(feasible.project(z[:1]))
        assert not feasible.nonnegative or w.min() >= 0
        assert np.abs(w).sum() <= (feasible.l1_norm or np.inf) * (1 + 1e-12)
        assert not feasible.symmetric or (w * z >= 0).all()
        flipped = feasible.project(np.array([-1.0, 1.0, 1.0]) * z)
        assert not feasible.symmetric or flipped == pytest.approx(w * [-1, 1, 1], abs=1e-12)


@pytest.mark.parametrize("p", [1.0001, 1.01, 1.3, 1.7, 2.0])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e9, 1e100])
def test_the_projection_on_an_lp_ball_leaves_a_right_angle(p, scale):
    """No point of the ball lies further along z - w than w does, to the float's last bits or
    nearly."""
    ball = LpBall(p=p, radius=0.5)
    for z in np.random.default_rng(2).normal(size=(4, 9)) * scale:
        w = ball.project(z)
        away = (z - w) / np.linalg.norm(z - w)
        assert norm(w, p) == pytest.approx(0.5, rel=1e-12)
        assert away @ ball.lowest(-away) - away @ w <= 1e-11 + 1e-15 / (p - 1) ** 2
    assert ball.project(np.array([0.0, -3.0, 0.0])) == pytest.approx([0.0, -0.5, 0.0])
    assert ball.project(np.array([0.1, -0.1])).tolist() == [0.1, -0.1]


@each_set
def test_a_set_minimises_linear_functions_as_it_says(feasible):
    if not feasible.has_lowest:
        with pytest.raises(TypeError, match="no such point"):
            feasible.lowest(FAR[0])
        return
    start, widest = feasible.start(3), 0.0
    for z in FAR:
        v = feasible.lowest(z)
        assert z @ v == pytest.approx(feasible.least(z)) and z @ v <= z @ start
        if feasible.has_projection:
            assert feasible.project(v) == pytest.approx(v) == feasible.project(v)
            assert feasible.project(start) == pytest.approx(start)
        widest = max(widest, norm(v - feasible.lowest(-z), feasible.exponent))
    assert widest <= feasible.diameter(3) * (1 + 1e-9) <= 1.5 * widest
    for bad in (np.zeros(3), np.array([np.inf, 1.0, 0.0]), np.full(3, np.nan)):
        assert np.isfinite(feasible.lowest(bad)).all()


def test_the_widest_pair_of_many_vertices_is_bounded_by_the_distance_from_their_middle():
    many = Polytope(vertices=[tuple(v) for v in np.random.default_rng(3).normal(size=(2000, 3))])
    points = np.array(many.vertices)
    farthest = max(np.linalg.norm(points - v, axis=1).max() for v in points)
    assert farthest <= many.diameter(3) <= 1.5 * farthest


@each_set
def test_a_set_has_the_vertices_that_it_says(feasible):
    if not feasible.has_vertices:
        with pytest.raises(TypeError, match="no list of vertices"):
            feasible.corners(3, 1.0)
        return
    corners = feasible.corners(3, 1.0)
    count = corners.scores(np.zeros(3), np.zeros(3, dtype=np.int64)).size
    vertices = np.array([corners.vertex(i) for i in range(count)])
    for z in FAR:
        assert (vertices @ z).min() == pytest.approx(feasible.least(z))


def test_a_regulariser_is_refused_over_a_set_that_does_not_suit_it():
    lasso = {"kind": "group_lasso", "strength": 0.1, "groups": [1]}
    job = spec("proximal-sgd", regulariser=lasso, set="box")
    with pytest.raises(PlanRefused, match="it runs over: all, l2_ball;"):
        plan(job, facts())
