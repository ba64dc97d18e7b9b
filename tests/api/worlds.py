"""One story told to a service: every operation by whoever may and some who may not. What was answered
is kept, with names for what no two services share: ids, digests, secrets, times."""

import asyncio
import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from unittest.mock import patch

import httpx

import service.db
from service.api.auth import create_key, create_principal
from service.api.context import Context
from service.api.feed import Feed
from service.app import create_app
from service.config import Settings
from service.db import Database
from service.identity import check_identity
from tests.harness import fresh_database, job, numeric_schema
from workers.execute import execute_one

DROPPED = {"date", "etag", "x-request-id"}  # an ETag is a digest of the body, which is compared
RELEASED = {  # the privatised numbers of a card: their shape is compared
    *("coef_", "intercept_", "location", "network", "gradient", "gradient_norm"),
    *("projected_gradient_norm", "stationarity_gap", "gap_noise"),
}
TOLD = (  # of summaries and evaluations, whose bins follow a released model; public in other company
    *({"value", "low", "high"}, {"value", "low", "high", "count"}),
    *({"threshold", "recall"}, {"above", "up_to"}),
)
SECRET = re.compile(r"(?<![\w-])[\w-]{40,}(?![\w-])|\b[a-z]+_[0-9a-f]{24}\b|\b[0-9a-f]{32,128}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\"',\s]*|\w+, \d\d \w+ \d{4} [0-9:.]+ GMT")
WHOLE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\w+, \d\d \w+ \d{4} \d\d:\d\d:\d\d GMT")


@dataclass
class Answer:
    operation: tuple[str, str]
    status: int
    headers: dict[str, str]
    body: object
    raw: str
    who: str | None


@dataclass
class Story:
    """What one service answered."""

    answers: list[Answer] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def named(self, value, key=None):
        """The value with a name for each id, by the order in which they first came."""
        match value:
            case dict():
                told = set().union(*(words for words in TOLD if words <= value.keys()))
                return {
                    self.named(k): "a released number"
                    if k in told and isinstance(v, float)
                    else self.named(v, k)
                    for k, v in value.items()
                }
            case list():
                return [self.named(each, key) for each in value]
            case str() if key != "prefix":  # that one is of a secret
                return SECRET.sub(self._name, TIME.sub("a time", value))
            case float() if key in RELEASED:
                return "a released number"
        return "a secret or a time" if key == "prefix" or "seconds" in str(key) else value

    def _name(self, found):
        return self.names.setdefault(found[0], f"name {len(self.names)}")


class Counted:
    """Ids in the order in which things are made, so that lists of one millisecond have one order."""

    def __init__(self):
        self._numbers = count(1)

    def token_hex(self, size):
        return f"{next(self._numbers):0{2 * size}x}"


