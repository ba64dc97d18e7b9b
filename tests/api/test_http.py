"""What HTTP promises: methods, encodings of bodies, refusals that name what is missing."""

import asyncio
import gzip
import json
import secrets

import httpx
import pytest
import yaml

from epsilond import ApiError
from service.api.inflate import PIECE, Inflated
from service.api.problems import in_words
from service.errors import BodyTooLarge, MalformedRequest
from tests.api.test_authorisation import METHODS, ROOT
from tests.harness import job, numeric_schema

PATHS = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]


def asking(service, person, method, path, **kwargs):
    headers = {"Authorization": f"Bearer {person.key}"} | kwargs.pop("headers", {})
    return httpx.request(method, f"{service.url}{path}", headers=headers, timeout=60, **kwargs)


# --- methods ---


@pytest.mark.parametrize("path", [*PATHS, "/"])
def test_every_address_says_what_it_allows(path, service):
    named = {m.upper() for m in PATHS.get(path, {"get": None}) if m in METHODS}
    expected = sorted(named | {"OPTIONS"} | ({"HEAD"} if "GET" in named else set()))
    url = service.url + path.replace("{", "").replace("}", "")
    asked, refused = (httpx.request(m, url, timeout=60) for m in ("OPTIONS", "TRACE"))
    assert (asked.status_code, refused.status_code) == (204, 405)
    assert asked.headers["allow"].split(", ") == refused.headers["allow"].split(", ") == expected
    assert refused.json()["code"] == "method_not_allowed"


def test_head_answers_as_get_without_a_body(service):
    owner = service.person("owner")
    for path in ("/healthz", "/v1/me", "/v1/datasets", "/v1/datasets/ds_0", "/openapi.json", "/"):
        got, head = (asking(service, owner, m, path) for m in ("GET", "HEAD"))
        dropped = {"x-request-id", "date"}
        assert head.content == b"" and head.status_code == got.status_code
        same = [{k: v for k, v in a.headers.items() if k not in dropped} for a in (got, head)]
        assert same[0] == same[1]
    assert asking(service, owner, "HEAD", "/v1/events").status_code == 200  # and it ends
    assert httpx.head(f"{service.url}/v1/me").status_code == 401
    assert asking(service, owner, "HEAD", "/v1/quotes").status_code == 405


# --- gzip ---


def test_a_body_may_be_gzip(service, tmp_path):
    owner, zipped = service.person("owner"), {"Content-Encoding": "gzip"}
    body = gzip.compress(json.dumps({"name": "z", "schema": numeric_schema(1)}).encode())
    as_json = zipped | {"Content-Type": "application/json"}
    made = asking(service, owner, "POST", "/v1/datasets", content=body, headers=as_json).json()
    path, as_csv = f"/v1/datasets/{made['id']}/data", zipped | {"Content-Type": "text/csv"}
    rows = b"x0,y\n" + b"0.5,1\n-0.5,0\n" * 50_000
    for content in (gzip.compress(rows)[:-9], b"x0,y\n", b""):
        refused = asking(service, owner, "PUT", path, content=content, headers=as_csv)
        assert refused.status_code in (400, 422), refused.text
    members = gzip.compress(rows[:7]) + gzip.compress(rows[7:])
    sent = asking(service, owner, "PUT", path, content=members, headers=as_csv)
    assert sent.json()["rows"] == 100_000
    bomb = gzip.compress(b" " * 2**21)
    answer = asking(service, owner, "POST", "/v1/datasets", content=bomb, headers=as_json)
    assert (answer.status_code, answer.json()["limit"]) == (413, 2**20)
    unknown = as_json | {"Content-Encoding": "br"}
    answer = asking(service, owner, "POST", "/v1/datasets", content=body, headers=unknown)
    assert answer.status_code == 415 and "gzip" in answer.json()["detail"]


def inflated(*chunks):
    """What an application receives of a body in these chunks."""

    async def all_of_it():
        waiting = [{"type": "http.request", "body": c, "more_body": True} for c in chunks]
        waiting[-1]["more_body"] = False

        async def receive():
            return waiting.pop(0)

        take, got = Inflated(receive), []
        while True:
            message = await take()
            assert len(message["body"]) <= PIECE
            got.append(message["body"])
            if not message["more_body"]:
                return b"".join(got)

    return asyncio.run(all_of_it())


