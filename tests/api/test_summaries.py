"""Summaries over HTTP, on both engines: priced, published and audited like any other job."""

import csv
import secrets

import numpy as np
import pytest

from epsilond import ApiError

N = 4000
CITIES = ["Oslo", "Bergen", "<other>"]


def schema(bounded):
    pay = {"name": "pay", "kind": "unbounded", "scale": 1000.0}
    return {
        "columns": [
            {"name": "age", "kind": "numeric", "lower": 0, "upper": 100},
            {"name": "city", "kind": "categorical", "categories": CITIES[:2]},
            {"name": "size", "kind": "numeric", "lower": 0, "upper": 999, "log1p": True},
            *([] if bounded else [pay]),
        ],
        "label": {"name": "sick", "kind": "binary", "positive": "yes", "negative": "no"},
    }


def rows(seed):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(0, 101, N),
        "city": rng.choice([*CITIES[:2], "Rome"], N, p=[0.5, 0.3, 0.2]),
        "size": rng.integers(0, 1000, N),
        "pay": rng.normal(3000, 500, N).round(2),
        "sick": rng.choice(["yes", "no"], N, p=[0.1, 0.9]),
    }


@pytest.fixture(scope="module", params=[True, False], ids=["bounded", "unbounded"])
def scene(service, request):
    owner, data = service.person("owner"), rows(secrets.randbits(32))
    if request.param:
        del data["pay"]
    dataset = owner.declare_dataset("people", schema(request.param))["id"]
    path = service.folder / f"people-{secrets.token_hex(4)}.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(data), *zip(*data.values(), strict=True)])
    owner.upload(dataset, path)
    owner.set_budget(dataset, 50.0, 1e-6)
    return owner, dataset, data


def ask(dataset, *summaries, epsilon=4.0, **more):
    return {
        "dataset": dataset,
        "algorithm": "column-summaries",
        "summaries": summaries,
        "privacy": {"epsilon": epsilon},
        **more,
    }


def told(owner, spec):
    quote, before = owner.quote(spec), owner.budget(spec["dataset"])
    done = owner.wait(owner.submit(spec)["id"])
    assert done["state"] == "succeeded" and done["plan_digest"] == quote["plan_digest"]
    spent = owner.budget(spec["dataset"])["units_spent"] - before["units_spent"]
    assert spent == quote["plan"]["price"]["units"] > 0
    view = owner.summary(done["id"])
    assert view["rows"] == N and view["plan_digest"] == quote["plan_digest"]
    assert owner.model(done["id"]).summaries == view["data"]
    assert owner.verify(spec["dataset"])["verified"]
    return view["data"]


def near(cells, wanted):
    """Within the noise of each count; intervals hold the value, and shares are counts over rows."""
    assert sum(cell["count"] for cell in cells) == pytest.approx(N)
    for cell, count in zip(cells, wanted, strict=True):
        assert abs(cell["count"] - count) < 40
        assert 0 <= cell["low"] <= cell["value"] <= cell["high"] <= 1
        assert cell["value"] == pytest.approx(max(cell["count"], 0) / N)


def test_counts_by_category_and_of_the_label_are_those_of_the_file(scene):
    owner, dataset, data = scene
    label, city, both = told(
        owner,
        ask(
            dataset,
            "counts",
            {"kind": "counts", "column": "city"},
            {"kind": "counts", "column": "city", "by": "sick"},
        ),
    )
    assert (label["column"], city["column"], both["by"]) == ("sick", "city", "sick")
    assert [cell["name"] for cell in label["cells"]] == ["no", "yes"]
    assert [cell["name"] for cell in city["cells"]] == CITIES
    counted = [(data["city"] == name).sum() for name in ("Oslo", "Bergen", "Rome")]
    near(label["cells"], [(data["sick"] == "no").sum(), (data["sick"] == "yes").sum()])
    near(city["cells"], counted)
    assert [(c["by"], c["name"]) for c in both["cells"]] == [
        (sick, name) for sick in ("no", "yes") for name in CITIES
    ]


def test_a_histogram_is_on_the_declared_range_in_the_owners_units(scene):
    owner, dataset, data = scene
    ages, sizes = told(
        owner,
        ask(
            dataset,
            {"kind": "histogram", "column": "age", "bins": 4},
            {"kind": "histogram", "column": "size", "bins": 3},
        ),
    )
    assert [(c["lower"], c["upper"]) for c in ages["cells"]] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 100),
    ]
    near(ages["cells"], np.histogram(data["age"], bins=4, range=(0, 100))[0])
    edges = [sizes["cells"][0]["lower"], *(c["upper"] for c in sizes["cells"])]
    assert edges == pytest.approx([0, 9, 99, 999])
    near(sizes["cells"], np.histogram(data["size"], bins=[0, 9, 99, 1000])[0])


