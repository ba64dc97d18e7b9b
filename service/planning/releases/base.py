"""What every kind of release answers."""

from fractions import Fraction

from pydantic import BaseModel, ConfigDict

from service.planning.releases.metering import Meter


class ReleaseBase(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def renyi(self, order: int) -> Fraction:
        """An upper bound on the Renyi divergence of this order between neighbours."""
        raise NotImplementedError

    def pure(self) -> Fraction | None:
        """An upper bound on the pure epsilon, or None where the release has none."""
        raise NotImplementedError

    def gaussian(self) -> Fraction | None:
        """mu^2 of the one Gaussian this release is equivalent to, or None."""
        return None

    def mu_squared(self) -> Fraction:
        """An upper bound on mu^2 for a mu at which the release is mu-GDP."""
        raise NotImplementedError

    def meter(self) -> Meter:
        """What lets out this release and nothing else, once."""
        raise NotImplementedError