class World:
    def __init__(self, app, db, settings, runner):
        self.app, self.db, self.settings, self.runner = app, db, settings, runner
        self.story, self.ids, self.keys = Story(), {}, {}
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://epsilond")
        with db.write() as connection:
            for role in ("admin", "owner", "analyst", "auditor"):
                self.ids[role] = create_principal(connection, f"the {role}", role)
                self.keys[role] = create_key(connection, self.ids[role])[1]

    def ask(self, who, method, path, body=None, *, headers=None, content=None, stream=False):
        """An operation, by its path with names of ids in it."""
        url = path.format(**self.ids)
        headers = dict(headers or {})
        if who is not None:
            headers["Authorization"] = f"Bearer {self.keys[who]}"
        request = self.http.build_request(
            method, url, json=body, content=content, headers=headers, timeout=60
        )
        answer = self.runner.run(self.begun(request) if stream else self.http.send(request))
        self.keep(who, method, url, answer)
        return answer

    def keep(self, who, method, url, answer):
        media = answer.headers.get("content-type", "")
        body = answer.json() if "json" in media else answer.text
        kept = {k: v for k, v in answer.headers.items() if k not in DROPPED}
        if url.endswith(("/model", "/summary", "/evaluation")):
            kept.pop("content-length", None)  # of numbers that are written out
        if who == "owner" and isinstance(body, dict) and "report" in body:
            kept.pop("content-length")
            body["report"] = "for the owner alone"
        if "retry: " in answer.text:  # lines of a stream; each event's data is JSON
            lines = [line.partition("data: ") for line in answer.text.splitlines()]
            body = [json.loads(data) if sep else line for line, sep, data in lines]
        self.story.answers.append(
            Answer(
                (method.lower(), url.partition("?")[0]),
                answer.status_code,
                self.story.named(kept),
                self.story.named(body),
                answer.text + str(dict(answer.headers)),
                who,
            )
        )

    async def begun(self, request):
        """A stream's head and first part: what it has to say at once."""
        said, begun = [], asyncio.Event()
        feed = self.app.state.context.feed
        while feed._ready.is_set():  # it begins at the present when nobody has listened for a tick
            await asyncio.sleep(0.01)
        body = [{"type": "http.request", "body": b"", "more_body": False}]
        path, _, query = request.url.raw_path.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": path.decode(),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(k.lower(), v) for k, v in request.headers.raw],
            "server": ("epsilond", 80),
            "client": ("127.0.0.1", 1),
        }

        async def receive():
            if body:
                return body.pop()
            await asyncio.Event().wait()  # until the task is cancelled

        async def send(message):
            said.append(message)
            if message["type"] == "http.response.body":
                begun.set()

        task = asyncio.create_task(self.app(scope, receive, send))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return httpx.Response(
            said[0]["status"], headers=said[0]["headers"], content=said[1]["body"], request=request
        )

    def run_jobs(self):
        while execute_one(self.db, self.settings):
            pass


@contextmanager
def world(folder):
    """A service without its processes: a job runs when the story says so."""
    with fresh_database("sqlite", folder) as url:
        db, settings = Database(url, pool_size=4), Settings(data_dir=folder, database_url=url)
        check_identity(db, settings)
        app = create_app(settings)
        with asyncio.Runner() as runner, patch.object(service.db, "secrets", Counted()):

            async def start():
                feed = Feed(db, settings.keys, 10, 10)
                app.state.context = Context(settings=settings, db=db, hint=lambda: None, feed=feed)
                return feed, asyncio.create_task(feed.run())

            feed, task = runner.run(start())
            told = World(app, db, settings, runner)
            try:
                yield told
            finally:
                feed.end()
                task.cancel()
                runner.run(told.http.aclose())
                db.dispose()


def milliseconds(answer):
    """Times in an answer that are finer than a second."""
    found = [text for text in TIME.findall(answer.raw) if not WHOLE.fullmatch(text)]
    now = time.time()

    def look(value, key=""):
        if isinstance(value, dict):
            for k, v in value.items():
                look(v, str(k))
        elif isinstance(value, list):
            for each in value:
                look(each, key)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            near = [abs(value - now * unit) < 86_400 * unit for unit in (1, 1e3, 1e6, 1e9)]
            timed = key.endswith(("_ms", "_us", "_ns", "_at"))
            if timed or any(near) or ("second" in key and value != int(value)):
                found.append(f"{key}: {value}")

    look(answer.body)
    return found


def tell(w, rows):
    """Every operation of the API, over a dataset with these rows."""
    ask = w.ask
    ask(None, "GET", "/healthz")
    ask(None, "GET", "/readyz")
    ask(None, "GET", "/v1/audit/public-key")
    ask(None, "GET", "/v1/me")
    for who in ("admin", "owner", "analyst", "auditor"):
        ask(who, "GET", "/v1/me")
    begun = ask("owner", "GET", "/v1/events", stream=True)
    begin_id = re.search(r"id: ([0-9a-f]+)", begun.text)[1]
    access(w)
    owner_prepares(w, rows)
    analyst_asks(w)
    owner_manages(w)
    everyone_reads(w)
    since = {"Last-Event-ID": begin_id}
    for who in ("owner", "analyst"):
        ask(who, "GET", "/v1/events", headers=since, stream=True)
    ask("owner", "DELETE", "/v1/datasets/{dataset}")
    ask("owner", "DELETE", "/v1/datasets/{dataset}/data")
    ask("analyst", "POST", "/v1/jobs", job(w.ids["dataset"], 0.1))
    ask("owner", "GET", "/v1/datasets/{dataset}")
    return w.story


