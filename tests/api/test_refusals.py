"""Bad input is a documented problem, and leaves ledger and disk as they were."""

import secrets

import httpx
import pytest

from epsilond import ApiError
from service.errors import every_problem
from tests.harness import job, numbers, numeric_schema

CODES = {problem.code for problem in every_problem()}
GOOD = job("?")


@pytest.fixture(scope="module")
def scene(service):
    return service.scene()


def state(service, scene):
    """Everything that a refusal must not change."""
    tables = ("jobs", "entries", "datasets", "models", "idempotency")
    counts = [service.fact(f"SELECT count(*) FROM {table}") for table in tables]
    files = sorted(
        str(path)
        for path in (service.folder / "data").rglob("*")
        if "keys" not in str(path) and ".db" not in path.name
    )
    return counts, files, scene.owner.budget(scene.dataset)


def check(response, status, code):
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["code"] in CODES and body["type"].endswith(code) and body["detail"]
    assert response.headers["x-request-id"]
    return body


def post(service, key, path, **kwargs):
    headers = {"Authorization": f"Bearer {key}", **kwargs.pop("headers", {})}
    return httpx.post(f"{service.url}{path}", headers=headers, **kwargs)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/quotes"])
@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ('"epsilon": NaN', 422, "invalid_request"),
        ('"epsilon": Infinity', 422, "invalid_request"),
        ('"epsilon": 1e308', 422, "invalid_request"),
        ('"epsilon": 1e-300', 422, "invalid_request"),
        ('"epsilon": 0', 422, "invalid_request"),
        ('"epsilon": -1', 422, "invalid_request"),
        ('"epsilon": "much"', 422, "invalid_request"),
        ('"epsilon": 0.1, "delta": -1e-6', 422, "invalid_request"),
        ('"epsilon": 0.1, "delta": 1', 422, "invalid_request"),
        ('"epsilon": 0.1, "delta": NaN', 422, "invalid_request"),
        ('"epsilon": 0.1, "gamma": 1', 422, "invalid_request"),
    ],
)
def test_a_privacy_that_is_none_is_refused(service, scene, path, change, status, code):
    before = state(service, scene)
    text = (
        f'{{"dataset": "{scene.dataset}", "algorithm": "gradient-descent", "loss": "logistic", '
        f'"privacy": {{{change}}}}}'
    )
    response = post(
        service, scene.analyst.key, path, content=text, headers={"Content-Type": "application/json"}
    )
    check(response, status, code)
    assert state(service, scene) == before


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"loss": "quantum"}, "invalid_request", "loss"),
        ({"algorithm": "magic"}, "plan_refused", "gradient-descent"),
        ({"algorithm": "clipped-sgd"}, "plan_refused", "set ridge"),
        ({"parameters": {"stepz": 3}}, "plan_refused", "steps"),
        ({"parameters": {"steps": 0}}, "plan_refused", "steps"),
        ({"parameters": {"clip": -1.0}}, "plan_refused", "clip"),
        ({"set": {"kind": "l2_ball", "radius": 0}}, "invalid_request", "radius"),
        ({"set": {"kind": "torus"}}, "invalid_request", "set"),
        (
            {"algorithm": "frank-wolfe", "set": {"kind": "polytope", "vertices": []}},
            "invalid_request",
            "should have at least 1 item",
        ),
        (
            {"algorithm": "frank-wolfe", "set": {"kind": "polytope", "vertices": [[1, 0]]}},
            "plan_refused",
            "every vertex needs",
        ),
        (
            {"algorithm": "phased-sgd", "set": "box", "parameters": {}},
            "plan_refused",
            "it runs over: l2_ball, all",
        ),
        ({"ridge": -1}, "invalid_request", "ridge"),
        ({"metadata": {"k": "v" * 501}}, "invalid_request", "metadata"),
        ({"surprise": 1}, "invalid_request", "surprise"),
    ],
)
def test_a_spec_that_cannot_be_planned_says_what_would_work(service, scene, changes, code, says):
    before = state(service, scene)
    body = {**job(scene.dataset), **changes}
    problem = check(post(service, scene.analyst.key, "/v1/jobs", json=body), 422, code)
    assert says in problem["detail"] + str(problem.get("errors"))
    assert state(service, scene) == before


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{" * 10_000_000, 413, "body_too_large"),
        (b"[" * 200_000, 400, "malformed_request"),
        (b'{"dataset": ', 400, "malformed_request"),
        (b"\xff\xfe\x00", 400, "malformed_request"),
        (b"null", 422, "invalid_request"),
        (b"", 422, "invalid_request"),
    ],
)
def test_a_body_that_is_no_request_is_refused(service, scene, content, status, code):
    before = state(service, scene)
    for headers in ({"Content-Type": "application/json"},):
        response = post(service, scene.analyst.key, "/v1/jobs", content=content, headers=headers)
        check(response, status, code)
    assert state(service, scene) == before


