"""Signing in: a cookie that scripts cannot read, and a token for every change."""

import httpx
import pytest

from service.errors import every_problem
from tests.harness import job

CODES = {problem.code for problem in every_problem()}


def browser(service, **kwargs):
    client = httpx.Client(base_url=service.url, **kwargs)
    service.clients.append(client)
    return client


def signed_in(service, person):
    client = browser(service)
    answer = client.post("/v1/session", json={"key": person.key})
    assert answer.status_code == 201
    client.csrf = {"X-CSRF-Token": answer.json()["csrf"]}
    return client, answer


def refused(response, status, code):
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code) and code in CODES
    return body["detail"]


@pytest.fixture(scope="module")
def scene(service):
    return service.scene()


def test_a_key_is_exchanged_for_a_cookie_that_signs_in(service, scene):
    client, answer = signed_in(service, scene.analyst)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert "secure" not in cookie  # plain http here
    assert scene.analyst.key not in answer.text + cookie
    session = client.get("/v1/session").json()
    assert session["principal"]["id"] == scene.analyst.id
    assert session["principal"]["role"] == "analyst"
    assert session["csrf"] == client.csrf["X-CSRF-Token"]
    assert client.get(f"/v1/datasets/{scene.dataset}").status_code == 200
    token = client.cookies["epsilond_session"]
    stored = service.fact("SELECT hash FROM sessions ORDER BY created_ms DESC LIMIT 1")
    assert token not in stored


def test_over_https_the_cookie_is_secure_and_has_a_name_for_this_host_alone(service, scene):
    client = browser(service, headers={"X-Forwarded-Proto": "https"})
    answer = client.post("/v1/session", json={"key": scene.analyst.key})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-epsilond_session=")
    assert "secure" in cookie.lower() and "path=/" in cookie.lower()
    assert "domain" not in cookie.lower()  # with one a browser would not keep that name
    token = cookie.split("=")[1].split(";")[0]
    for scheme, name, status in (
        ("https", "__Host-epsilond_session", 200),
        ("https", "epsilond_session", 401),
        ("http", "__Host-epsilond_session", 401),
        ("http", "epsilond_session", 200),
    ):
        by = {"X-Forwarded-Proto": scheme, "Cookie": f"{name}={token}"}
        assert browser(service, headers=by).get("/v1/session").status_code == status
    name, own = b"__Host-epsilond_session", token.encode()
    for sent, status in (
        (b"theme=dark; " + name + b"=" + own + b"; a", 200),
        (b"\xa0" + name + b"=" + own, 401),  # a browser takes this name from a neighbouring host
        (name + b"\x85=" + own, 401),
        (name + b"=" + own + b"; \xa0" + name + b"=foreign", 200),
        (name + b"=" + own + b"; " + name + b"=foreign", 401),
        (name + b"=", 401),
    ):
        by = {"X-Forwarded-Proto": b"https", "Cookie": sent}
        assert browser(service, headers=by).get("/v1/session").status_code == status
    by = {"X-Forwarded-Proto": "https", "Cookie": f"__Host-epsilond_session={token}"}
    gone = browser(service, headers=by).delete(
        "/v1/session", headers={"X-CSRF-Token": answer.json()["csrf"]}
    )
    assert gone.status_code == 204
    assert gone.headers["set-cookie"].startswith("__Host-epsilond_session=")


def test_every_change_by_cookie_needs_the_token_and_reading_does_not(service, scene):
    client, _ = signed_in(service, scene.analyst)
    other, _ = signed_in(service, scene.analyst)
    spec = job(scene.dataset, 0.01)
    changes = (
        ("POST", "/v1/jobs", spec),
        ("POST", "/v1/quotes", spec),
        ("POST", "/v1/keys", {}),
        ("PUT", f"/v1/datasets/{scene.dataset}/budget", {"epsilon": 1, "delta": 0}),
        ("DELETE", "/v1/session", None),
    )
    for method, path, body in changes:
        for headers in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "é".encode()}, other.csrf):
            response = client.request(method, path, json=body, headers=headers)
            assert "X-CSRF-Token" in refused(response, 403, "forbidden")
    assert client.post("/v1/quotes", json=spec, headers=client.csrf).status_code == 200
    assert client.post("/v1/jobs", json=spec, headers=client.csrf).status_code == 202
    assert client.get("/v1/jobs").status_code == 200


