"""The client against a service that runs: from a table to a model, on every way there is."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from epsilond import (
    ApiError,
    AsyncClient,
    Client,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateMean,
    PrivateMLP,
    PrivateQuantileRegression,
    PrivateSVM,
)
from tests.harness import job, numbers, numeric_schema, running

PAGE = Path(__file__).parents[2] / "docs" / "quickstart-python.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running("embedded", tmp_path_factory.mktemp("client")) as started:
        yield started


def visits(rows=2000):
    rng = np.random.default_rng(5)
    age, ward = rng.integers(0, 110, rows), rng.choice(["A", "B", "C"], rows)
    returned = (age + 20 * (ward == "C") + rng.normal(0, 10, rows) > 60).astype(int)
    return pandas.DataFrame({"age": age, "ward": ward, "returned": returned})


def test_the_quickstart_runs_as_it_is_printed(service, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = visits()
    frame.to_csv("visits.csv", index=False)
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(first.split("frame = ")[1].splitlines()) <= 10
    names = {"url": service.url, "owner_key": service.person("owner").key}
    exec(first + second, names)
    assert names["model"].score(frame, frame["returned"]) > 0.8
    assert names["dataset"].report["rows"] == 2000
    assert len(names["model"].certificate_.signature) == 128
    names["owner"].close()


def as_csv(frame, folder):
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def as_npz(frame, folder):
    np.savez(folder / "rows.npz", **{name: np.array(frame[name].tolist()) for name in frame})
    return str(folder / "rows.npz")


def as_parquet(frame, folder):
    frame.to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def as_feather(frame, folder):
    frame.to_feather(folder / "rows.feather")
    return folder / "rows.feather"


def as_gzipped(frame, folder):
    frame.to_csv(folder / "rows.csv.gz", index=False)
    return folder / "rows.csv.gz"


WAYS = {
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: polars.from_pandas(frame),
    "arrow": lambda frame, folder: pyarrow.Table.from_pandas(frame),
    "columns": lambda frame, folder: {name: frame[name].tolist() for name in frame},
    "csv": as_csv,
    "npz": as_npz,
    "parquet": as_parquet,
    "feather": as_feather,
    "csv.gz": as_gzipped,
}


SCHEMA = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 100},
        {"name": "rooms", "kind": "categorical", "categories": [1, 2, 3], "fill": "<other>"},
        {"name": "ward", "kind": "categorical", "categories": ["A", "B"]},
    ],
    "label": {"name": "returned", "kind": "binary", "positive": 1, "negative": 0},
}


def stored(service, dataset):
    """The bytes of the stored rows, in whatever order they were shuffled."""
    folder = service.folder / "data" / "datasets"
    arrays = {p.name: np.load(p) for p in sorted(folder.glob(f"{dataset}*/*.npy"))}
    assert len(arrays) >= 2
    together = np.column_stack([array.reshape(len(array), -1) for array in arrays.values()])
    return sorted(map(bytes, together.astype(np.float64)))


def test_a_table_is_stored_the_same_on_every_way_there(service, tmp_path):
    owner, found, reports = service.person("owner"), set(), []
    frame = visits(300)
    frame["rooms"] = np.where(frame["age"] % 7 == 0, np.nan, frame["age"] % 5)
    for way, made in WAYS.items():
        dataset = owner.upload(way, made(frame, tmp_path), schema=SCHEMA)
        found.add(tuple(stored(service, dataset.id)))
        reports.append(dataset.report)
    assert len(found) == 1
    assert all(report == reports[0] for report in reports)
    by_name = {column["name"]: column for column in reports[0]["columns"]}
    assert by_name["rooms"]["filled"] > 0 and by_name["ward"]["other"] > 0


def test_the_same_without_and_with_asyncio(service):
    scene = service.scene()
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset)).id)

    async def fit():
        async with AsyncClient(service.url, scene.analyst.key) as client:
            submitted = [await client.submit(job(scene.dataset)) for _ in range(3)]
            ended = await asyncio.gather(*(client.wait(one.id) for one in submitted))
            events = [one["data"].get("type") async for one in client.stream(ended[0].id)]
            return ended, events, await client.model(ended[0].id)

    ended, events, model = asyncio.run(fit())
    assert [one.state for one in ended] == ["succeeded"] * 3 and done.state == "succeeded"
    assert "succeeded" in events
    assert model.coef_.shape == scene.analyst.model(done.id).coef_.shape


def test_a_dataset_is_found_by_a_name_that_one_has(service):
    scene = service.scene()
    assert scene.analyst.find("numbers").id == scene.analyst.find(scene.dataset).id == scene.dataset
    with pytest.raises(LookupError, match="none that you may see"):
        scene.analyst.find("nobody's")
    other = service.scene()
    other.owner.grant(other.dataset, scene.analyst.id)
    with pytest.raises(LookupError, match=f"several have: .*{scene.dataset}.*give an id"):
        scene.analyst.find("numbers")


FITS = {
    "binary": (PrivateLogisticRegression, PrivateSVM, PrivateMLP, PrivateMean),
    "numeric": (PrivateLinearRegression, PrivateQuantileRegression, PrivateLasso),
}


@pytest.mark.parametrize("label", FITS)
def test_every_estimator_is_planned_and_fitted_as_it_comes(service, label):
    owner = service.person("owner")
    name = f"rows with a {label} label"
    path = numbers(service.folder, 20_000, 4, seed=1, label=label)
    schema = {**numeric_schema(4, label), "holdout": 0.2}
    dataset = owner.upload(name, path, schema=schema).id
    owner.set_budget(dataset, 20.0, 1e-6)
    x = np.load(path)["X"]
    for kind in FITS[label]:
        model = kind(owner, name, epsilon=2.0)
        assert model.quote().fits and model.compare().choice is not None
        model.fit()
        assert model.guarantee_["epsilon"] <= 2.0 and model.n_features_in_ == 4
        if kind is not PrivateMean:
            assert model.score(x, np.load(path)["y"]) > 0.3
    if label == "numeric":
        told = kind.from_model(model.model_, client=owner).evaluate(epsilon=1.0)
        assert told.rows == 4000 and told.data


def test_a_refusal_carries_the_problem(service):
    scene = service.scene(epsilon=0.1)
    with Client(service.url, scene.analyst.key) as client:
        model = PrivateLogisticRegression(client, scene.dataset, epsilon=50.0)
        assert not model.quote().fits
        with pytest.raises(ApiError) as refused:
            model.fit()
    problem = refused.value.problem
    assert problem["code"] == refused.value.code == "budget_exceeded"
    assert problem["remaining_units"] > 0
    assert not model.__sklearn_is_fitted__()
