"""Two services whose data differ in one record say the same: all but the privatised numbers.

The same story is told to both (worlds.py): every operation of openapi.yaml, refusals included. Status,
headers and bodies must agree, but for ids, digests, secrets and times, which have names by the order
in which they come. The test fails for an operation that the story leaves out."""

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

import service.jobs.publish
import service.jobs.view
import workers.execute
from service.jobs.card import Card, Released, Software
from tests.api.worlds import milliseconds, tell, world
from tests.jobs.harness import SOFTWARE

ROWS = 120
DOCUMENT = yaml.safe_load((Path(__file__).parents[2] / "openapi.yaml").read_text())
OPERATIONS = {(m, path) for path, methods in DOCUMENT["paths"].items() for m in methods}
WORST = {  # the record that is exchanged, in either world
    "its opposite": ("1,1,1,1", "-1,-1,-1,0"),
    "beyond the bounds": ("0.5,0.5,0.5,1", "-9e99,1e300,-5,0"),
}


def table(record):
    rows = np.random.default_rng(7).uniform(-1, 1, (ROWS, 3))
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{int(a > 0)}" for a, b, c in rows]
    lines[ROWS // 2] = record
    return "\n".join(["x0,x1,x2,y", *lines, ""]).encode()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    @cache
    def story(pair, side):
        with world(tmp_path_factory.mktemp("world")) as w:
            return tell(w, table(WORST[pair][side]))

    return story


def operation(answer):
    """As openapi.yaml names it."""
    method, url = answer.operation
    matching = [
        (m, path)
        for m, path in OPERATIONS
        if m == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), url)
    ]
    return min(matching, key=lambda one: one[1].count("{"))


def differences(one, other):
    """Where two stories part; none for neighbours."""
    assert len(one.answers) == len(other.answers)
    return [
        (operation(a), part, getattr(a, part), getattr(b, part))
        for a, b in zip(one.answers, other.answers, strict=True)
        for part in ("status", "headers", "body")
        if getattr(a, part) != getattr(b, part)
    ]


@pytest.mark.parametrize("pair", WORST)
def test_neighbours_are_answered_alike(told, pair):
    assert differences(told(pair, 0), told(pair, 1)) == []


def test_the_story_has_every_operation_as_it_should_be_and_refused(told):
    answers = told("its opposite", 0).answers
    assert {operation(a) for a in answers} == OPERATIONS
    assert {operation(a) for a in answers if a.status < 400} == OPERATIONS
    assert {a.status for a in answers} >= {200, 201, 202, 204, 401, 403, 404, 409, 422}
    bodies = [a.body for a in answers if isinstance(a.body, dict)]
    states = {body["state"] for body in bodies if body.get("object") == "job"}
    assert {"queued", "succeeded", "cancelled"} <= states and "failed" not in states


def test_only_the_owner_is_told_what_ingestion_did_to_the_rows(told):
    """Exact counts; everybody else's answers were compared, and have no report either."""
    one, other = (told("beyond the bounds", side).answers for side in (0, 1))
    reported = [a for a in one if '"report":' in a.raw]
    assert {a.who for a in reported} == {"owner"} and len(reported) == 3
    counts = [re.findall(r'"clipped":\d+', answer.raw) for answer in reported]
    neighbours = [a for a in other if '"report":' in a.raw]
    assert counts != [re.findall(r'"clipped":\d+', answer.raw) for answer in neighbours]


