"""Quotes: what fits, what a wanted noise costs, which algorithm, and why."""

import asyncio
from threading import Event

import httpx
import pytest

from epsilond import ApiError
from service.api.context import Context
from service.app import create_app
from service.errors import PlanRefused
from service.planning import choose as choosing
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare, epsilon_for_noise
from service.planning.expected import Expected
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from tests.harness import job

FACTS = Facts(
    rows=100_000,
    columns=20,
    storage="fixed",
    feature_step=0.5 / 4095,
    linf_units=4095,
    l2_units=8190,
    label="binary",
    account=AccountTerms.for_ceiling(2.0, 1e-6),
)
MANY = 10**12
COMPARED = {  # for a convex loss
    name
    for name, entry in CATALOG.items()
    if not entry.own_objective and (entry.either or not entry.nonconvex)
}


def spec(**changes):
    return JobSpec.model_validate({**job("ds_1"), "parameters": {}, "ridge": 0.01, **changes})


@pytest.fixture(scope="module")
def scene(service):
    return service.scene(epsilon=2.0)


def test_as_many_jobs_as_a_quote_says_fit_and_not_one_more(service):
    scene = service.scene(epsilon=0.5)
    asked = job(scene.dataset, 0.2)
    count = scene.analyst.quote(asked)["jobs_that_fit"]
    assert count > 2
    for left in range(count, 0, -1):
        assert scene.analyst.quote(asked)["jobs_that_fit"] == left
        scene.analyst.submit(asked)
    quote = scene.analyst.quote(asked)
    assert quote["jobs_that_fit"] == 0 and not quote["fits"] and "units" in quote["refusal"]
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(asked)
    assert refusal.value.code == "budget_exceeded"


@pytest.mark.parametrize(
    "algorithm", ["accelerated-sgd", "clipped-sgd", "gradient-descent", "output-perturbation"]
)
def test_the_epsilon_for_a_noise_is_the_smallest_that_keeps_to_it(algorithm):
    asked = spec(algorithm=algorithm, parameters={"steps": 50})
    for wanted in (0.3, 0.01):
        found = epsilon_for_noise(asked, FACTS, MANY, wanted)
        epsilon = found.guarantee.epsilon
        assert found.prediction.our_noise <= wanted
        for smaller in (epsilon - 1e-6, epsilon * 0.99, epsilon / 2):  # to six decimals, as found
            at = round(min(smaller, epsilon - 1e-6), 6)
            below = asked.privacy.model_copy(update={"epsilon": at})
            less = plan(asked.model_copy(update={"privacy": below}), FACTS)
            assert less.prediction.our_noise > wanted
    with pytest.raises(PlanRefused, match="even epsilon 100 leaves"):
        epsilon_for_noise(asked, FACTS, MANY, 1e-12)


def test_a_quote_for_a_noise_comes_over_http(scene):
    quote = scene.analyst.quote_for_noise(job(scene.dataset), 0.05)
    assert quote["plan"]["prediction"]["our_noise"] <= 0.05
    assert quote["epsilon"] == quote["plan"]["spec"]["privacy"]["epsilon"]
    again = scene.analyst.quote(job(scene.dataset, quote["epsilon"]))
    assert again["plan_digest"] == quote["plan_digest"]
    for noise in (0, -1, "loud"):
        with pytest.raises(ApiError) as refusal:
            scene.analyst.quote_for_noise(job(scene.dataset), noise)
        assert refusal.value.code == "invalid_request"


def test_a_comparison_shows_every_algorithm_or_its_reason(scene):
    able = job(scene.dataset, parameters={}, ridge=0.1)
    compared = scene.analyst.compare(able)
    assert {c["algorithm"] for c in compared["data"]} == COMPARED < set(CATALOG)
    able_ones = [c for c in compared["data"] if c["refusal"] is None]
    assert len(able_ones) >= 2 and compared["data"][: len(able_ones)] == able_ones
    assert all(c["expected"] is None for c in able_ones)  # with a ridge of its own
    ranks = [(CATALOG[c["algorithm"]].places[False], c["excess_risk"]) for c in able_ones]
    assert ranks == sorted(ranks)
    assert compared["choice"]["algorithm"] == compared["data"][0]["algorithm"]
    for candidate in compared["data"]:
        if candidate["refusal"] is None:
            quote = scene.analyst.quote({**able, "algorithm": candidate["algorithm"]})
            assert candidate["price_units"] == quote["plan"]["price"]["units"]
    without = scene.analyst.compare(job(scene.dataset, parameters={}))["data"]
    reasons = {c["algorithm"]: c["refusal"] for c in without}
    assert "ridge" in reasons["clipped-sgd"] and reasons["gradient-descent"] is None
    none = scene.analyst.compare(job(scene.dataset, parameters={"nonsense": 1}))
    assert none["choice"] is None and all(c["refusal"] for c in none["data"])


