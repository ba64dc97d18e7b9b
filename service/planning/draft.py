"""What an algorithm plans: everything of a Plan but its price, which `assemble` adds and checks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.planning.lattice import Lattice, MomentLattice
from service.planning.releases import Choice, Release
from service.planning.tables import Counts


class Part(BaseModel):
    """A part of a Plan: plain data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Schedule(Part):
    """What a run does with its releases, step by step. Every one has a `kind` of its own, a Literal
    by which a stored Plan is read again, and `steps`, a field or a property."""

    if TYPE_CHECKING:

        @property
        def steps(self) -> int:
            """How many steps of progress a run reports."""
            raise NotImplementedError

    def released_points(self, rows: int) -> tuple[tuple[range, float], ...]:
        """The points that a run over so many rows releases, if it does: over which of them each is,
        and how far a record may move it."""
        return ()

    def moment_lattices(self) -> tuple[MomentLattice, ...]:
        """Of the moments that a run releases before any sum, if it does."""
        return ()

    def counted(self) -> tuple[Counts, ...]:
        """The tables that a run releases, by release, if it does."""
        return ()

    def evaluates(self) -> bool:
        """Whether a run reads the rows that were held out, and no others."""
        return False

    def derived_constant(self) -> int | None:
        """The constant column of derived rows, where sums are over such (shared/moments.py)."""
        return None

    def label_range(self) -> "LabelRange | None":
        """How the range of labels is chosen, before anything else, if it is."""
        return None

    def settles_clip(self) -> bool:
        """Whether a run may say what the clip of sums is worth, as far as earlier releases tell."""
        return False

    def vertex_unit(self) -> float:
        """What a unit of a vertex is worth, where vertices are chosen."""
        raise TypeError(f"no vertex is chosen by {type(self).__name__}")


class Moreau(Part):
    """Kernels evaluate the loss's Moreau envelope, this smooth in its margin."""

    kind: Literal["moreau"] = "moreau"
    smoothness: PositiveFloat


class Ball(Part):
    """Kernels evaluate the loss averaged over a ball of this radius about w."""

    kind: Literal["ball"] = "ball"
    radius: PositiveFloat


Smoothing = Annotated[Moreau | Ball, Field(discriminator="kind")]


class LabelRange(Part):
    """The interval of labels is chosen from the data, before any sum: see shared/label_range.py."""

    OCTAVES: ClassVar[int] = 8
    SENSITIVITY: ClassVar[int] = 2  # of the difference of two scores, under replacement

    rank: NonNegativeInt
    penalty: NonNegativeInt
    scale: PositiveInt

    def release(self) -> Choice:
        return Choice(sensitivity=self.SENSITIVITY, scale=self.scale)


class PrivateClip(Part):
    """The clip is chosen from the data, before any sum: 2^(j/4) times the lattice's, j in `CHOICES`,
    such that about `rank` records have a gradient at 0 that is no longer: see heavy_tails.py."""

    CHOICES: ClassVar[range] = range(-160, 161)
    SENSITIVITY: ClassVar[int] = 2  # of the difference of two scores, under replacement

    rank: NonNegativeInt
    scale: PositiveInt

    def release(self) -> Choice:
        return Choice(sensitivity=self.SENSITIVITY, scale=self.scale)


class Prediction(Part):
    """From the theorem, order of magnitude only; and an upper bound on all injected noise."""

    theorem: str
    excess_risk: float
    noise_squared: float = Field(description="Expected squared l2 norm of the noise of all steps.")
    paper_noise: float = Field(
        description="The standard deviation that the paper prints for one release; 0 if it has none."
    )
    our_noise: float = Field(description="The calibrated one of the same release.")


@dataclass(frozen=True)
class Draft:
    """What an algorithm's plan function returns."""

    dimension: int
    schedule: Schedule
    lattice: Lattice
    release: Release
    prediction: Prediction
    gradients: int  # of single records, that the run evaluates
    smoothing: Moreau | Ball | None = None
    private_clip: PrivateClip | None = None


def rounded(value: float) -> float:
    """Six significant digits: a prediction must not differ between two machines' logarithms."""
    return float(f"{value:.6g}")
