"""The table of kinds of account and the worked example in docs/budgets.md."""

import tempfile
from collections.abc import Callable, Iterator
from math import pi, sqrt
from pathlib import Path

from sqlalchemy import insert

from service.api.auth import create_principal
from service.db import Database, migrate, new_id, now_ms
from service.errors import Problem
from service.jobs.submit import PlannedSpec
from service.ledger.accounts import find_account, open_account
from service.ledger.adjust import set_share
from service.ledger.admission import standing
from service.ledger.reserve import Wanted, post, reserve
from service.ledger.statement import budget
from service.planning.catalog import plan
from service.planning.conversion import budget_units
from service.planning.price import AccountTerms, price_units
from service.planning.releases import Choice, Exponential, Gaussian, Laplace, Pure, Release
from service.planning.spec import Facts, JobSpec
from service.tables import lineages
from tools.docs.markdown import ROOT, table

PATH = "docs/budgets.md"
EPSILON, DELTA = 1.0, 1e-6
COUNTS = (1, 10, 100, 1000)
UNIT = 2**20  # the sensitivity of what is released
GUMBEL = pi / sqrt(6)  # its standard deviation

MECHANISMS: dict[str, tuple[Callable[[int], Release], float, tuple[str, ...]]] = {
    "Gaussian": (
        lambda scale: Gaussian(sensitivity=UNIT, sigma=scale),
        1.0,
        ("gaussian", "renyi"),
    ),
    "Laplace": (
        lambda scale: Laplace(sensitivity=UNIT, scale=scale),
        sqrt(2),
        ("renyi", "gaussian", "pure"),
    ),
    "Laplace, as stored Plans price it": (
        lambda scale: Pure(sensitivity=UNIT, scale=scale),
        sqrt(2),
        ("renyi",),
    ),
    "choice": (
        lambda scale: Choice(sensitivity=UNIT, scale=scale),
        GUMBEL,
        ("renyi", "gaussian", "pure"),
    ),
    "choice, as stored Plans price it": (
        lambda scale: Exponential(sensitivity=UNIT, scale=scale),
        GUMBEL,
        ("renyi",),
    ),
}


def pages() -> dict[str, str]:
    text = (ROOT / PATH).read_text()
    for name, made in (("accounts", kinds()), ("example", example())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}{end}{rest.split(end)[1]}"
    return {PATH: text}


def kinds() -> str:
    """How much noise each kind of account asks of so many jobs alike that fill it."""
    ideal = sqrt(2 * budget_units(EPSILON, DELTA, "gaussian") / 10**12)
    rows = []
    for name, (make, deviation, allowed) in MECHANISMS.items():
        for kind in allowed:
            noise = (
                deviation * smallest_scale(make, kind, count) / UNIT / (sqrt(count) / ideal)
                for count in COUNTS
            )
            rows.append([name, f"`{kind}`", *(f"{ratio:.3f}" for ratio in noise)])
    heads = ["noise", "account", *(f"{count:,} job{'s' * (count > 1)}" for count in COUNTS)]
    said = (
        f"Noise of one of so many jobs alike that together fill a ceiling of ({EPSILON:g}, {DELTA:g}) "
        "(`pure`: epsilon 1, delta 0): the standard deviation, over that of Gaussian noise by the "
        "exact formula of Balle and Wang for all of them together. Written by `make docs`.\n\n"
    )
    return said + table(heads, rows)


def smallest_scale(make: Callable[[int], Release], kind: str, count: int) -> int:
    delta = 0.0 if kind == "pure" else DELTA
    terms = AccountTerms.for_ceiling(EPSILON, delta, kind)  # type: ignore[arg-type]
    holds = budget_units(EPSILON, delta, terms.kind)
    low, high = 1, UNIT * 2**16
    while low < high:
        middle = (low + high) // 2
        fits = count * price_units(make(middle), terms) <= holds
        low, high = (low, middle) if fits else (middle + 1, high)
    return low


CEILING, CAP, SHARE = 3.0, 1.0, 0.8
FACTS = {
    "rows": 10_000,
    "columns": 10,
    "storage": "fixed",
    "feature_step": 1 / 4095,
    "linf_units": 4095,
    "l2_units": 4095,
    "label": "binary",
}
JOB = {"dataset": "d", "algorithm": "gradient-descent", "loss": "logistic"}
ASKED = [
    ("the analyst", "10 steps over all rows", 0.5, {"steps": 10}),
    ("the analyst", "10 steps on batches of 100", 0.5, {"steps": 10, "batch": 100}),
    ("the analyst", "10 steps over all rows", 0.5, {"steps": 10}),
    ("the owner", "10 steps over all rows", 0.5, {"steps": 10}),
]


def example() -> str:
    """A ledger in a file of its own, with the functions that the service uses."""
    said = (
        f"**An example.** A ceiling of epsilon {CEILING:g} at delta {DELTA:g}, a cap of {CAP:g}, and "
        f"an analyst's share of {SHARE:g}. All fractions are of what that limit holds. Written by "
        "`make docs`, with the ledger's own functions.\n\n"
    )
    heads = ["", "ceiling left", "cap left", "share left", "`epsilon_spent`", "`epsilon_remaining`"]
    with tempfile.TemporaryDirectory() as folder:
        return said + table(heads, _steps(f"sqlite:///{Path(folder) / 'ledger.db'}"))


def _steps(url: str) -> Iterator[list[str]]:
    migrate(url)
    db = Database(url, pool_size=1)
    with db.write() as connection:
        owner = create_principal(connection, "owner", "owner")
        analyst = create_principal(connection, "analyst", "analyst")
        lineage = new_id("lin")
        connection.execute(insert(lineages).values(id=lineage, owner_id=owner, created_ms=now_ms()))
        account = open_account(
            connection,
            lineage_id=lineage,
            principal_id=owner,
            epsilon=CEILING,
            delta=DELTA,
            cap_epsilon=CAP,
        )
        set_share(connection, account.id, analyst, SHARE)

    def row(title: str) -> list[str]:
        with db.read() as connection:
            now = find_account(connection, lineage)
            assert now is not None
            said = budget(connection, standing(connection, now, analyst))
        left = {limit["limit"]: f"{limit['fraction_remaining']:.1%}" for limit in said["limits"]}
        amounts = [left.get(name, "–") for name in ("ceiling", "cap", "share")]
        spent, remaining = said["epsilon_spent"], said["epsilon_remaining"]
        return [title, *amounts, f"{spent:.3f}", f"{remaining:.3f}"]

    yield row("opened")
    for who, what, epsilon, parameters in ASKED:
        principal = analyst if who == "the analyst" else owner
        with db.read() as connection:
            limits = standing(connection, account, principal).limits
        told = tuple(limit.terms for limit in limits[1:])
        facts = Facts.model_validate({**FACTS, "account": account.terms, "limits": told})
        spec = {**JOB, "privacy": {"epsilon": epsilon}, "parameters": parameters}
        made = plan(JobSpec.model_validate(spec), facts)
        title = f"{who}: epsilon {epsilon:g}, {what}"
        price = PlannedSpec(made, None).price
        wanted = Wanted(price, epsilon, DELTA, principal, None, new_id("job"))
        with db.write() as connection:
            (outcome,) = reserve(connection, account.id, [wanted])
            if isinstance(outcome, Problem):
                title += f": *refused* by the {outcome.members['limit']}"
            else:
                post(connection, account.id, outcome, "job succeeded")
        yield row(title)
    db.dispose()