def test_auto_takes_the_best_and_says_why_in_the_quote_and_the_job(service):
    scene = service.scene()
    asked = job(scene.dataset, algorithm="auto", parameters={}, ridge=0.1)
    compared = scene.analyst.compare(asked)
    best = compared["data"][0]["algorithm"]
    quote = scene.analyst.quote(asked)
    submitted = scene.analyst.submit(asked, idempotency_key="auto")
    assert scene.analyst.submit(asked, idempotency_key="auto") == submitted
    done = scene.analyst.wait(submitted["id"])
    for said in (quote["choice"], submitted["choice"], done["choice"]):
        assert said == compared["choice"] and best in said["reason"]
        assert {c["algorithm"] for c in said["runners_up"]} == COMPARED - {best}
    made = scene.analyst.plan(done["id"])
    assert made["algorithm"] == made["spec"]["algorithm"] == done["spec"]["algorithm"] == best
    assert done["state"] == "succeeded" and scene.analyst.verify(scene.dataset)["verified"]
    named = scene.analyst.quote({**asked, "algorithm": best})
    assert named["choice"] is None and named["plan_digest"] == quote["plan_digest"]


def test_auto_that_nothing_can_plan_lists_every_reason(scene):
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset, algorithm="auto", parameters={"nonsense": 1}))
    assert refusal.value.code == "plan_refused"
    assert all(name in refusal.value.problem["detail"] for name in COMPARED)


def test_expected_errors_come_before_bounds_and_the_smallest_is_taken(scene):
    open_ = job(scene.dataset, 1.0, algorithm="auto", parameters={})
    able = [c for c in scene.analyst.compare(open_)["data"] if c["refusal"] is None]
    medians = [c["expected"]["median"] for c in able if c["expected"] is not None]
    assert len(medians) >= 2 and medians == sorted(medians)
    assert all(c["expected"] is None for c in able[len(medians) :])
    assert scene.analyst.quote(open_)["choice"]["algorithm"] == able[0]["algorithm"]


def test_equal_errors_go_to_the_fewest_gradients(monkeypatch):
    def equal(asked, facts):
        made = plan(asked, facts)
        fewer = 7 if asked.algorithm == "gradient-descent" else 8
        same = Expected(median=0.5, low=0.1, high=0.9, constant=1.0)
        return made.model_copy(update={"expected": same, "gradients": fewer})

    monkeypatch.setattr(choosing, "plan", equal)
    able = compare(spec(), FACTS, MANY)
    made, choice = choose(able)
    assert made.algorithm == choice.algorithm == "gradient-descent"
    assert "7 gradients" in choice.reason and "8" in choice.reason


def test_an_algorithm_beyond_the_services_limit_is_not_eligible():
    able = {c.algorithm.name: c for c in compare(spec(), FACTS, 10**5)}
    assert "this service allows" in able["gradient-descent"].refusal
    made, choice = choose(list(compare(spec(), FACTS, 10**5)))
    assert made.gradients <= 10**5 and choice.algorithm != "gradient-descent"


def test_planning_does_not_keep_others_waiting(service, scene, monkeypatch):
    """Forty inverse quotes at once, none of which is planned before the process answered others."""
    planning, answered = Event(), Event()

    def held(asked, facts):
        planning.set()
        assert answered.wait(60), "nothing was answered while a quote was planned"
        return plan(asked, facts)

    monkeypatch.setattr(choosing, "plan", held)
    app = create_app(service.settings)
    app.state.context = Context(service.settings, service.db, hint=None, feed=None)
    headers = {"Authorization": f"Bearer {scene.analyst.key}"}
    request = {**job(scene.dataset), "noise": 0.05}

    async def quote_while_asking():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://here", headers=headers
        ) as client:
            quotes = [client.post("/v1/quotes/noise", json=request) for _ in range(40)]
            under_way = asyncio.gather(*quotes)
            await asyncio.to_thread(planning.wait)
            others = [await client.get("/healthz") for _ in range(3)]
            answered.set()
            return others + await under_way

    answers = asyncio.run(quote_while_asking())
    assert [answer.status_code for answer in answers] == [200] * 43