def test_foreign_and_absent_ids_look_the_same(service, scene):
    other = service.scene()
    done = other.analyst.submit(job(other.dataset))
    asks = [
        lambda: scene.analyst.dataset(other.dataset),
        lambda: scene.analyst.dataset("ds_0"),
        lambda: scene.analyst.budget(other.dataset),
        lambda: scene.analyst.ledger(other.dataset),
        lambda: scene.analyst.chain(other.dataset),
        lambda: scene.analyst.quote(job(other.dataset)),
        lambda: scene.analyst.submit(job(other.dataset)),
        lambda: scene.analyst.submit(job("ds_0")),
        lambda: scene.analyst.job(done["id"]),
        lambda: scene.analyst.model(done["id"]),
        lambda: scene.analyst.record(done["id"]),
        lambda: scene.analyst.plan(done["id"]),
        lambda: scene.analyst.events(done["id"]),
        lambda: scene.analyst.cancel(done["id"]),
        lambda: scene.owner.delete_data(other.dataset),
        lambda: scene.owner.set_budget(other.dataset, 1.0, 1e-6),
        lambda: scene.owner.grant(other.dataset, scene.analyst.id),
        lambda: scene.owner.upload(other.dataset, numbers(service.folder, 10, 4)),
        lambda: scene.owner.declare_dataset("x", numeric_schema(), same_people_as=other.dataset),
    ]
    for ask in asks:
        with pytest.raises(ApiError) as refusal:
            ask()
        assert (refusal.value.status, refusal.value.code) == (404, "not_found")


def test_each_role_does_its_own_work_and_no_other(service, scene):
    auditor, admin = service.person("auditor"), service.admin
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])
    assert auditor.ledger(scene.dataset) and auditor.chain(scene.dataset)
    assert auditor.job(done["id"])["id"] == done["id"]
    refused = [
        lambda: scene.analyst.declare_dataset("mine", numeric_schema()),
        lambda: scene.analyst.delete_data(scene.dataset),
        lambda: scene.analyst.set_budget(scene.dataset, 1.0, 1e-6),
        lambda: scene.analyst.grant(scene.dataset, scene.analyst.id),
        lambda: scene.analyst.grants(scene.dataset),
        scene.analyst.principals,
        lambda: scene.analyst.add_principal("x", "admin"),
        lambda: scene.analyst.add_key(scene.owner.id),
        lambda: auditor.submit(job(scene.dataset)),
        lambda: auditor.quote(job(scene.dataset)),
        lambda: auditor.cancel(done["id"]),
        lambda: admin.submit(job(scene.dataset)),
        lambda: admin.delete_data(scene.dataset),
        lambda: scene.owner.add_principal("y", "analyst"),
    ]
    for ask in refused:
        with pytest.raises(ApiError) as refusal:
            ask()
        assert (refusal.value.status, refusal.value.code) == (403, "forbidden")


def test_a_revoked_grant_ends_use_and_sight(service):
    scene = service.scene()
    scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])  # nothing changes afterwards
    scene.owner.revoke_grant(scene.dataset, scene.analyst.id)
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset))
    assert refusal.value.code == "not_found"
    assert scene.analyst.datasets() == []


@pytest.mark.parametrize(
    "key", [None, "nonsense", "eps_000000000000_" + "0" * 64, "eps__", "eps_a_b_c", "é"]
)
def test_a_request_without_a_valid_key_is_refused(service, key):
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    response = httpx.get(f"{service.url}/v1/jobs", headers=headers)
    check(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"


def test_keys_rotate_expire_and_are_revoked(service):
    person = service.person("analyst")
    extra = person.add_key(expires_days=1)
    assert extra["expires_at"] > extra["created_at"]
    rotated = person.rotate_key(extra["id"])
    old, new = service.client(extra["key"]), service.client(rotated["key"])
    assert new.me()["id"] == person.id
    new.revoke_key(rotated["id"])
    for client in (old, new):
        with pytest.raises(ApiError) as refusal:
            client.me()
        assert refusal.value.code == "unauthenticated"


def test_an_expired_key_is_refused(service):
    person = service.person("analyst")
    extra = person.add_key(expires_days=1)
    client = service.client(extra["key"])
    client.me()
    with service.db.write() as connection:
        connection.exec_driver_sql(f"UPDATE api_keys SET expires_ms = 1 WHERE id = '{extra['id']}'")
    with pytest.raises(ApiError) as refusal:
        client.me()
    assert refusal.value.code == "unauthenticated"


CSV = "x0,x1,y\n0.5,0.5,1\n-0.5,0.1,0\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x0,y\n0.5,1\n0.1,0\n", "x1"),
        ("x0,x1,y\n0.5,0.5,1\n0.5,,0\n", "row 2: column 'x1'"),
        ("x0,x1,y\n0.5,0.5,1\n0.5,0.5,\n", "row 2: column 'y'"),
        ("x0,x1,y\n0.5,0.5,1\n0.5,0.5,7\n", "row 2: column 'y'"),
        ("x0,x1,y\n0.5,abc,1\n0.5,0.5,0\n", "row 1: column 'x1'"),
        ("x0,x1,z,y\n0.5,0.5,1,1\n0.5,0.5,1,0\n", "z"),
        ("x0,x1,y\n", "rows"),
        ("", "lacks the columns"),
    ],
)
def test_a_file_that_does_not_match_its_schema_is_refused(service, scene, text, says, tmp_path):
    owner = scene.owner
    dataset = owner.declare_dataset(secrets.token_hex(4), numeric_schema(2))["id"]
    before = state(service, scene)
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ApiError) as refusal:
        owner.upload(dataset, path)
    assert refusal.value.code == "parse_refused" and says in refusal.value.problem["detail"]
    assert state(service, scene) == before
    assert owner.dataset(dataset)["state"] == "empty"
    path.write_text(CSV)
    assert owner.upload(dataset, path)["rows"] == 2
    with pytest.raises(ApiError) as refusal:
        owner.upload(dataset, path)
    assert refusal.value.code == "data_already_uploaded"


