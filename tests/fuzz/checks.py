"""What must hold of every answer, beside schemathesis's own checks; its process loads this file."""

import json
import os
import random

import schemathesis

SPARED = json.loads(os.environ["EPSILOND_FUZZ_SPARED"])
REAL = SPARED["real"]
ROLE = os.environ["EPSILOND_FUZZ_ROLE"]
OPEN = {"/healthz", "/readyz", "/v1/audit/public-key", "/v1/session"}

# Why a request that openapi.yaml calls valid may be refused: who asks, what there is, what is left.
REASONS = {
    "unauthenticated",
    "forbidden",
    "not_found",
    "dataset_not_ready",
    "data_already_uploaded",
    "dataset_not_empty",
    "name_taken",
    "budget_not_set",
    "budget_already_set",
    "budget_exceeded",
    "analyst_cap_exceeded",
    "budget_frozen",
    "budget_not_frozen",
    "ceiling_exceeded",
    "job_not_finished",
    "job_without_model",
    "job_already_finished",
    "last_way_in",
    "parse_refused",
    "plan_refused",
    "idempotency_conflict",
}
# Rules between fields and names of things, which a JSON schema does not express; the text says which.
RULES = {"value_error"}


# What would end the run, or leave it nothing to work on: done to others of the kind.
ENDING = {
    ("DELETE", "/v1/keys/{key_id}"): ("key_id", "keys"),
    ("POST", "/v1/keys/{key_id}/rotate"): ("key_id", "keys"),
    ("DELETE", "/v1/principals/{principal_id}/keys"): ("principal_id", "principals"),
    ("DELETE", "/v1/datasets/{dataset_id}/data"): ("dataset_id", "datasets"),
    ("DELETE", "/v1/datasets/{dataset_id}"): ("dataset_id", "empty"),
    ("POST", "/v1/datasets/{dataset_id}/budget/freeze"): ("dataset_id", "datasets"),
}


@schemathesis.hook
def before_call(context, case, kwargs):
    if context.operation is not None and case.meta and case.meta.phase.name.value == "coverage":
        for name, ids in REAL.items():  # which takes one value for all ids, and knows of none
            if name in case.path_parameters and case.meta.generation.mode.is_positive:
                case.path_parameters[name] = random.choice(ids)
        if isinstance(case.body, dict) and case.body.get("dataset") == "0":
            case.body["dataset"] = random.choice(REAL["dataset_id"])
    name, kind = ENDING.get((case.method.upper(), case.operation.path), (None, None))
    if name and case.path_parameters.get(name) in SPARED["spared"][kind]:
        case.path_parameters[name] = random.choice(SPARED["instead"][kind])


@schemathesis.check
def a_valid_request_is_refused_for_a_reason(ctx, response, case):
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code < 400:
        return
    problem = json.loads(response.content)
    found = {error["type"] for error in problem.get("errors") or () if "type" in error}
    if found & RULES:
        found.discard("too_short")  # of a list, for want of what was refused in it
    broken = found - RULES
    unstorable = problem["detail"].startswith("a value cannot be stored")
    assert problem["code"] in REASONS or (
        problem["code"] == "invalid_request" and not broken and not unstorable
    ), f"{problem['code']}: {problem['detail']} {sorted(broken)}"


@schemathesis.check
def a_problem_says_what_it_is(ctx, response, case):
    if response.status_code < 400:
        return
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["type"].endswith(f"/{problem['code']}") and problem["detail"]


@schemathesis.check
def whoever_sends_no_key_learns_nothing(ctx, response, case):
    if ROLE == "anonymous" and case.operation.path not in OPEN:
        assert response.status_code in (400, 401, 404, 405, 413), response.status_code