def test_every_time_is_in_whole_seconds(told):
    answers = told("its opposite", 0).answers
    assert [(operation(a), milliseconds(a)) for a in answers if milliseconds(a)] == []
    timed = {operation(a)[1] for a in answers if "a time" in str(a.body)}
    assert timed >= {
        *("/v1/events", "/v1/jobs/{job_id}/events", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/audit"),
        *("/v1/datasets/{dataset_id}/ledger", "/v1/datasets/{dataset_id}/ledger.csv"),
        *("/v1/datasets/{dataset_id}/audit", "/v1/keys", "/v1/principals"),
    }


# --- Mutants ---

FINER = (
    *('"2026-01-01T00:00:00.123Z"', '"2026-01-01T00:00:00.123456+00:00"', "2026-01-01 10:00:01"),
    *("2026-01-01T00:00Z", "Wed, 18 Nov 2026 17:00:53.5 GMT"),
)


@pytest.mark.parametrize("text", FINER)
def test_a_time_that_is_finer_is_seen(text):
    assert milliseconds(SimpleNamespace(raw=text, body=text))


@pytest.mark.parametrize(
    "body", [{"started_ms": 5}, {"took_seconds": 0.25}, {"n": [1.7e9]}, {"created_at": 1.5e9}]
)
def test_a_number_that_is_a_time_is_seen(body, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1.7e9)
    assert milliseconds(SimpleNamespace(raw="", body=body))


def mutant_card(monkeypatch, count):
    """An exact statistic where the card has room for a word."""
    honest = service.jobs.publish.model_card

    def card(*args):
        made = honest(*args)
        return made | {"feature_names_in_": [*made["feature_names_in_"], str(count())]}

    monkeypatch.setattr(service.jobs.publish, "model_card", card)


def mutant_record(monkeypatch, count):
    """One among the names of software in the audit record."""
    monkeypatch.setattr(
        workers.execute, "software", lambda: SOFTWARE.model_copy(update={"cpu": f"{count()}"})
    )


def mutant_progress(monkeypatch, count):
    """Steps that depend on the data."""
    honest = service.jobs.publish.transition

    def transition(connection, job, move, steps, **values):
        honest(connection, job, move, steps=steps - count() % 2, **values)

    monkeypatch.setattr(service.jobs.publish, "transition", transition)


def mutant_time(monkeypatch, count):
    """Not the data's, but an exact clock: caught whatever the data are."""

    def iso(ms):
        return ms and f"2026-01-01T00:00:00.{ms % 1000:03}Z"

    monkeypatch.setattr(service.jobs.view, "iso", iso)


@pytest.mark.parametrize("mutant", [mutant_card, mutant_record, mutant_progress, mutant_time])
def test_a_mutant_that_tells_of_a_record_is_seen(mutant, tmp_path, monkeypatch):
    opened, seen = workers.execute.open_arrays, []

    def remembering(folder):
        x, y = opened(folder)
        seen.append(int((y > 0).sum()))
        return x, y

    monkeypatch.setattr(workers.execute, "open_arrays", remembering)
    mutant(monkeypatch, lambda: seen[-1])
    stories = []
    for side in (0, 1):
        (tmp_path / str(side)).mkdir()
        with world(tmp_path / str(side)) as w:
            stories.append(tell(w, table(WORST["its opposite"][side])))
    if mutant is mutant_time:
        assert any(milliseconds(answer) for answer in stories[0].answers)
    else:
        assert differences(*stories) != []


# --- The shapes that leave a worker ---


@pytest.mark.parametrize(
    "more", [{"rows_positive": 61}, {"loss_on_data": 0.3}, {"mean_label": 0.1}, {"note": ""}]
)
@pytest.mark.parametrize("shape", [Released, Software, Card])
def test_no_shape_that_leaves_a_worker_takes_a_field_more(shape, more, told):
    whole = {
        Released: {"vector": (0.0, 1.0)},
        Software: SOFTWARE.model_dump(),
        Card: card_of(told),
    }[shape]
    shape.model_validate(whole, strict=False)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        shape.model_validate(whole | more, strict=False)


def card_of(told):
    """One that was answered, with numbers where released ones stood."""
    answers = told("its opposite", 0).answers
    card = next(a.body for a in answers if operation(a)[1].endswith("/model") and a.status == 200)
    return card | {"coef_": [0.0] * 3, "intercept_": 0.0}


@pytest.mark.parametrize(
    "vector", [(np.nan, 0.0), (np.inf,), ("1",), (None,), (b"x",), ((0.0, 1.0),), (True,)]
)
def test_what_is_released_is_finite_numbers(vector):
    with pytest.raises(ValidationError):
        Released(vector=vector)
