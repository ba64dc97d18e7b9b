"""The front end, the contract and the books of epsilond."""

__version__ = "0.1.0"