def test_a_body_is_inflated_in_small_pieces_however_it_is_cut():
    data = secrets.token_bytes(5000) * 200
    packed = gzip.compress(data)
    for size in (1, 7, 1000, len(packed)):
        cut = [packed[i : i + size] for i in range(0, len(packed), size)]
        assert inflated(*cut) == data
    assert inflated(b"") == b""


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (gzip.compress(bytes(1 << 26)), BodyTooLarge),
        (gzip.compress(b"x" * 99)[:-1], MalformedRequest),
        (gzip.compress(b"x") + b"more", MalformedRequest),
        (b"plain", MalformedRequest),
    ],
    ids=["bomb", "short", "tail", "plain"],
)
def test_a_body_that_is_no_gzip_or_a_bomb_is_refused(content, refusal):
    with pytest.raises(refusal):
        inflated(content)


# --- refusals ---


def test_a_refusal_names_every_missing_field_in_words(service):
    owner = service.person("owner")
    body = {"schema": {"columns": [{"name": "a"}, {"kind": "ignored"}], "label": {"name": "y"}}}
    said = asking(service, owner, "POST", "/v1/datasets", json=body).json()["detail"]
    missing = ("body.name", "body.schema.columns.0.kind", "body.schema.label.kind")
    assert said.startswith("give ") and all(name in said for name in missing)
    assert "columns.1.ignored.name" in said
    said = asking(service, owner, "POST", "/v1/jobs", json={}).json()["detail"]
    fields = ("dataset", "algorithm", "privacy")
    assert said == f"give {', '.join(f'body.{field}' for field in fields)}."


def test_wrong_fields_are_named_after_the_missing_ones():
    errors = [
        {"type": "extra", "loc": ("body", "x"), "msg": "no such field"},
        {"type": "missing", "loc": ("body", "y"), "msg": ""},
        *({"type": "less", "loc": ("body", n), "msg": "too small"} for n in range(4)),
    ]
    words = "give body.y; look at body.x: no such field; body.0: too small; body.1: too small"
    assert in_words(errors) == f"{words}; and 2 more."


# --- datasets ---


def test_an_empty_dataset_can_be_deleted_and_its_name_used_again(service):
    scene = service.scene()
    owner = scene.owner
    empty = owner.declare_dataset("rows", numeric_schema())["id"]
    owner.grant(empty, scene.analyst.id)
    with pytest.raises(ApiError, match="name_taken") as refused:
        owner.declare_dataset("rows", numeric_schema())
    assert refused.value.status == 409 and refused.value.problem["id"] == empty
    assert service.person("owner").declare_dataset("rows", numeric_schema())["state"] == "empty"
    owner.delete_dataset(empty)
    for person in (owner, scene.analyst):
        with pytest.raises(ApiError, match="not_found"):
            person.dataset(empty)
    assert owner.declare_dataset("rows", numeric_schema())["state"] == "empty"
    with pytest.raises(ApiError, match="dataset_not_empty"):
        owner.delete_dataset(scene.dataset)
    owner.delete_data(scene.dataset)
    with pytest.raises(ApiError, match="dataset_not_empty"):
        owner.delete_dataset(scene.dataset)
    assert owner.declare_dataset("numbers", numeric_schema())["state"] == "empty"


def test_a_name_of_a_principal_is_taken_once(service):
    name = secrets.token_hex(8)
    service.admin.add_principal(name, "owner")
    with pytest.raises(ApiError, match="name_taken") as refused:
        service.admin.add_principal(name, "analyst")
    assert refused.value.status == 409


# --- jobs ---


def test_what_can_be_submitted_can_be_quoted(service):
    scene = service.scene()
    spec = job(scene.dataset) | {"metadata": {"ticket": "7"}}
    assert scene.analyst.quote(spec)["fits"]
    assert scene.analyst.quote_batch([spec])["data"]
    assert scene.analyst.compare({k: v for k, v in spec.items() if k != "parameters"})["data"]
    assert scene.analyst.quote_for_noise(spec, 0.5)["epsilon"] > 0
    assert scene.analyst.submit(spec)["metadata"] == {"ticket": "7"}


def test_the_model_of_a_job_that_was_cancelled_says_so(service):
    scene = service.scene()
    slow = job(scene.dataset, parameters={"steps": 10_000})
    done = [scene.analyst.submit(slow)["id"] for _ in range(2)]
    scene.analyst.cancel(done[1])
    assert scene.analyst.wait(done[1])["state"] == "cancelled"
    for ask in (scene.analyst.model, scene.analyst.record):
        with pytest.raises(ApiError, match="job_without_model: it was cancelled, so it has no"):
            ask(done[1])
    scene.analyst.cancel(done[0])
