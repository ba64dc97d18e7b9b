"""Who may do what: every operation of openapi.yaml by every kind of caller, in one table."""

import secrets
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import yaml

from tests.harness import job, numeric_schema

ROOT = Path(__file__).parent.parent.parent
METHODS = ("get", "put", "post", "delete", "patch")

# submitter: an analyst with a grant, whose job it is; colleague: another one with a grant; stranger:
# an analyst without; foreign: an owner of something else. What exists but is not theirs to see is a
# 404; 403 is for what they may see and not do. 409 comes after both: the caller was allowed.
CALLERS = [
    "anonymous",
    "submitter",
    "colleague",
    "stranger",
    "foreign",
    "owner",
    "auditor",
    "admin",
]
TABLE = """
GET    /healthz                                        200 200 200 200 200 200 200 200
GET    /readyz                                         200 200 200 200 200 200 200 200
GET    /v1/audit/public-key                            200 200 200 200 200 200 200 200
POST   /v1/session                                     401 401 401 401 401 401 401 401
GET    /v1/session                                     401 401 401 401 401 401 401 401
DELETE /v1/session                                     401 204 204 204 204 204 204 204
GET    /v1/me                                          401 200 200 200 200 200 200 200
GET    /v1/algorithms                                  401 200 200 200 200 200 200 200
GET    /v1/events                                      401 200 200 200 200 200 200 200
GET    /v1/operations                                  401 403 403 403 403 403 403 200

POST   /v1/principals                                  401 403 403 403 403 403 403 201
GET    /v1/principals                                  401 403 403 403 200 200 403 200
GET    /v1/keys                                        401 200 200 200 200 200 200 200
POST   /v1/keys                                        401 403 403 403 403 403 403 201
POST   /v1/keys                           own          401 201 201 201 201 201 201 201
POST   /v1/keys                           outliving    401 403 403 403 403 403 403 201
POST   /v1/keys/{key_id}/rotate                        401 404 404 404 404 404 404 201
DELETE /v1/keys/{key_id}                               401 404 404 404 404 404 404 204
DELETE /v1/keys/{key_id}                  everything   401 403 403 403 403 403 403 204
DELETE /v1/principals/{principal_id}/keys              401 403 403 403 403 403 403 204

POST   /v1/datasets                                    401 403 403 403 201 201 403 403
GET    /v1/datasets                                    401 200 200 200 200 200 200 200
GET    /v1/datasets/{dataset_id}                       401 200 200 404 404 200 200 200
DELETE /v1/datasets/{dataset_id}                       401 403 403 404 404 409 403 403
PUT    /v1/datasets/{dataset_id}/sharing               401 403 403 404 404 200 403 403
PUT    /v1/datasets/{dataset_id}/data                  401 403 403 404 404 409 403 403
GET    /v1/datasets/{dataset_id}/report                401 403 403 404 404 200 403 403
DELETE /v1/datasets/{dataset_id}/data     empty        401 403 403 404 404 409 403 403
GET    /v1/datasets/{dataset_id}/grants                401 403 403 404 404 200 200 200
PUT    /v1/datasets/{dataset_id}/grants/{principal_id} 401 403 403 404 404 200 403 403
DELETE /v1/datasets/{dataset_id}/grants/{principal_id} 401 403 403 404 404 204 403 403
PUT    /v1/datasets/{dataset_id}/budget                401 403 403 404 404 409 403 403
GET    /v1/datasets/{dataset_id}/budget                401 200 200 404 404 200 200 200
POST   /v1/datasets/{dataset_id}/budget/top-ups        401 403 403 404 404 409 403 403
POST   /v1/datasets/{dataset_id}/budget/freeze         401 403 403 404 404 200 403 403
POST   /v1/datasets/{dataset_id}/budget/unfreeze       401 403 403 404 404 200 403 403
GET    /v1/datasets/{dataset_id}/ledger                401 200 200 404 404 200 200 200
GET    /v1/datasets/{dataset_id}/ledger.csv            401 200 200 404 404 200 200 200
GET    /v1/datasets/{dataset_id}/audit                 401 200 200 404 404 200 200 200
GET    /v1/datasets/{dataset_id}/audit/head            401 200 200 404 404 200 200 200
GET    /v1/datasets/{dataset_id}/audit/verification    401 200 200 404 404 200 200 200
GET    /v1/datasets/{dataset_id}/audit/verification record 401 200 404 404 404 200 200 200

POST   /v1/quotes                                      401 200 200 404 404 200 403 403
POST   /v1/quotes/comparison                           401 200 200 404 404 200 403 403
POST   /v1/quotes/noise                                401 200 200 404 404 200 403 403
POST   /v1/quotes/batch                                401 200 200 404 404 200 403 403
POST   /v1/groups                                      401 202 202 404 404 202 403 403
GET    /v1/groups/{group_id}                           401 200 404 404 404 200 200 200
POST   /v1/jobs                                        401 202 202 404 404 202 403 403
POST   /v1/jobs                           of           401 202 404 404 404 202 403 403
GET    /v1/jobs                                        401 200 200 200 200 200 200 200
GET    /v1/jobs/{job_id}                               401 200 404 404 404 200 200 200
POST   /v1/jobs/{job_id}/cancel                        401 409 404 404 404 409 403 409
GET    /v1/jobs/{job_id}/plan                          401 200 404 404 404 200 200 200
GET    /v1/jobs/{job_id}/releases                      401 200 404 404 404 200 200 200
GET    /v1/jobs/{job_id}/model                         401 200 404 404 404 200 200 200
GET    /v1/jobs/{job_id}/summary                       401 200 404 404 404 200 200 200
GET    /v1/jobs/{job_id}/evaluation                    401 200 404 404 404 200 200 200
GET    /v1/jobs/{job_id}/audit                         401 200 404 404 404 200 200 200
GET    /v1/jobs/{job_id}/events                        401 200 404 404 404 200 200 200
"""
RULES = [line.split() for line in TABLE.splitlines() if line]
RULES = [[r[0], r[1], r[2] if len(r) == 11 else "", [int(s) for s in r[-8:]]] for r in RULES]


