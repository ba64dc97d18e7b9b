"""From rates of error to what they prove."""

from math import log

from scipy.special import betaincinv, ndtri


def clopper_pearson_upper(successes: int, trials: int, alpha: float) -> float:
    """The quantile 1 - alpha of a beta distribution."""
    if successes >= trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, 1 - alpha))


def mu_of(fpr: float, fnr: float) -> float:
    """The mu of the Gaussian trade-off curve through the point (fpr, fnr); 0 if it tells nothing."""
    if fpr >= 1 or fnr >= 1:
        return 0.0
    return max(0.0, float(-ndtri(fpr) - ndtri(fnr)))


def epsilon_of(fpr: float, fnr: float, delta: float = 0.0) -> float:
    """The epsilon below which no (epsilon, delta)-private mechanism has rates as low as these."""
    if fpr + delta >= 1 or fnr + delta >= 1:
        return 0.0
    return max(0.0, log((1 - delta - fnr) / fpr), log((1 - delta - fpr) / fnr))
