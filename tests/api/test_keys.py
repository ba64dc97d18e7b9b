"""Keys end with the key that they were made with, and somebody keeps a way in."""

from types import SimpleNamespace

import pytest

from epsilond import ApiError
from service.api import principals
from service.api.auth import caller_of_key, create_key, create_principal
from service.api.once import _Once
from service.api.schemas.principals import KeyRequest
from service.errors import LastWayIn, Unauthenticated
from tests.api.at_once import at_once


def works(client):
    try:
        client.me()
    except ApiError as refusal:
        assert refusal.status == 401
        return False
    return True


def refused(action, status, code):
    with pytest.raises(ApiError) as refusal:
        action()
    assert (refusal.value.status, refusal.value.code) == (status, code)


def heir(service, client, **kwargs):
    made = client.add_key(**kwargs)
    found = service.client(made["key"])
    found.made = made
    return found


@pytest.mark.parametrize("how", ["revoked", "rotated", "all revoked"])
def test_keys_end_with_the_key_that_they_were_made_with(service, how):
    person = service.person("analyst")
    child = heir(service, person)
    grandchild = heir(service, child)
    other = heir(service, person)
    assert grandchild.made["minted_by"] == child.made["id"]
    assert not grandchild.made["outlives"]
    if how == "revoked":
        person.revoke_key(child.made["id"])
    elif how == "rotated":
        rotated = service.client(child.rotate_key(child.made["id"])["key"])
        assert works(rotated)
        assert rotated.keys()[0]["minted_by"] == other.made["minted_by"]  # in the old one's place
    else:
        person.revoke_keys(person.id)
    assert not works(child)
    assert not works(grandchild)
    assert works(person) == works(other) == (how != "all revoked")


def test_a_key_cannot_revoke_the_one_it_was_made_with(service):
    person = service.person("owner")
    parent = person.keys()[0]["id"]
    child = heir(service, person)
    refused(lambda: child.revoke_key(parent), 403, "forbidden")
    refused(lambda: child.rotate_key(parent), 403, "forbidden")
    refused(lambda: child.revoke_keys(person.id), 403, "forbidden")
    assert works(person)
    child.revoke_key(child.made["id"])
    assert not works(child)


def test_a_session_mints_for_the_key_that_opened_it(service):
    import httpx  # noqa: PLC0415 - a browser, only here

    person = service.person("owner")
    first = heir(service, person)
    with httpx.Client(base_url=service.url) as browser:
        opened = browser.post("/v1/session", json={"key": first.made["key"]}).json()
        made = browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": opened["csrf"]}).json()
    assert made["minted_by"] == first.made["id"]
    person.revoke_key(first.made["id"])
    assert not works(service.client(made["key"]))


def test_only_an_administrator_makes_keys_that_outlive_their_own(service):
    person = service.person("analyst")
    refused(lambda: person.add_key(outlives=True), 403, "forbidden")
    assert not person.add_key(outlives=False)["outlives"]
    deputy = service.person("admin")
    analyst = service.person("analyst")
    theirs = heir(service, deputy, principal=analyst.id)
    bound = heir(service, deputy, principal=analyst.id, outlives=False)
    own, bound_own = heir(service, deputy, outlives=True), heir(service, deputy)
    service.admin.revoke_key(theirs.made["minted_by"])
    assert works(theirs) and works(own)
    assert not any(works(client) for client in (deputy, bound, bound_own))


def test_everything_that_was_made_with_a_stolen_key_can_be_revoked_at_once(service):
    deputy, analyst = service.person("admin"), service.person("analyst")
    theirs = heir(service, deputy, principal=analyst.id)
    own = heir(service, deputy, outlives=True)
    later = heir(service, own, outlives=True)
    refused(lambda: analyst.request("DELETE", "/v1/keys/x?everything=true"), 403, "forbidden")
    service.admin.revoke_key(theirs.made["minted_by"], everything=True)
    assert not any(works(c) for c in (deputy, theirs, own, later))
    assert works(analyst)


def test_an_administrator_revokes_all_keys_of_a_principal_and_nobody_else_does(service):
    person, other = service.person("analyst"), service.person("analyst")
    refused(lambda: other.revoke_keys(person.id), 403, "forbidden")
    refused(lambda: service.admin.revoke_keys("prn_nobody"), 404, "not_found")
    service.admin.revoke_keys(person.id)
    assert not works(person)
    assert works(other)


@pytest.fixture
def two_admins(db):
    """A database with two administrators, each with one key, as the API's functions see them."""
    ctx = SimpleNamespace(callers={}, db=db)
    with db.write() as connection:
        made = [create_key(connection, create_principal(connection, n, "admin")) for n in "ab"]
    return ctx, [caller_of_key(ctx, key) for _, key in made]


def without_key(ctx):
    """A request without an Idempotency-Key."""
    return _Once(ctx, "", None, "", None, 201)


def test_the_last_key_of_an_administrator_is_not_revoked(two_admins):
    ctx, (first, second) = two_admins
    principals.revoke_key(ctx, first, second.key)
    with pytest.raises(LastWayIn):
        principals.revoke_key(ctx, first, first.key)
    with pytest.raises(LastWayIn):
        principals.revoke_keys(ctx, first, first.id)
    made = principals.rotate_key(first, without_key(ctx), first.key)  # the new one is a way in
    again = caller_of_key(ctx, made["key"])
    principals.add_key(again, without_key(ctx), KeyRequest(outlives=True))
    principals.revoke_key(ctx, again, again.key)


def test_two_administrators_cannot_revoke_each_other_at_once(two_admins):
    ctx, (first, second) = two_admins
    pairs = iter([(first, second.key), (second, first.key)])

    def revoke():
        me, key = next(pairs)
        try:
            return principals.revoke_key(ctx, me, key).status_code
        except LastWayIn as refusal:
            return refusal.status

    assert sorted(at_once(2, revoke)) == [204, 409]


def test_a_key_that_is_being_revoked_mints_nothing(two_admins):
    """Either the new key is found and revoked with it, or it is not made."""
    ctx, (first, _) = two_admins
    once = without_key(ctx)
    made = principals.add_key(first, once, KeyRequest())
    minter = caller_of_key(ctx, made["key"])
    revokes = (principals.revoke_key, ctx, first, minter.key)
    acts = iter([revokes] + [(principals.add_key, minter, once, KeyRequest())] * 5)

    def act():
        what, *arguments = next(acts)
        try:
            return what(*arguments)
        except Unauthenticated:
            return None

    for outcome in at_once(6, act):
        if isinstance(outcome, dict):
            with pytest.raises(Unauthenticated):
                caller_of_key(ctx, outcome["key"])