def test_every_operation_has_a_rule():
    paths = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    declared = {
        (method.upper(), path)
        for path, found in paths.items()
        for method in found
        if method in METHODS
    }
    assert declared == {(method, path) for method, path, _, _ in RULES}


@pytest.fixture(scope="module")
def scene(service):
    made = service.scene(epsilon=8.0, holdout=0.2)
    people = SimpleNamespace(
        submitter=made.analyst,
        colleague=service.person("analyst"),
        stranger=service.person("analyst"),
        foreign=service.person("owner"),
        owner=made.owner,
        auditor=service.person("auditor"),
        admin=service.person("admin"),
    )
    empty = made.owner.declare_dataset("empty", numeric_schema())["id"]
    made.owner.grant(made.dataset, people.colleague.id)
    for analyst in (people.submitter, people.colleague):
        made.owner.grant(empty, analyst.id)

    def done(**spec):
        asked = {"dataset": made.dataset, "privacy": {"epsilon": 0.5}, **spec}
        return made.analyst.wait(made.analyst.submit(asked)["id"])["id"]

    fit = done(**job(made.dataset, 0.5))
    told = {
        "summary": done(algorithm="column-summaries", summaries=["counts"]),
        "evaluation": done(algorithm="model-evaluation", of=fit),
    }
    jobs = {"jobs": [job(made.dataset, 0.01)]}
    group = made.analyst.request("POST", "/v1/groups", json=jobs)["id"]
    return SimpleNamespace(
        people=people, dataset=made.dataset, empty=empty, job=fit, told=told, group=group
    )


