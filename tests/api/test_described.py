"""Plans in words and numbers, epsilons beside the ledger's units: what the dashboard only shows."""

import csv
import gzip
import io
import json
from fractions import Fraction

import httpx
import pytest

from epsilond import ApiError
from service.planning.catalog import CATALOG
from service.planning.describe import describe
from service.planning.plan import Plan
from service.planning.suitable import suitable_losses
from tests.frozen.corpus import CORPUS
from tests.harness import job
from tests.planning.cases import facts, planned


@pytest.fixture(scope="module")
def plans():
    """The stored ones, and one of every algorithm that is newer than they are."""
    with gzip.open(CORPUS) as file:
        stored = json.load(file).values()
    found = [Plan.model_validate_json(entry["plan"]) for entry in stored]
    newer = set(CATALOG) - {plan.algorithm for plan in found}
    return found + [planned(name, facts(), 1.0) for name in sorted(newer)]


def has_prefixes(plan):
    return any(f'"kind":"{kind}"' in plan.canonical() for kind in ("prefixes", "laplace_prefixes"))


def test_every_plan_is_described(plans):
    assert {plan.algorithm for plan in plans} == set(CATALOG)
    for plan in plans:
        made = describe(plan)
        assert plan.algorithm in made.summary
        fitted = not plan.spec.summaries
        assert not fitted or plan.spec.loss.kind.replace("_", " ") in made.summary
        if not has_prefixes(plan):  # there one vector may be a sum of several
            assert sum(release.times for release in made.releases) == made.release_count
        for release in made.releases:
            assert 0 < release.rows <= plan.facts.rows and release.times % release.ranges == 0
            assert (release.population is not None) == (release.reads == "sampled")
            assert release.released in release.words and release.reading in release.words


def test_noise_of_an_objective_is_no_noise_in_a_weight(plans):
    tilted = [plan for plan in plans if hasattr(plan.schedule, "term_step")]
    assert tilted and all(describe(plan).weight_noise is None for plan in tilted)


def test_sensitivity_over_noise_is_what_was_priced(plans):
    """Of Gaussian noise, not drawn: squares add up within a range, and the costliest range counts."""
    checked = 0
    for plan in plans:
        priced, releases = plan.release.gaussian(), describe(plan).releases
        if priced is None or has_prefixes(plan):
            continue
        squares = [
            (r.reads, Fraction(r.times, r.ranges) * Fraction(r.sensitivity / r.noise) ** 2)
            for r in releases
        ]
        shared = sum(square for reads, square in squares if reads == "all")
        apart = max((square for reads, square in squares if reads == "disjoint"), default=0)
        assert float(shared + apart) == pytest.approx(float(priced), rel=1e-9)
        checked += 1
    assert checked > 100


def test_noise_is_in_units_of_what_is_released(plans):
    for plan in plans:
        vectors = [release for release in describe(plan).releases if release.norm is not None]
        assert (vectors == []) == (plan.lattice.kind == "score")
        phases = getattr(plan.schedule, "phases", (plan.schedule,))
        if plan.lattice.kind == "sum":
            first = getattr(phases[0], "lattice", plan.lattice).noise_scale
        elif plan.lattice.kind == "point":
            first = phases[0].lattice_step * 2.0**plan.lattice.bits
        elif plan.lattice.kind == "count":  # in units of its most precise table
            first = 2.0**plan.lattice.bits / max(plan.lattice.weights)
        if hasattr(
            plan.schedule, "term_step"
        ):  # the point's noise comes after that of its objective
            point = vectors.pop()
            assert (point.noise, point.norm) == (first, plan.lattice.norm)
            first = plan.schedule.term_step * plan.schedule.term.scale
        for moments in plan.moments:  # come before sums over what is derived from them
            made = vectors.pop(0)
            assert (made.noise, made.norm) == (moments.step * 2.0**moments.bits, moments.norm)
        assert plan.lattice.kind != "moment" or vectors == []
        if vectors:
            assert vectors[0].noise == first and vectors[0].norm == plan.lattice.norm