def test_other_refusals_of_uploads(service, scene, tmp_path):
    dataset = scene.owner.declare_dataset("odd", numeric_schema(2))["id"]
    url = f"{service.url}/v1/datasets/{dataset}/data"
    headers = {"Authorization": f"Bearer {scene.owner.key}"}
    check(
        httpx.put(url, content=b"x", headers={**headers, "Content-Type": "text/html"}),
        415,
        "unsupported_media_type",
    )
    check(httpx.put(url, content=b"x", headers=headers), 422, "invalid_request")
    garbage = {**headers, "Content-Type": "application/x-npz"}
    check(httpx.put(url, content=b"PK garbage", headers=garbage), 422, "parse_refused")


@pytest.mark.parametrize(
    "schema",
    [
        {"columns": [{"name": "a", "kind": "numeric"}], "label": numeric_schema()["label"]},
        {"columns": [], "label": numeric_schema()["label"]},
        {"columns": numeric_schema()["columns"]},
        {**numeric_schema(), "l2": float("inf")} | {"l2": -1},
    ],
)
def test_a_schema_without_public_bounds_is_refused(service, scene, schema):
    with pytest.raises(ApiError) as refusal:
        scene.owner.declare_dataset("d", schema)
    assert refusal.value.code == "invalid_request"


def test_budgets_and_shares_are_set_in_their_order(service):
    owner, analyst = service.person("owner"), service.person("analyst")
    dataset = owner.declare_dataset("d", numeric_schema())["id"]
    for ask, code in (
        (lambda: owner.set_budget(dataset, 1.0, 1e-6), "dataset_not_ready"),
        (lambda: owner.budget(dataset), "budget_not_set"),
        (lambda: owner.grant(dataset, analyst.id, 0.5), "budget_not_set"),
        (lambda: owner.submit(job(dataset)), "dataset_not_ready"),
        (lambda: owner.grant(dataset, owner.id), "not_found"),
        (lambda: owner.delete_data(dataset), "dataset_not_ready"),
    ):
        with pytest.raises(ApiError) as refusal:
            ask()
        assert refusal.value.code == code
    owner.upload(dataset, numbers(service.folder, 50, 4))
    for epsilon, delta, cap in (
        (0, 1e-6, None),
        (1, -1, None),
        (1, 1, None),
        (1, 1e-6, 2),
        (101, 0, None),
    ):
        with pytest.raises(ApiError) as refusal:
            owner.set_budget(dataset, epsilon, delta, cap)
        assert refusal.value.code == "invalid_request"
    with pytest.raises(ApiError) as refusal:
        owner.submit(job(dataset))
    assert refusal.value.code == "budget_not_set"


def test_unknown_addresses_and_methods_are_problems_too(service):
    check(httpx.get(f"{service.url}/v1/nothing"), 404, "not_found")
    check(httpx.delete(f"{service.url}/v1/jobs"), 405, "method_not_allowed")


def test_a_model_is_not_there_before_its_job_has_succeeded(service, scene):
    submitted = scene.analyst.submit(job(scene.dataset, 0.01, parameters={"steps": 2000}))
    for ask in (scene.analyst.model, scene.analyst.record):
        with pytest.raises(ApiError) as refusal:
            ask(submitted["id"])
        assert refusal.value.code == "job_not_finished"
    scene.analyst.cancel(submitted["id"])


def test_lists_page_through_everything_once(service):
    scene = service.scene()
    submitted = [scene.analyst.submit(job(scene.dataset, 0.02))["id"] for _ in range(5)]
    seen, after = [], None
    while True:
        params = {"limit": 2, **({"starting_after": after} if after else {})}
        page = scene.analyst.request("GET", "/v1/jobs", params=params)
        assert page["object"] == "list" and page["url"] == "/v1/jobs" and len(page["data"]) <= 2
        seen += [view["id"] for view in page["data"]]
        if not page["has_more"]:
            break
        after = seen[-1]
    assert sorted(seen) == sorted(submitted) and len(seen) == len(set(seen)) == 5
    for bad in ({"limit": 0}, {"limit": 101}, {"starting_after": "job_0"}, {"state": "dreaming"}):
        with pytest.raises(ApiError) as refusal:
            scene.analyst.request("GET", "/v1/jobs", params=bad)
        assert refusal.value.code in ("invalid_request", "not_found")
