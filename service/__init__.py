"""epsilond's API, planner, ledger and job queue: everything but the numerical work."""

__version__ = "0.1.0"