def test_a_jobs_releases_are_those_of_its_quote(service):
    scene = service.scene()
    asked = job(scene.dataset, 0.5, parameters={"steps": 7})
    quote = scene.analyst.quote(asked)
    done = scene.analyst.submit(asked)["id"]
    said = scene.analyst.request("GET", f"/v1/jobs/{done}/releases")
    assert said["plan_digest"] == quote["plan_digest"] and said["job"] == done
    for field in ("summary", "releases", "release_count", "weight_noise"):
        assert said[field] == quote[field]
    (release,) = said["releases"]
    assert release["mechanism"] == "Gaussian" and release["reads"] == "all"
    assert release["times"] == said["release_count"] == 7
    stranger = service.person("analyst")
    with pytest.raises(ApiError) as refusal:
        stranger.request("GET", f"/v1/jobs/{done}/releases")
    assert refusal.value.code == "not_found"


def test_entries_carry_the_balance_after_them(service):
    scene = service.scene(epsilon=2.0)
    for epsilon in (0.3, 0.2):
        scene.analyst.wait(scene.analyst.submit(job(scene.dataset, epsilon))["id"])
    address = f"/v1/datasets/{scene.dataset}/ledger"
    entries = scene.owner.request("GET", address)["data"]
    budget = scene.owner.budget(scene.dataset)
    assert [e["kind"] for e in entries] == ["open", "reserve", "post", "reserve", "post"]
    spent = pending = 0
    for entry in entries:
        pending += {"reserve": 1, "post": -1}.get(entry["kind"], 0) * entry["units"]
        spent += entry["units"] if entry["kind"] == "post" else 0
        left = budget["units_ceiling"] - spent - pending
        assert (entry["units_spent"], entry["units_reserved"]) == (spent, pending)
        assert entry["units_remaining"] == left
        assert entry["fraction_remaining"] == left / budget["units_ceiling"]
    assert [e["epsilon"] for e in entries] == [2.0, 0.3, 0.3, 0.2, 0.2]
    for field in ("units_spent", "units_reserved", "units_remaining", "fraction_remaining"):
        assert entries[-1][field] == budget[field]
    posted = scene.owner.request("GET", f"{address}?kind=post&starting_after=3")["data"]
    assert posted == [entries[-1]]  # a filter and a cursor leave the balance as it was
    answer = httpx.get(
        f"{service.url}{address}.csv", headers={"Authorization": f"Bearer {scene.owner.key}"}
    )
    exported = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["units_remaining"]) for row in exported] == [
        e["units_remaining"] for e in entries
    ]


def test_a_share_says_what_is_committed_of_it(service):
    scene = service.scene(epsilon=2.0)
    share = {"epsilon_cap": 1.0}
    scene.owner.request(
        "PUT", f"/v1/datasets/{scene.dataset}/grants/{scene.analyst.id}", json=share
    )
    scene.analyst.submit(job(scene.dataset, 0.3))
    ceiling, share = scene.analyst.budget(scene.dataset)["limits"]
    assert (ceiling["limit"], share["limit"], share["epsilon"]) == ("ceiling", "share", 1.0)
    assert share["in_advance"] and share["order"] > ceiling["order"]
    for limit in (ceiling, share):
        parts = [limit[f"units_{part}"] for part in ("spent", "reserved", "remaining")]
        assert sum(parts) == limit["units"] and parts[2] < limit["units"]


def test_a_dataset_says_which_losses_suit_it(service, plans):
    scene = service.scene()
    losses = scene.analyst.request("GET", f"/v1/datasets/{scene.dataset}")["losses"]
    first = scene.analyst.quote({**job(scene.dataset, parameters={}), "loss": losses[0]})
    assert first["plan"]["spec"]["loss"]["kind"] == losses[0]
    for plan in plans:
        suitable = suitable_losses(plan.facts)
        assert plan.spec.summaries or plan.spec.loss.kind in suitable
        assert len(set(suitable)) == len(suitable)
