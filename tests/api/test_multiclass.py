"""From HTTP to a model of several classes, and to a robust centre; on both engines."""

import secrets

import numpy as np
import pytest

from epsilond import ApiError
from tests.harness import job

NAMES = ["red", "green", "blue"]
CENTRES = np.array([[-0.6, -0.5], [0.6, -0.5], [0.0, 0.7]])
LABEL = {"name": "colour", "kind": "categorical", "classes": NAMES}


def schema(kind):
    bounds = {"lower": -1.0, "upper": 1.0} if kind == "numeric" else {}
    columns = [{"name": c, "kind": kind, **bounds} for c in "uv"]
    return {"columns": columns, "label": LABEL, "holdout": 0}


def blobs(rows, seed):
    rng = np.random.default_rng(seed)
    k = rng.integers(3, size=rows)
    return np.clip(CENTRES[k] + 0.15 * rng.normal(size=(rows, 2)), -1, 1), np.array(NAMES)[k]


def upload(service, owner, kind, points, colours):
    dataset = owner.declare_dataset("points", schema(kind))["id"]
    path = service.folder / f"points-{secrets.token_hex(4)}.npz"
    np.savez(path, u=points[:, 0], v=points[:, 1], colour=colours)
    return owner.upload(dataset, path)["id"]


def ready(service, kind, points, colours, delta=1e-6):
    """An owner's dataset with a budget; the owner is the analyst too."""
    owner = service.person("owner")
    dataset = upload(service, owner, kind, points, colours)
    owner.set_budget(dataset, 30.0, delta)
    return owner, dataset


def fitted(owner, dataset, epsilon, **changes):
    done = owner.wait(owner.submit(job(dataset, epsilon, **changes))["id"])
    assert done["state"] == "succeeded"
    return owner.model(done["id"])


@pytest.mark.parametrize("delta", [1e-6, 0.0], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("kind", ["numeric", "unbounded"])
def test_softmax_separates_three_blobs(service, kind, delta):
    owner, dataset = ready(service, kind, *blobs(6000, seed=1), delta)
    clip = {"clip": 1.0} if kind == "unbounded" else {}
    model = fitted(
        owner, dataset, 8.0, loss="softmax", set={"radius": 50}, parameters={"steps": 150, **clip}
    )
    assert model.classes_ == NAMES and model.feature_names_in_ == ["u", "v"]
    assert model.coef_.shape == (3, 2) and len(model.intercept_) == 3
    points, colours = blobs(1000, seed=2)
    rows = [{"u": u, "v": v} for u, v in points]
    assert model.decision_function(rows).shape == (1000, 3)
    assert np.mean(np.array(model.predict(rows)) == colours) > 0.95


@pytest.mark.parametrize("kind", ["numeric", "unbounded"])
def test_a_geometric_median_ignores_a_tenth_of_outliers(service, kind):
    rng = np.random.default_rng(3)
    points = np.clip([0.3, -0.2] + 0.1 * rng.normal(size=(5000, 2)), -1, 1)
    points[:500] = [1.0, 1.0]  # the edge of the domain: they move the mean by (0.07, 0.12)
    owner, dataset = ready(service, kind, points, rng.choice(NAMES, 5000))
    model = fitted(
        owner,
        dataset,
        8.0,
        loss="geometric_median",
        set={"radius": 1 if kind == "numeric" else 2},
        parameters={"steps": 500},
    )
    assert model.location == pytest.approx([0.3, -0.2], abs=0.05)
    assert model.classes_ is None and model.card["coef_"] is None
    with pytest.raises(TypeError, match="see location"):
        model.predict([{"u": 0, "v": 0}])


@pytest.fixture(scope="module")
def few(service):
    return ready(service, "numeric", *blobs(50, seed=4))


@pytest.mark.parametrize("loss", ["logistic", "squared", "hinge"])
def test_a_loss_of_one_margin_on_several_classes_is_refused_with_what_works(few, loss):
    owner, dataset = few
    with pytest.raises(ApiError) as refusal:
        owner.quote(job(dataset, loss=loss))
    assert refusal.value.code == "plan_refused"
    assert "these do: geometric_median, softmax." in refusal.value.problem["detail"]
    for fitting in ("geometric_median", "softmax"):
        assert owner.quote(job(dataset, loss=fitting))["fits"]


def test_softmax_on_a_binary_label_is_refused_with_what_works(service):
    scene = service.scene()
    with pytest.raises(ApiError) as refusal:
        scene.analyst.quote(job(scene.dataset, loss="softmax"))
    detail = refusal.value.problem["detail"]
    assert refusal.value.code == "plan_refused" and "binary label" in detail
    for fitting in detail.split("these do: ")[1].rstrip(".").split(", "):
        assert scene.analyst.quote(job(scene.dataset, algorithm="auto", loss=fitting))["fits"]


def test_softmax_over_unbounded_columns_gets_a_private_clip_unless_one_is_given(service):
    owner, dataset = ready(service, "unbounded", *blobs(50, seed=5))
    for clip, chosen in ({}, True), ({"clip": 1.0}, False):
        asked = job(dataset, 1.0, loss="softmax", parameters={"steps": 3, **clip})
        made = owner.quote(asked)["plan"]
        assert (made.get("private_clip") is not None) == chosen


@pytest.mark.parametrize(
    ("colour", "says"), [("mauve", "none of the classes: 'mauve'"), ("", "the label is missing")]
)
def test_a_label_outside_the_classes_refuses_the_file(service, colour, says):
    points, colours = blobs(20, seed=6)
    colours = colours.tolist()
    colours[7] = colour
    with pytest.raises(ApiError) as refusal:
        upload(service, service.person("owner"), "numeric", points, np.array(colours))
    problem = refusal.value.problem
    assert (problem["row"], problem["column"]) == (8, "colour") and says in problem["detail"]


@pytest.mark.parametrize("classes", [["red"], ["red", "red"], [], "red"])
def test_classes_that_are_no_choice_are_refused(service, classes):
    with pytest.raises(ApiError) as refusal:
        service.person("owner").declare_dataset(
            "x", schema("numeric") | {"label": LABEL | {"classes": classes}}
        )
    assert refusal.value.status == 422