def test_a_key_in_the_header_goes_before_the_cookie_and_needs_no_token(service, scene):
    client, _ = signed_in(service, scene.analyst)
    with_key = {"Authorization": f"Bearer {scene.owner.key}"}
    assert client.get("/v1/me", headers=with_key).json()["id"] == scene.owner.id
    spec = job(scene.dataset, 0.01)
    assert client.post("/v1/quotes", json=spec, headers=with_key).status_code == 200
    wrong = {"Authorization": "Bearer eps_0_0"}
    refused(client.get("/v1/me", headers=wrong), 401, "unauthenticated")
    alone = httpx.get(f"{service.url}/v1/session", headers=with_key)
    assert "POST /v1/session" in refused(alone, 401, "unauthenticated")


def test_a_foreign_page_cannot_sign_a_browser_in(service, scene):
    """As somebody of its choice, to read what is uploaded then. Browsers send the header."""
    client = browser(service)
    for site in ("cross-site", "same-site"):
        answer = client.post(
            "/v1/session", json={"key": scene.analyst.key}, headers={"Sec-Fetch-Site": site}
        )
        refused(answer, 403, "forbidden")
        assert "set-cookie" not in answer.headers
    own = {"Sec-Fetch-Site": "same-origin"}
    assert (
        client.post("/v1/session", json={"key": scene.analyst.key}, headers=own).status_code == 201
    )


def test_signing_out_ends_the_session_everywhere(service, scene):
    client, _ = signed_in(service, scene.analyst)
    stolen = {"epsilond_session": client.cookies["epsilond_session"]}
    gone = client.delete("/v1/session", headers=client.csrf)
    assert gone.status_code == 204 and "max-age=0" in gone.headers["set-cookie"].lower()
    again = browser(service, cookies=stolen)
    refused(again.get("/v1/session"), 401, "unauthenticated")
    refused(again.get("/v1/events"), 401, "unauthenticated")


@pytest.mark.parametrize("end", ["expired", "key revoked", "key expired"])
def test_a_session_ends_with_its_time_and_with_its_key(service, end):
    person = service.person("analyst")
    client, answer = signed_in(service, person)
    assert client.get("/v1/me").status_code == 200
    session = answer.json()["id"]
    with service.db.write() as connection:
        connection.exec_driver_sql(
            f"UPDATE sessions SET expires_ms = 1 WHERE id = '{session}'"
            if end == "expired"
            else "UPDATE api_keys SET "
            + ("revoked_ms = 1" if end == "key revoked" else "expires_ms = 1")
            + f" WHERE id = (SELECT key_id FROM sessions WHERE id = '{session}')"
        )
    assert "sign in again" in refused(client.get("/v1/me"), 401, "unauthenticated")


def test_use_prolongs_a_session_but_not_for_ever(service):
    client, answer = signed_in(service, service.person("analyst"))
    session = answer.json()["id"]

    def ends(expires_in, ends_in):
        now = service.fact("SELECT created_ms FROM sessions WHERE id = '" + session + "'")
        with service.db.write() as connection:
            connection.exec_driver_sql(
                f"UPDATE sessions SET expires_ms = {now + expires_in}, ends_ms = {now + ends_in} "
                f"WHERE id = '{session}'"
            )
        client.get("/v1/me")
        return service.fact(f"SELECT expires_ms FROM sessions WHERE id = '{session}'") - now

    hour = 3_600_000
    assert ends(hour, 100 * hour) >= 8 * hour
    assert ends(7 * hour, 100 * hour) == 7 * hour  # more than half is left: no write
    assert ends(hour, 2 * hour) == 2 * hour


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"key": "nonsense"}, 401, "unauthenticated"),
        ({"key": "eps_000000000000_" + "0" * 64}, 401, "unauthenticated"),
        ({"key": ""}, 401, "unauthenticated"),
        ({"key": "x" * 300}, 422, "invalid_request"),
        ({"key": 7}, 422, "invalid_request"),
        ({}, 422, "invalid_request"),
    ],
)
def test_signing_in_without_a_valid_key_is_refused(service, body, status, code):
    response = httpx.post(f"{service.url}/v1/session", json=body)
    refused(response, status, code)
    assert "set-cookie" not in response.headers


def test_a_form_of_another_site_cannot_sign_anybody_in(service, scene):
    """Only a form needs no permission to post across sites, and a form cannot send JSON."""
    text = f'{{"key": "{scene.analyst.key}"}}'
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = httpx.post(
            f"{service.url}/v1/session", content=text, headers={"Content-Type": media}
        )
        assert response.status_code == 422 and "set-cookie" not in response.headers


def test_a_signed_in_stream_ends_when_its_session_does(service, scene):
    client, _ = signed_in(service, scene.analyst)
    with client.stream("GET", "/v1/events", timeout=30) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("retry:")
        assert client.delete("/v1/session", headers=client.csrf).status_code == 204
        assert all("event:" not in line for line in lines)  # to the end, which comes
