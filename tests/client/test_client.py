"""The client against a stand-in for the service: what it sends again, how it waits, what it shows."""

import asyncio
import io
import json
import pickle
from types import SimpleNamespace

import httpx
import pandas
import pytest

from epsilond import ApiError, AsyncClient, Client, UploadError, draft_schema
from epsilond.html import as_html, as_table
from epsilond.http import MEDIA_TYPES
from epsilond.progress import Watch
from epsilond.results import Dataset, Job, Quote
from service.datasets.formats import FORMATS


def view(state, done=0, total=4):
    progress = {"steps_done": done, "steps_total": total}
    return {"object": "job", "id": "job_1", "state": state, "progress": progress}


class Stub:
    """Answers in turn, the last again and again: what is called is, and what it raises is raised."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []

    def __call__(self, request):
        request.read()
        self.seen.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer() if callable(answer) else httpx.Response(200, json=answer)


@pytest.fixture(params=["sync", "async"])
def ask(request, monkeypatch):
    """ask(stub, method, *arguments) with either client; `ask.pauses` are the pauses it made."""
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr("epsilond.client.sleep", pauses.append)
    monkeypatch.setattr("epsilond.sync_http.sleep", pauses.append)
    monkeypatch.setattr("epsilond.aio.sleep", pause)
    monkeypatch.setattr("epsilond.aio_http.sleep", pause)

    def ask(stub, method, *arguments, retries=4, **named):
        if request.param == "sync":
            client = Client("http://stub", "key", retries=retries)
            client._http = httpx.Client(base_url="http://stub", transport=httpx.MockTransport(stub))
            return getattr(client, method)(*arguments, **named)

        async def run():
            client = AsyncClient("http://stub", "key", retries=retries)

            async def answer(request):
                await request.aread()
                return stub(request)

            transport = httpx.MockTransport(answer)
            client._http = httpx.AsyncClient(base_url="http://stub", transport=transport)
            async with client:
                return await getattr(client, method)(*arguments, **named)

        return asyncio.run(run())

    ask.pauses = pauses
    return ask


def problem(status, code="unavailable", **headers):
    body = {"status": status, "code": code, "detail": "try later"}
    return lambda: httpx.Response(status, json=body, headers=headers)


def failing(error):
    def fail():
        raise error

    return fail


BUSY = problem(503, **{"Retry-After": "3"})
FULL = problem(429, "too_many_requests", **{"Retry-After": "2"})
UNREACHED, CUT = failing(httpx.ConnectError("refused")), failing(httpx.ReadError("cut"))


@pytest.mark.parametrize(("failure", "least"), [(BUSY, 3), (FULL, 2), (UNREACHED, 0.1), (CUT, 0.1)])
def test_a_post_is_sent_again_under_the_same_key(ask, failure, least):
    stub = Stub(failure, failure, view("queued"))
    assert ask(stub, "submit", {"dataset": "ds_1"}).state == "queued"
    keys = {request.headers["idempotency-key"] for request in stub.seen}
    assert len(stub.seen) == 3 and len(keys) == 1 and len(ask.pauses) == 2
    assert all(pause >= least for pause in ask.pauses)


@pytest.mark.parametrize(("failure", "times"), [(BUSY, 1), (CUT, 1), (FULL, 5), (UNREACHED, 5)])
def test_a_put_is_sent_again_only_if_it_was_not_done(ask, failure, times):
    stub = Stub(failure)
    with pytest.raises((ApiError, httpx.TransportError)):
        ask(stub, "set_budget", "ds_1", 1.0, 1e-6)
    assert len(stub.seen) == times


def test_without_retries_nothing_is_sent_again(ask):
    stub = Stub(BUSY)
    with pytest.raises(ApiError, match="unavailable: try later") as refused:
        ask(stub, "submit", {}, retries=0)
    assert refused.value.problem["status"] == refused.value.status == 503
    assert len(stub.seen) == 1 and "idempotency-key" not in stub.seen[0].headers


def test_waiting_asks_to_be_told_of_changes(ask):
    def tagged(state, tag, done):
        headers = {"ETag": tag, "Preference-Applied": "wait=30"}
        return lambda: httpx.Response(200, json=view(state, done), headers=headers)

    def unchanged():
        return httpx.Response(304, headers={"ETag": '"b"', "Preference-Applied": "wait=30"})

    stub = Stub(
        tagged("queued", '"a"', 0),
        tagged("running", '"b"', 2),
        unchanged,
        tagged("failed", '"c"', 2),
    )
    changes = []
    assert ask(stub, "wait", "job_1", lambda job: changes.append(job.state)).state == "failed"
    assert changes == ["queued", "running", "failed"] and ask.pauses == []
    asked = [(r.headers.get("prefer"), r.headers.get("if-none-match")) for r in stub.seen]
    assert asked == [(None, None), *(("wait=30", tag) for tag in ('"a"', '"b"', '"b"'))]


def test_where_nobody_can_wait_it_pauses(ask):
    stub = Stub(view("queued"), view("running"), view("running"), view("succeeded"))
    ask(stub, "wait", "job_1")
    assert ask.pauses == [1.0, 1.0]


def test_lists_are_read_to_their_end(ask):
    def page(ids, more):
        return {"data": [{"id": i, "name": i} for i in ids], "has_more": more}

    stub = Stub(page(["a", "b"], True), page(["c"], False))
    assert [one.id for one in ask(stub, "datasets")] == ["a", "b", "c"]
    assert dict(stub.seen[1].url.params)["starting_after"] == "b"


SCHEMA = {
    "columns": [{"name": "x", "kind": "numeric", "lower": 0, "upper": 9}],
    "label": {"name": "y", "kind": "binary", "positive": 1, "negative": 0},
}
KEPT = {
    "columns": [{**SCHEMA["columns"][0], "fill": None, "log1p": False}],
    "label": {**SCHEMA["label"], "positive": "1", "negative": "0"},
    "l2": None,
    "linf": None,
    "compare_by": "value",
    "holdout": 0.2,
}
FRAME = pandas.DataFrame({"x": [1.5, None], "y": [0, 1]})


def begun(state="empty", schema=KEPT):
    taken = {"status": 409, "code": "name_taken", "detail": "", "id": "ds_1"}
    there = {"object": "dataset", "id": "ds_1", "state": state, "schema": schema}
    return lambda: httpx.Response(409, json=taken), there


def test_an_upload_that_broke_off_is_taken_up_again(ask):
    stub = Stub(*begun(), {"id": "ds_1", "report": {"columns": []}})
    assert ask(stub, "upload", "visits", FRAME, schema=SCHEMA).report == {"columns": []}
    put = stub.seen[-1]
    assert put.url.path == "/v1/datasets/ds_1/data"
    assert put.headers["content-type"] == "application/x-npz"
    assert int(put.headers["content-length"]) == len(put.content)


def test_another_schema_or_data_under_the_name_is_refused(ask):
    others = ({"columns": [{**KEPT["columns"][0], "upper": 10}]}, {"holdout": 0})
    for other in others:
        with pytest.raises(UploadError, match="datasets delete ds_1"):
            ask(Stub(*begun(schema=KEPT | other)), "upload", "visits", FRAME, schema=SCHEMA)
    with pytest.raises(ApiError, match="name_taken"):
        ask(Stub(*begun("ready")), "upload", "visits", FRAME, schema=SCHEMA)


@pytest.mark.parametrize(
    ("data", "schema", "says"),
    [
        (FRAME, draft_schema(FRAME, "y"), r"leaves open x.lower, x.upper, y.lower, y.upper"),
        (FRAME.rename(columns={"x": "z"}), SCHEMA, r'does not name z; declare them \{"name"'),
        (FRAME[["y"]], SCHEMA, "the table lacks x"),
        (FRAME.to_numpy(), SCHEMA, "give a file, a DataFrame"),
        ("rows.xls", SCHEMA, "rows.xls"),
    ],
)
def test_what_can_be_seen_here_is_refused_before_anything_is_declared(ask, data, schema, says):
    stub = Stub({})
    with pytest.raises((ValueError, TypeError, OSError), match=says):
        ask(stub, "upload", "visits", data, schema=schema)
    assert stub.seen == []


def test_a_draft_is_of_names_and_types_alone():
    frame = pandas.DataFrame({"age": [3], "ward": ["A"], "new": [True], "back": [False]})
    assert draft_schema(frame, "back") == {
        "columns": [
            {"name": "age", "kind": "numeric", "lower": None, "upper": None},
            {"name": "ward", "kind": "categorical", "categories": []},
            {"name": "new", "kind": "categorical", "categories": ["true", "false"]},
        ],
        "label": {"name": "back", "kind": "binary", "positive": "true", "negative": "false"},
    }


def test_the_formats_are_the_services():
    for one in FORMATS:
        assert dict.fromkeys(one.suffixes, one.media_types[0]).items() <= MEDIA_TYPES.items()


def test_no_key_is_written_into_a_pickle(monkeypatch):
    monkeypatch.setenv("EPSILOND_KEY", "of the environment")
    client = Client("http://elsewhere", "a secret")
    written = pickle.dumps(client)
    assert b"secret" not in written
    read = pickle.loads(written)
    assert (read.url, read._http.headers["authorization"]) == (
        "http://elsewhere",
        "Bearer of the environment",
    )


def test_a_bar_is_drawn_where_somebody_looks_and_only_there():
    screen = io.StringIO()
    with Watch(None, screen) as watch:
        watch.show(Job(view("running", 1)))
    assert screen.getvalue() == ""
    screen.isatty = lambda: True
    with Watch(None, screen) as watch:
        watch.show(Job(view("running", 2)))
        watch.show(Job(view("succeeded", 4)))
    assert screen.getvalue().startswith(
        "\r[" + "#" * 15 + "." * 15 + "] job_1 running, step 2 of 4\r"
    )
    assert "#" * 30 in screen.getvalue() and screen.getvalue().endswith("\n")


def test_a_notebook_gets_one_bar_that_moves(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=shown.append)
    pages = SimpleNamespace(HTML=str, display=lambda html, display_id: shown.append(html) or handle)
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", pages)
    shell = type("ZMQInteractiveShell", (), {})()
    watch = Watch(None, io.StringIO(), shell)
    for state in ("running", "<b>"):
        watch.show(Job(view(state, 1)))
    assert shown[0].startswith('<progress value="0.2500"') and "&lt;b&gt;" in shown[1]


HOSTILE = "<script>alert('x')</script>&\""


@pytest.mark.parametrize(
    "made",
    [
        lambda: as_html(HOSTILE, {HOSTILE: HOSTILE}),
        lambda: as_table([HOSTILE], [{HOSTILE: HOSTILE}]),
        lambda: Dataset(object="dataset", name=HOSTILE, id=HOSTILE)._repr_html_(),
        lambda: Dataset(report={"columns": [{"name": HOSTILE}]}, name=HOSTILE)._repr_html_(),
        lambda: Quote(refusal=HOSTILE, plan={"algorithm": HOSTILE})._repr_html_(),
    ],
)
def test_whatever_others_wrote_is_escaped(made):
    html = made()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_results_are_json_with_names():
    job = Job(view("queued"))
    assert job.state == job["state"] == json.loads(json.dumps(job))["state"] == "queued"
    with pytest.raises(AttributeError, match="no 'stat'; it has object, id, state"):
        _ = job.stat