def bodies(scene, other, variant):
    """What is sent where something must be; `other` is a principal whom nobody here knows."""
    spec = job(scene.dataset, 0.01)
    of = spec | {"algorithm": "stationarity-certificate", "of": scene.job, "parameters": {}}
    minted = {"own": {}, "outliving": {"outlives": True}}.get(variant, {"principal": other.id})
    return {
        "/v1/session": {"key": "eps_000000000000_" + "0" * 64},
        "/v1/principals": {"name": secrets.token_hex(8), "role": "analyst"},
        "/v1/keys": minted,
        "/v1/datasets": {"name": f"another {secrets.token_hex(4)}", "schema": numeric_schema()},
        "/v1/datasets/{dataset_id}/sharing": {"shared_ledger": False},
        "/v1/datasets/{dataset_id}/grants/{principal_id}": {},
        "/v1/datasets/{dataset_id}/budget": {"epsilon": 1, "delta": 1e-6},
        "/v1/datasets/{dataset_id}/budget/top-ups": {"epsilon_cap": 90, "reason": "a test"},
        "/v1/datasets/{dataset_id}/budget/freeze": {"reason": "a test"},
        "/v1/datasets/{dataset_id}/budget/unfreeze": {"reason": "a test"},
        "/v1/quotes": spec,
        "/v1/quotes/comparison": spec | {"parameters": {}},
        "/v1/quotes/noise": spec | {"noise": 1.0},
        "/v1/quotes/batch": {"jobs": [spec]},
        "/v1/groups": {"jobs": [spec]},
        "/v1/jobs": of if variant == "of" else spec,
    }


def ask(service, scene, caller, method, path, variant):
    other = service.person("analyst")  # with a key, and with a grant to take back
    scene.people.owner.grant(scene.dataset, other.id)
    filled = path.format(
        dataset_id=scene.empty if variant == "empty" else scene.dataset,
        job_id=scene.told.get(path.rpartition("/")[2], scene.job),
        group_id=scene.group,
        principal_id=other.id,
        key_id=other.keys()[0]["id"],
    )
    kwargs = {"params": {"everything": {"everything": True}, "record": {"seq": 1}}.get(variant)}
    if path.endswith("/data") and method == "PUT":
        kwargs |= {"content": b"x0\n", "headers": {"Content-Type": "text/csv"}}
    elif method in ("PUT", "POST"):
        kwargs["json"] = bodies(scene, other, variant).get(path)
    headers = kwargs.pop("headers", {})
    if caller != "anonymous":
        headers["Authorization"] = f"Bearer {getattr(scene.people, caller).key}"
    with httpx.stream(  # events never end; of all others the status is enough too
        method, f"{service.url}{filled}", headers=headers, timeout=60, **kwargs
    ) as answer:
        return answer.status_code


@pytest.mark.parametrize(
    ("method", "path", "variant", "expected"),
    RULES,
    ids=[" ".join(filter(None, rule[:3])) for rule in RULES],
)
def test_everyone_may_do_what_the_table_says(method, path, variant, expected, service, scene):
    if path.endswith("/unfreeze"):
        if not scene.people.owner.budget(scene.dataset)["frozen"]:
            scene.people.owner.freeze(scene.dataset, "a test")
    elif scene.people.owner.budget(scene.dataset)["frozen"]:
        scene.people.owner.unfreeze(scene.dataset, "a test")
    answers = [ask(service, scene, caller, method, path, variant) for caller in CALLERS]
    assert dict(zip(CALLERS, answers, strict=True)) == dict(zip(CALLERS, expected, strict=True))


@pytest.mark.parametrize(
    ("path", "seen_by"),
    [
        ("/v1/datasets", ("submitter", "colleague", "owner", "auditor", "admin")),
        ("/v1/jobs", ("submitter", "owner", "auditor", "admin")),
        ("/v1/keys", ("submitter", "admin")),
    ],
)
def test_a_list_holds_what_its_reader_may_see(path, seen_by, service, scene):
    mine = {
        "/v1/datasets": scene.dataset,
        "/v1/jobs": scene.job,
        "/v1/keys": scene.people.submitter.keys()[-1]["id"],
    }[path]
    listed = {
        caller: mine in [item["id"] for item in getattr(scene.people, caller).pages(path)]
        for caller in CALLERS[1:]
    }
    assert listed == {caller: caller in seen_by for caller in CALLERS[1:]}
