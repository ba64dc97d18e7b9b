"""What an analyst asks, and what is public about the data asked: the two arguments of a plan."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from service.planning.conversion import EPSILON_MAX
from service.planning.price import AccountTerms


class _Public(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Facts(_Public):
    """The public facts of a dataset and of the account it spends from. Nothing here was computed
    from the rows but their number, which the neighbouring relation (replace one) makes public."""

    rows: PositiveInt = Field(le=2**30)  # of contributions below 2^30: no sum leaves int64
    columns: PositiveInt
    storage: Literal["fixed", "float64"]
    feature_step: PositiveFloat | None = None
    linf_units: PositiveInt | None = None
    l2_units: PositiveInt | None = None
    label: Literal["binary", "numeric"]
    account: AccountTerms

    @model_validator(mode="after")
    def _scales_belong_to_fixed_rows(self) -> Self:
        scales = (self.feature_step, self.linf_units, self.l2_units)
        if any((scale is not None) != (self.storage == "fixed") for scale in scales):
            raise ValueError("fixed rows have a step and norm bounds; float64 rows have none")
        return self

    @property
    def l2(self) -> float | None:
        """The enforced bound on a row's l2 norm, or None where only clipping protects a row."""
        if self.feature_step is None or self.l2_units is None:
            return None
        return self.feature_step * self.l2_units


class Logistic(_Public):
    """log(1 + exp(-y <w, x>)), for a binary label."""

    kind: Literal["logistic"] = "logistic"


class Squared(_Public):
    """(<w, x> - y)^2 / 2, for any label (scaled to [-1, 1])."""

    kind: Literal["squared"] = "squared"


class L2Ball(_Public):
    """All w with ||w||_2 at most `radius`."""

    kind: Literal["l2_ball"] = "l2_ball"
    radius: float = Field(default=10.0, gt=0, le=1e9)


class Privacy(_Public):
    epsilon: float = Field(ge=1e-6, le=EPSILON_MAX, description="What the job may cost.")
    delta: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Defaults to the account's. 0 asks for pure epsilon (Laplace noise).",
    )


def _shorthand(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Loss = Annotated[Logistic | Squared, Field(discriminator="kind")]


class JobSpec(_Public):
    """Fit this loss on this set over that dataset, at this privacy."""

    dataset: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    algorithm: str = Field(max_length=64, description="A name from GET /v1/algorithms.")
    loss: Annotated[Loss, BeforeValidator(_shorthand)] = Field(
        description='A loss with its parameters; a bare name such as "logistic" also works.'
    )
    set: L2Ball = L2Ball()
    ridge: float = Field(
        default=0.0, ge=0, le=1e9, description="lambda: adds (lambda/2)||w||^2, intercept included."
    )
    privacy: Privacy
    parameters: dict[str, float | int | str | bool] = Field(
        default_factory=dict, description="The algorithm's own; unknown names are refused."
    )


class StepsAndClip(_Public):
    """Parameters shared by the algorithms that release noisy sums of clipped gradients."""

    steps: PositiveInt | None = Field(
        default=None, le=10**6, description="Iterations; by default from the theorem's formula."
    )
    clip: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="Bound on one record's gradient norm. Defaults to the loss's Lipschitz "
        "constant; required where a column is unbounded.",
    )
