"""The grid of jobs that every algorithm is planned for: accounts, sizes, epsilons."""

from service.planning.catalog import CATALOG
from service.planning.plan import Plan
from tests.planning.cases import ROWS, facts, planned

ACCOUNTS = {  # (the account's kind and delta, the job's delta or None for the account's)
    "renyi": ("renyi", 1e-6, None),
    "pure": ("pure", 0.0, None),
    "gaussian": ("gaussian", 1e-6, None),
    "smaller delta": ("renyi", 1e-6, 1e-9),
    "larger delta": ("renyi", 1e-6, 1e-3),
    "smaller delta on gaussian": ("gaussian", 1e-6, 1e-9),
    "pure job on renyi": ("renyi", 1e-6, 0.0),
    "pure job on gaussian": ("gaussian", 1e-6, 0.0),
}
SIZES = [(2, 1), (1000, 20), (10**8, 300)]
EPSILONS = [1e-4, 0.1234567, 1.0, 100.0]
CASES = [
    (algorithm, account, storage, rows, columns, epsilon)
    for algorithm in CATALOG
    for account in ACCOUNTS
    for storage in ROWS[algorithm].storages
    for rows, columns in SIZES
    for epsilon in EPSILONS
]


def plan_of(case) -> Plan:
    algorithm, account, storage, rows, columns, epsilon = case
    kind, delta, job_delta = ACCOUNTS[account]
    about = facts(storage, rows, columns, epsilon, delta, kind=kind)
    return planned(algorithm, about, epsilon, job_delta)