def test_a_column_without_bounds_is_counted_on_a_range_that_is_given(scene):
    owner, dataset, data = scene
    asked = {"kind": "histogram", "column": "pay", "lower": 2000, "upper": 4000, "bins": 2}
    if "pay" not in data:
        with pytest.raises(ApiError, match="no column in use is called 'pay'"):
            owner.quote(ask(dataset, asked))
        return
    (found,) = told(owner, ask(dataset, asked))
    cells = found["cells"]
    assert [(c["lower"], c["upper"]) for c in cells] == [
        (None, 2000),
        (2000, 3000),
        (3000, 4000),
        (4000, None),
    ]
    near(cells, np.histogram(data["pay"], bins=[-1e9, 2000, 3000, 4000, 1e9])[0])


def within(estimate, truth):
    assert estimate["low"] <= estimate["value"] <= estimate["high"]
    assert estimate["low"] <= truth <= estimate["high"]


def test_quantiles_and_means_are_in_the_owners_units(scene):
    """The whole file's, which an interval for the population holds all the more."""
    owner, dataset, data = scene
    quantiles, mean, size, pairs = told(
        owner,
        ask(
            dataset,
            {"kind": "quantiles", "column": "age", "probabilities": [0.1, 0.5]},
            {"kind": "mean", "column": "age"},
            {"kind": "mean", "column": "size"},
            {"kind": "correlations", "columns": ["age", "size", "sick"]},
            epsilon=10.0,
        ),
    )
    assert [q["probability"] for q in quantiles["quantiles"]] == [0.1, 0.5]
    for found in quantiles["quantiles"]:
        within(found, np.quantile(data["age"], found["probability"]))
        assert found["high"] - found["low"] < 8
    within(mean["mean"], data["age"].mean())
    within(mean["variance"], data["age"].var())
    assert (mean["lower"], mean["upper"], mean["clip"]) == (0, 100, "declared")
    logs = np.log1p(data["size"])
    within(size["mean"], logs.mean())
    within(size["variance"], logs.var())
    found = {(one["first"], one["second"]): one for one in pairs["pairs"]}
    assert list(found) == [("age", "size"), ("age", "sick"), ("size", "sick")]
    within(found["age", "size"], np.corrcoef(data["age"], logs)[0, 1])
    assert size["log1p"] and size["upper"] == pytest.approx(np.log(1000))


def test_bounds_are_suggested_and_a_mean_needs_none(scene):
    owner, dataset, data = scene
    if "pay" not in data:
        (found,) = told(owner, ask(dataset, {"kind": "bounds", "column": "age"}))
        assert found["lower"] <= 5 and found["upper"] >= 95 and found["inside"]["high"] > 0.98
        return
    bounds, private, given, moment = told(
        owner,
        ask(
            dataset,
            {"kind": "bounds", "column": "pay"},
            {"kind": "mean", "column": "pay"},
            {"kind": "mean", "column": "pay", "lower": 2000, "upper": 4000},
            {"kind": "mean", "column": "pay", "moment": 4, "moment_bound": 3300},
            epsilon=10.0,
        ),
    )
    pay = data["pay"]
    assert (bounds["lower"], bounds["upper"]) in ((1000, 4000), (2000, 4000), (1000, 8000))
    share = ((pay >= bounds["lower"]) & (pay < bounds["upper"])).mean()
    assert abs(bounds["inside"]["value"] - share) < 0.02  # its interval, near 1, is of noise alone
    clips = {"private": private, "given": given, "moment": moment}
    for clip, found in clips.items():
        within(found["mean"], np.clip(pay, found["lower"], found["upper"]).mean())
        assert found["clip"] == clip and (found["bias"] > 0) == (clip == "moment")
    assert moment["lower"] == -moment["upper"] and moment["upper"] > 3300


def test_a_summary_is_no_model_and_a_model_no_summary(scene):
    owner, dataset, _ = scene
    done = owner.wait(owner.submit(ask(dataset, "counts", epsilon=0.5, algorithm="auto"))["id"])
    assert done["choice"]["algorithm"] == "column-summaries"
    model = owner.model(done["id"])
    assert model.card["object"] == "summary" and model.card["loss"] is None
    with pytest.raises(TypeError, match="it predicts nothing"):
        model.predict([{}])
    fit = {"dataset": dataset, "algorithm": "gradient-descent", "loss": "logistic"}
    fit |= {"privacy": {"epsilon": 0.5}, "parameters": {"clip": 1.0}}
    fitted = owner.wait(owner.submit(fit)["id"])["id"]
    with pytest.raises(ApiError, match="this job fitted a model"):
        owner.summary(fitted)


def test_summaries_are_quoted_in_a_batch_and_refused_in_words(scene):
    owner, dataset, _ = scene
    batch = owner.quote_batch(
        [ask(dataset, "counts"), ask(dataset, {"kind": "counts", "column": "age"})]
    )
    assert batch["data"][0]["fits"] and "ask a histogram" in batch["data"][1]["refusal"]