def access(w):
    ask = w.ask
    made = ask("admin", "POST", "/v1/principals", {"name": "another", "role": "analyst"})
    w.ids["other"] = made.json()["id"]
    ask("owner", "POST", "/v1/principals", {"name": "not mine to add", "role": "admin"})
    key = ask("admin", "POST", "/v1/keys", {"principal": w.ids["other"]}).json()
    w.ids["key"], w.keys["other"] = key["id"], key["key"]
    rotated = ask("other", "POST", "/v1/keys/{key}/rotate").json()
    w.ids["key"], w.keys["other"] = rotated["id"], rotated["key"]
    signed = ask(None, "POST", "/v1/session", {"key": w.keys["other"]})
    cookie, token = signed.headers["set-cookie"].partition(";")[0], signed.json()["csrf"]
    session = {"Cookie": cookie, "X-CSRF-Token": token}
    ask(None, "GET", "/v1/session", headers=session)
    ask(None, "DELETE", "/v1/session", headers=session)
    ask(None, "POST", "/v1/session", {"key": "no such key"})
    w.http.cookies.clear()
    ask("other", "GET", "/v1/keys")
    ask("admin", "GET", "/v1/principals")
    ask("other", "DELETE", "/v1/keys/{key}")
    ask("admin", "DELETE", "/v1/principals/{other}/keys")
    ask("other", "GET", "/v1/me")


def owner_prepares(w, rows):
    ask, schema = w.ask, numeric_schema(3, holdout=0.1)
    w.ids["dataset"] = ask(
        "owner", "POST", "/v1/datasets", {"name": "rows", "schema": schema}
    ).json()["id"]
    again = {"name": "rows", "schema": schema}
    ask("owner", "POST", "/v1/datasets", again)
    other = ask("owner", "POST", "/v1/datasets", again | {"name": "no rows"})
    w.ids["empty"] = other.json()["id"]
    ask("owner", "DELETE", "/v1/datasets/{empty}")
    at, media = "/v1/datasets/{dataset}", {"Content-Type": "text/csv"}
    ask("owner", "GET", at)
    ask("owner", "PUT", f"{at}/data", content=b"x0,x1,y\n1,2,3\n", headers=media)
    ask("analyst", "PUT", f"{at}/data", content=rows, headers=media)
    ask("owner", "PUT", f"{at}/data?dry_run=true", content=rows, headers=media)
    ask("owner", "PUT", f"{at}/data?refuse_above=1", content=b"", headers=media)
    ask("owner", "PUT", f"{at}/data", content=rows, headers=media)
    ask("owner", "PUT", f"{at}/data", content=rows, headers=media)  # a second time
    ask("owner", "GET", at)
    ask("owner", "GET", "/v1/datasets")
    budget = {"epsilon": 3.0, "delta": 1e-6, "epsilon_cap": 2.0}
    ask("owner", "PUT", f"{at}/budget", budget | {"epsilon_cap": 4.0})
    ask("owner", "PUT", f"{at}/budget", budget)
    ask("owner", "PUT", f"{at}/budget", budget)
    ask("owner", "PUT", f"{at}/sharing", {"shared_ledger": True})
    ask("analyst", "GET", at)
    ask("owner", "PUT", f"{at}/grants/{{analyst}}", {"epsilon_cap": 1.5})
    ask("owner", "PUT", f"{at}/grants/{{other}}", {})
    ask("owner", "DELETE", f"{at}/grants/{{other}}")
    ask("owner", "GET", f"{at}/grants")
    ask("analyst", "GET", at)


