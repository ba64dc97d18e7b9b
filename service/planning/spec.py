"""What an analyst asks, and what is public about the data asked: the two arguments of a plan."""

from math import inf
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
    linf_units: PositiveInt | None = Field(default=None, le=4095)  # kernels count on 12 bits
    l2_units: PositiveInt | None = None
    label: Literal["binary", "numeric", "unbounded", "categorical"]
    classes: int | None = Field(default=None, ge=2)
    account: AccountTerms

    @model_validator(mode="after")
    def _scales_belong_to_fixed_rows(self) -> Self:
        scales = (self.feature_step, self.linf_units, self.l2_units)
        if any((scale is not None) != (self.storage == "fixed") for scale in scales):
            raise ValueError("fixed rows have a step and norm bounds; float64 rows have none")
        if (self.classes is not None) != (self.label == "categorical"):
            raise ValueError("a categorical label has a number of classes, and no other has")
        return self

    @property
    def l2(self) -> float | None:
        """The enforced bound on a row's l2 norm, or None where only clipping protects a row."""
        if self.feature_step is None or self.l2_units is None:
            return None
        return self.feature_step * self.l2_units

    @property
    def label_bound(self) -> float:
        """No label of a regression is beyond it, on either side of 0."""
        return inf if self.label == "unbounded" else 1.0

    @property
    def linf(self) -> float | None:
        """The enforced bound on a row's largest entry, or None."""
        if self.feature_step is None or self.linf_units is None:
            return None
        return self.feature_step * self.linf_units


class Logistic(_Public):
    """log(1 + exp(-y <w, x>)), for a binary label."""

    kind: Literal["logistic"] = "logistic"


class Hinge(_Public):
    """max(0, 1 - y <w, x>), for a binary label."""

    kind: Literal["hinge"] = "hinge"


class SmoothedHinge(_Public):
    """The hinge with its corner rounded to a parabola over `width`, for a binary label."""

    kind: Literal["smoothed_hinge"] = "smoothed_hinge"
    width: float = Field(default=0.5, ge=1e-6, le=1e6)


class Squared(_Public):
    """(<w, x> - y)^2 / 2. A numeric label with bounds is scaled to [-1, 1], one without is divided by
    its scale."""

    kind: Literal["squared"] = "squared"


class Absolute(_Public):
    """|<w, x> - y|, with labels as for squared: least absolute deviations, the conditional median."""

    kind: Literal["absolute"] = "absolute"


class Huber(_Public):
    """Squared up to `threshold`, linear beyond: r^2/2 for |r| <= t, t (|r| - t/2) otherwise."""

    kind: Literal["huber"] = "huber"
    threshold: float = Field(default=0.1, ge=1e-6, le=1e6)


class Pinball(_Public):
    """quantile * (y - <w, x>) above the fit, (quantile - 1) * (y - <w, x>) below: that quantile."""

    kind: Literal["pinball"] = "pinball"
    quantile: float = Field(default=0.5, gt=0, lt=1)


class Softmax(_Public):
    """Multinomial logistic loss, one vector of weights per class, for a categorical label."""

    kind: Literal["softmax"] = "softmax"


class GeometricMedian(_Public):
    """||w - x||_2: w is a robust centre of the rows. The label is not used."""

    kind: Literal["geometric_median"] = "geometric_median"


class Sigmoid(_Public):
    """1/(1 + exp(y <w, x>)), a smooth count of errors, for a binary label. Not convex."""

    kind: Literal["sigmoid"] = "sigmoid"


class Savage(_Public):
    """1/(1 + exp(y <w, x>))^2, which forgives far outliers, for a binary label. Not convex."""

    kind: Literal["savage"] = "savage"


class Ramp(_Public):
    """The hinge cut off at 2: min(2, max(0, 1 - y <w, x>)), for a binary label. Not convex."""

    kind: Literal["ramp"] = "ramp"


class Welsch(_Public):
    """(s^2/2)(1 - exp(-r^2/s^2)) of the residual r, for `scale` s: squared near the fit, flat far
    from it, for a label in [-1, 1]. Not convex."""

    kind: Literal["welsch"] = "welsch"
    scale: float = Field(default=0.5, ge=1e-6, le=1e6)


class Trimmed(_Public):
    """min(r^2, t^2)/2 of the residual r, for `threshold` t: rows further off count alike, for a label
    in [-1, 1]. Not convex."""

    kind: Literal["trimmed"] = "trimmed"
    threshold: float = Field(default=0.5, ge=1e-6, le=1e6)


class PhaseRetrieval(_Public):
    """|<w, x>^2 - y|: a signal from the sizes of its measurements, for a label in [-1, 1]. Declare the
    label's bounds as -B and B, so that it is scaled and not moved. Weakly convex."""

    kind: Literal["phase_retrieval"] = "phase_retrieval"


class LinearModel(_Public):
    """The margin is <w, x>."""

    kind: Literal["linear"] = "linear"


class ReluNetwork(_Public):
    """The margin is a sum of `width` hidden units, a_h max(0, <w_h, x>), and an offset."""

    kind: Literal["relu_network"] = "relu_network"
    width: int = Field(default=16, ge=1, le=4096)


class AllSpace(_Public):
    """Every w."""

    kind: Literal["all"] = "all"


