"""A quote plans between two reads and says what the ledger would say."""

from contextlib import contextmanager

import pytest

from epsilond import ApiError
from service.quotes import quote as quoting
from tests.harness import job


class Watched:
    """A database that knows how many of its reads are open."""

    def __init__(self, db):
        self.db, self.open, self.reads = db, 0, 0

    @contextmanager
    def read(self):
        with self.db.read() as connection:
            self.open += 1
            self.reads += 1
            try:
                yield connection
            finally:
                self.open -= 1


def spec_of(asked):
    return quoting.JobSpec.model_validate(asked)


@pytest.mark.parametrize("kind", ["quote", "noise", "comparison"])
def test_no_connection_is_open_while_it_plans(service, monkeypatch, kind):
    scene = service.scene()
    db, planned = Watched(service.db), []

    def watched(name):
        act = getattr(quoting, name)

        def wrapped(*args):
            planned.append(db.open)
            return act(*args)

        monkeypatch.setattr(quoting, name, wrapped)

    for name in ("plan_for", "epsilon_for_noise", "compare"):
        watched(name)
    asked = {
        "principal_id": scene.analyst.id,
        "authorised": lambda connection: spec_of(job(scene.dataset)),
    }
    if kind == "comparison":
        quoting.comparison(db, service.settings, **asked)
    elif kind == "noise":
        quoting.quote_for_noise(db, service.settings, noise=0.05, **asked)
    else:
        quoting.quote(db, service.settings, **asked)
    assert planned and set(planned) == {0} and db.open == 0
    assert db.reads == (1 if kind == "comparison" else 2)


def refused(scene, asked):
    """The quote's words, and the code and words with which the same job is refused."""
    quote = scene.analyst.quote(asked)
    assert not quote["fits"]
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(asked)
    assert quote["refusal"] == refusal.value.problem["detail"]
    return refusal.value.code, quote


def test_a_quote_refuses_in_the_words_of_the_ledger(service):
    scene = service.scene(epsilon=1.0)
    code, quote = refused(scene, job(scene.dataset, 1.5))
    assert code == "budget_exceeded" and f"epsilon {quote['largest_epsilon']}" in quote["refusal"]
    grants = f"/v1/datasets/{scene.dataset}/grants/{scene.analyst.id}"
    scene.owner.request("PUT", grants, json={"epsilon_cap": 0.2})
    code, quote = refused(scene, job(scene.dataset, 0.5))
    assert code == "analyst_cap_exceeded" and quote["largest_epsilon"] < 0.21
    assert quote["largest_epsilon"] == quote["budget"]["epsilon_remaining"]
    freeze = f"/v1/datasets/{scene.dataset}/budget/freeze"
    scene.owner.request("POST", freeze, json={"reason": "under review"})
    code, quote = refused(scene, job(scene.dataset, 0.1))
    assert code == "budget_frozen" and "under review" in quote["refusal"]