def analyst_asks(w):
    ask = w.ask
    spec = job(w.ids["dataset"], 0.2)
    free = {k: v for k, v in spec.items() if k != "parameters"}
    ask("analyst", "GET", "/v1/algorithms")
    ask("analyst", "POST", "/v1/quotes", spec)
    ask("analyst", "POST", "/v1/quotes", spec | {"loss": "softmax"})
    ask("analyst", "POST", "/v1/quotes/comparison", free)
    ask("analyst", "POST", "/v1/quotes/noise", spec | {"noise": 0.5})
    ask("analyst", "POST", "/v1/quotes/batch", {"jobs": [spec, spec | {"loss": "hinge"}]})
    jobs = {
        "job": spec,
        "choices": free | {"algorithm": "frank-wolfe", "set": {"kind": "l1_ball", "radius": 1}},
        "point": free | {"algorithm": "output-perturbation", "ridge": 0.1},
        "clip": free
        | {"algorithm": "clipped-sgd", "ridge": 0.1, "parameters": {"clip": "private"}},
        "summary": {k: free[k] for k in ("dataset", "privacy")}
        | {
            "algorithm": "column-summaries",
            "summaries": ["counts", {"kind": "mean", "column": "x0"}],
        },
    }
    for name, asked in jobs.items():
        w.ids[name] = ask("analyst", "POST", "/v1/jobs", asked).json()["id"]
    again = {"Idempotency-Key": "the same"}
    for asked in (spec, spec, spec | {"loss": "hinge"}):
        ask("analyst", "POST", "/v1/jobs", asked, headers=again)
    ask("analyst", "POST", "/v1/jobs", job(w.ids["dataset"], 50.0))
    ask("analyst", "POST", "/v1/jobs", {"dataset": w.ids["dataset"]})
    w.ids["free"] = ask("analyst", "POST", "/v1/jobs", spec).json()["id"]
    group = ask("analyst", "POST", "/v1/groups", {"jobs": [spec, spec]}).json()
    w.ids["group"] = group["id"]
    ask("analyst", "GET", "/v1/jobs/{job}/model")
    ask("analyst", "GET", "/v1/jobs/{job}/audit")
    ask("analyst", "POST", "/v1/jobs/{free}/cancel")
    ask("admin", "GET", "/v1/operations")
    w.run_jobs()
    certificate = free | {"algorithm": "stationarity-certificate", "of": w.ids["job"]}
    w.ids["certificate"] = ask("analyst", "POST", "/v1/jobs", certificate).json()["id"]
    evaluation = {k: certificate[k] for k in ("dataset", "privacy", "of")}
    evaluation |= {"algorithm": "model-evaluation"}
    w.ids["evaluation"] = ask("analyst", "POST", "/v1/jobs", evaluation).json()["id"]
    w.run_jobs()
    ask("analyst", "POST", "/v1/jobs/{job}/cancel")
    parts = ("", "/plan", "/releases", "/model", "/summary", "/evaluation", "/audit", "/events")
    for name in (*jobs, "free", "certificate", "evaluation"):
        for part in parts:
            for who in ("analyst", "owner", "other"):
                ask(who, "GET", f"/v1/jobs/{{{name}}}{part}")
        stream = {"Accept": "text/event-stream"}
        ask("analyst", "GET", f"/v1/jobs/{{{name}}}/events", headers=stream)
    ask("analyst", "GET", "/v1/groups/{group}")
    ask("analyst", "GET", "/v1/jobs")


def owner_manages(w):
    ask, at = w.ask, "/v1/datasets/{dataset}/budget"
    ask("owner", "POST", f"{at}/top-ups", {"epsilon_cap": 2.5, "reason": "more"})
    ask("owner", "POST", f"{at}/top-ups", {"epsilon_cap": 9.0, "reason": "too much"})
    ask("owner", "POST", f"{at}/freeze", {"reason": "a question"})
    ask("analyst", "POST", "/v1/jobs", job(w.ids["dataset"], 0.1))
    ask("owner", "POST", f"{at}/unfreeze", {"reason": "answered"})


def everyone_reads(w):
    for who in ("owner", "analyst", "auditor", "admin"):
        for part in (
            *("", "/budget", "/grants", "/report", "/ledger", "/ledger.csv"),
            *("/audit", "/audit/head", "/audit/verification", "/audit/verification?seq=1"),
        ):
            w.ask(who, "GET", f"/v1/datasets/{{dataset}}{part}")
        w.ask(who, "GET", "/v1/operations")
        w.ask(who, "GET", "/v1/datasets")