class L2Ball(_Public):
    """All w with ||w||_2 at most `radius`."""

    kind: Literal["l2_ball"] = "l2_ball"
    radius: float = Field(default=10.0, gt=0, le=1e9)


class L1Ball(_Public):
    """All w with ||w||_1 at most `radius`."""

    kind: Literal["l1_ball"] = "l1_ball"
    radius: float = Field(default=10.0, gt=0, le=1e9)


class LpBall(_Public):
    """All w with ||w||_p at most `radius`, 1 < p <= 2."""

    kind: Literal["lp_ball"] = "lp_ball"
    p: float = Field(default=1.5, gt=1, le=2)
    radius: float = Field(default=10.0, gt=0, le=1e9)


class Simplex(_Public):
    """All w >= 0 whose entries add up to `total`."""

    kind: Literal["simplex"] = "simplex"
    total: float = Field(default=1.0, gt=0, le=1e9)


class Box(_Public):
    """All w with every entry in [lower, upper]."""

    kind: Literal["box"] = "box"
    lower: float = Field(default=-1.0, ge=-1e9, le=1e9)
    upper: float = Field(default=1.0, ge=-1e9, le=1e9)

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError("lower must be below upper")
        return self


class Polytope(_Public):
    """All convex combinations of the vertices, each a list of one number per feature."""

    kind: Literal["polytope"] = "polytope"
    vertices: tuple[tuple[Annotated[float, Field(ge=-1e9, le=1e9)], ...], ...] = Field(
        min_length=1, max_length=10_000
    )

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        if len({len(vertex) for vertex in self.vertices}) != 1:
            raise ValueError("every vertex needs the same number of entries, one per feature")
        if len(self.vertices) * len(self.vertices[0]) > 10**5:
            raise ValueError("vertices times features may be at most 100000")
        return self


class NoRegulariser(_Public):
    """Nothing besides `ridge`."""

    kind: Literal["none"] = "none"


_Strength = Annotated[float, Field(ge=0, le=1e9)]


class L1(_Public):
    """strength ||w||_1, intercepts left out."""

    kind: Literal["l1"] = "l1"
    strength: _Strength


class ElasticNet(_Public):
    """l1 ||w||_1 + (l2/2) ||w||_2^2, intercepts left out."""

    kind: Literal["elastic_net"] = "elastic_net"
    l1: _Strength
    l2: _Strength


class GroupLasso(_Public):
    """strength times the sum over groups g of sqrt(|g|) ||w_g||_2, intercepts left out. `groups` are
    sizes, in the order of the features: the indicators of one categorical column are a group."""

    kind: Literal["group_lasso"] = "group_lasso"
    strength: _Strength
    groups: tuple[PositiveInt, ...] = Field(min_length=1, max_length=100_000)


class Privacy(_Public):
    epsilon: float = Field(ge=1e-6, le=EPSILON_MAX, description="What the job may cost.")
    delta: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Defaults to the account's. 0 asks for pure epsilon (Laplace noise).",
    )


class Released(_Public):
    """The model that a job has published; the digest of its card is filled in when it is asked for."""

    job: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


def _shorthand(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _by_job(value: Any) -> Any:
    return {"job": value} if isinstance(value, str) else value


def _ball_unless_named(value: Any) -> Any:
    return {"kind": "l2_ball", **value} if isinstance(value, dict) else _shorthand(value)


Loss = Annotated[
    Logistic
    | Hinge
    | SmoothedHinge
    | Squared
    | Absolute
    | Huber
    | Pinball
    | Softmax
    | GeometricMedian
    | Sigmoid
    | Savage
    | Ramp
    | Welsch
    | Trimmed
    | PhaseRetrieval,
    Field(discriminator="kind"),
]
ModelKind = Annotated[LinearModel | ReluNetwork, Field(discriminator="kind")]
FeasibleSet = Annotated[
    AllSpace | L2Ball | L1Ball | LpBall | Simplex | Box | Polytope, Field(discriminator="kind")
]
Regulariser = Annotated[NoRegulariser | L1 | ElasticNet | GroupLasso, Field(discriminator="kind")]


class JobSpec(_Public):
    """Fit this loss on this set over that dataset, at this privacy."""

    dataset: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    algorithm: str = Field(max_length=64, description='A name from GET /v1/algorithms, or "auto".')
    loss: Annotated[Loss, BeforeValidator(_shorthand)] = Field(
        description='A loss with its parameters; a bare name such as "logistic" also works.'
    )
    model: Annotated[ModelKind, BeforeValidator(_shorthand)] = Field(
        default=LinearModel(), description="What a row's margin is; linear by default."
    )
    set: Annotated[FeasibleSet, BeforeValidator(_ball_unless_named)] = Field(
        default=L2Ball(), description='A set with its parameters; a bare name such as "all" works.'
    )
    ridge: float = Field(
        default=0.0, ge=0, le=1e9, description="lambda: adds (lambda/2)||w||^2, intercept included."
    )
    regulariser: Annotated[Regulariser, BeforeValidator(_shorthand)] = Field(
        default=NoRegulariser(),
        description="Besides ridge; an algorithm's card says which it takes.",
    )
    of: Annotated[Released | None, BeforeValidator(_by_job)] = Field(
        default=None,
        description="For a certificate: the job whose model is certified; its id will do.",
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
        "constant; required where a column is unbounded, or a label whose loss has no slope bound.",
    )
