"""The OWASP API Security Top 10 (2023), item by item: what each means here, and that it holds.

Where another file tests an item in depth, the test here says which and adds what that file lacks.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

import httpx
import pytest
import yaml

from service.app import create_app
from service.config import Settings
from service.jobs.hints import celery_app
from tests.api.test_authorisation import CALLERS, RULES
from tests.harness import job, numeric_schema

ROOT = Path(__file__).parents[2]
OPEN = {"/healthz", "/readyz", "/v1/audit/public-key", "/v1/session"}


@cache
def operations():
    paths = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    return [(method.upper(), path, one) for path, of in paths.items() for method, one in of.items()]


@pytest.fixture(scope="module")
def scene(service):
    made = service.scene(epsilon=1.0)
    made.stranger = service.person("analyst")
    made.job = made.analyst.wait(made.analyst.submit(job(made.dataset, 0.1))["id"])["id"]
    return made


def ask(service, who, method, path, **options):
    headers = options.pop("headers", {})
    if who is not None:
        headers = {"Authorization": f"Bearer {who.key}", **headers}
    return httpx.request(method, f"{service.url}{path}", headers=headers, timeout=60, **options)


# API1:2023 Broken object level authorization: every id in a path is looked up as its caller sees it.


def test_api1_a_foreign_id_is_answered_like_one_that_does_not_exist(service, scene):
    """Every operation that reads by an id; who may do what is tests/api/test_authorisation.py."""
    asked = 0
    for method, path, _ in operations():
        if method != "GET" or not re.search(r"\{(dataset|job)_id\}", path):
            continue
        answers = []
        for dataset, job_id in ((scene.dataset, scene.job), ("ds_" + "0" * 24, "job_" + "0" * 24)):
            answer = ask(
                service, scene.stranger, "GET", path.format(dataset_id=dataset, job_id=job_id)
            )
            body = answer.json()
            assert body.pop("instance") and dataset not in json.dumps(body)
            answers.append((answer.status_code, body))
        assert answers[0] == answers[1] and answers[0][0] == 404, path
        asked += 1
    assert asked >= 14


# API2:2023 Broken authentication.


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "Bearer",
        "Basic YTpi",
        "Bearer eps__",
        "Bearer eps_a_b_c",
        "Bearer eps_%_%",
        "Bearer 0",
    ],
)
def test_api2_what_is_no_key_opens_nothing(service, scene, sent):
    answer = ask(service, None, "GET", "/v1/me", headers={"Authorization": sent})
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"


def test_api2_a_known_prefix_helps_nobody_and_is_not_confirmed(service, scene):
    _, prefix, secret = scene.analyst.key.split("_")
    known = f"eps_{prefix}_{'0' * len(secret)}"
    unknown = f"eps_{'0' * len(prefix)}_{secret}"
    answers = [
        ask(service, None, "GET", "/v1/me", headers={"Authorization": f"Bearer {key}"}).json()
        for key in (known, unknown)
    ]
    assert answers[0] == answers[1] and answers[0]["code"] == "unauthenticated"


# API3:2023 Broken object property level authorization: nothing is set that is not asked for, and
# nothing is shown that is not theirs.


def test_api3_no_body_takes_members_that_it_does_not_describe(service, scene):
    bodies = {
        "/v1/datasets": {"name": "n", "schema": numeric_schema()},
        "/v1/keys": {},
        "/v1/jobs": job(scene.dataset),
        "/v1/quotes": job(scene.dataset),
        f"/v1/datasets/{scene.dataset}/budget/freeze": {"reason": "r"},
    }
    for path, body in bodies.items():
        for extra in ("owner_id", "role", "id", "posted_units", "__proto__"):
            answer = ask(service, scene.owner, "POST", path, json=body | {extra: "x"})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), path


def test_api3_no_answer_holds_a_secret(service, scene):
    """Neither the hash of a key, nor wrapped noise, nor the content's fingerprint."""
    hidden = [
        service.fact("SELECT hash FROM api_keys LIMIT 1"),
        service.fact("SELECT content_mac FROM datasets WHERE content_mac IS NOT NULL LIMIT 1"),
        scene.analyst.key,
    ]
    for path in ("/v1/keys", f"/v1/datasets/{scene.dataset}", f"/v1/jobs/{scene.job}", "/v1/me"):
        for who in (scene.owner, scene.analyst):
            answer = ask(service, who, "GET", path).text
            assert not any(secret in answer for secret in hidden)
    assert scene.analyst.dataset(scene.dataset)["lineage"] is None


# API4:2023 Unrestricted resource consumption.


def test_api4_bodies_lists_and_plans_have_limits(service, scene):
    """Uploads: tests/datasets/test_ingest_limits.py. Streams and queues: tests/api/test_live.py."""
    deep = ("[" * 10**5, '{"a":' * 10**5)
    for content in (*deep, "[" * 10**5 + "]" * 10**5):
        json_ = {"Content-Type": "application/json"}
        answer = ask(service, scene.owner, "POST", "/v1/datasets", content=content, headers=json_)
        assert answer.status_code in (400, 422)
    answer = ask(service, scene.owner, "POST", "/v1/quotes", content=b" " * (2**20 + 1))
    assert answer.status_code == 413
    for path in ("/v1/jobs", "/v1/datasets", "/v1/keys", "/v1/algorithms"):
        assert ask(service, scene.owner, "GET", f"{path}?limit=101").status_code == 422
    endless = job(scene.dataset, 0.01, parameters={"steps": 10**6}) | {"metadata": {"k": "v" * 501}}
    assert ask(service, scene.owner, "POST", "/v1/jobs", json=endless).status_code == 422


# API5:2023 Broken function level authorization.


def test_api5_nobody_is_let_in_without_a_key_and_administration_is_for_administrators():
    """tests/api/test_authorisation.py plays this table; here, that it forbids what it must."""
    for method, path, _, statuses in RULES:
        told = dict(zip(CALLERS, statuses, strict=True))
        assert path in OPEN or told["anonymous"] == 401, path
        if (method, path) in {("POST", "/v1/principals"), ("GET", "/v1/operations")}:
            assert {who for who, status in told.items() if status < 400} == {"admin"}


# API6:2023 Unrestricted access to sensitive business flows: the flow is spending the budget.


def test_api6_asking_is_free_repeating_is_free_and_the_budget_ends(service):
    """By many at once: tests/api/test_never_overspent.py."""
    scene = service.scene(epsilon=0.5)
    before = scene.owner.budget(scene.dataset)
    for _ in range(3):
        scene.analyst.quote(job(scene.dataset, 0.2))
    assert scene.owner.budget(scene.dataset) == before
    same = {scene.analyst.submit(job(scene.dataset, 0.2), "once")["id"] for _ in range(3)}
    assert len(same) == 1
    answers = [
        ask(service, scene.analyst, "POST", "/v1/jobs", json=job(scene.dataset, 0.2))
        for _ in range(9)
    ]
    assert answers[-1].json()["code"] == "budget_exceeded"
    assert scene.owner.budget(scene.dataset)["units_remaining"] >= 0


# API7:2023 Server side request forgery: the service asks nobody anything on a caller's behalf.

CLIENTS = {"httpx", "requests", "aiohttp", "urllib.request", "urllib3", "http.client", "ftplib"}


def test_api7_no_code_of_the_service_fetches_an_address():
    """Workers: tests/workers/test_no_http_client.py; the client is a distribution of its own."""
    found = set()
    for path in (ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if any(name == c or name.startswith(f"{c}.") for name in names for c in CLIENTS):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == set()
    document = (ROOT / "openapi.yaml").read_text()
    assert not re.search(r"format: (uri|url|hostname|ipv[46])", document)


# API8:2023 Security misconfiguration.


def test_api8_answers_say_how_to_treat_them_and_no_foreign_page_reads_them(service, scene):
    """The dashboard's policy and cookies: tests/dashboard, tests/api/test_sessions.py."""
    for who, path in ((scene.owner, "/v1/me"), (None, "/v1/me"), (None, "/nothing"), (None, "/")):
        answer = ask(service, who, "GET", path, headers={"Origin": "https://evil.example"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not any(name.startswith("access-control-") for name in answer.headers)
        assert "server" not in answer.headers and "x-powered-by" not in answer.headers


def test_api8_a_method_that_is_not_there_is_refused_with_those_that_are(service, scene):
    methods = {}
    for method, path, _ in operations():
        methods.setdefault(re.sub(r"\{\w+\}", "x", path), set()).add(method)
    for path, there in methods.items():
        answered = there | {"OPTIONS"} | ({"HEAD"} if "GET" in there else set())
        for method, status in (("TRACE", 405), ("OPTIONS", 204), ("PATCH", 405)):
            answer = ask(service, scene.owner, method, path)
            assert answer.status_code == status
            assert set(answer.headers["allow"].split(", ")) == answered, path


# API9:2023 Improper inventory management.


def test_api9_whatever_is_served_is_described_and_has_a_version():
    app = create_app(Settings())
    described = {(method, path) for method, path, _ in operations()}
    assert {(m.upper(), p) for p, of in app.openapi()["paths"].items() for m in of} == described
    assert all(path.startswith("/v1/") or path in ("/healthz", "/readyz") for _, path in described)
    assert app.docs_url is None and app.redoc_url is None
    assert not any(one.get("deprecated") for _, _, one in operations())


# API10:2023 Unsafe consumption of APIs: what brokers, files and clocks of others may do.


def test_api10_a_broker_can_say_no_more_than_that_there_is_work(tmp_path):
    """Hostile files: tests/fuzz/test_files.py; lost and repeated hints: tests/test_faults.py."""
    conf = celery_app(Settings(data_dir=tmp_path)).conf
    assert conf.accept_content == ["json"] and conf.task_serializer == "json"
    tree = ast.parse((ROOT / "workers" / "celery_app.py").read_text())
    tasks = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.decorator_list]
    assert tasks and all(not each.args.args for each in tasks)
