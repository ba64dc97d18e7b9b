"""What an analyst asks, and what is public about the data asked: the two arguments of a plan."""

from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from service.planning.conversion import EPSILON_MAX
from service.planning.evaluate import MODELS_MAX, Evaluate
from service.planning.feasible import DefaultSet
from service.planning.kinds import Public
from service.planning.loss import NoLoss
from service.planning.losses import AskedLoss
from service.planning.price import AccountTerms
from service.planning.regularisers import Regulariser
from service.planning.regularisers.none import NoRegulariser
from service.planning.sets import AskedSet
from service.planning.summaries import ASKED_MAX, ColumnFacts, Summary


class Facts(Public):
    """The public facts of a dataset and of the account it spends from. Nothing here was computed
    from the rows but their number, which the neighbouring relation (replace one) makes public.

    `rows` are those that a model may be fitted to, at positions [0, rows) of the dataset; the
    `held_out` rows are at the positions after them."""

    rows: PositiveInt = Field(le=2**30)  # of contributions below 2^30: no sum leaves int64
    held_out: int = Field(default=0, ge=0, le=2**30, exclude_if=lambda count: count == 0)
    columns: PositiveInt
    storage: Literal["fixed", "float64"]
    feature_step: PositiveFloat | None = None
    linf_units: PositiveInt | None = Field(default=None, le=4095)  # kernels count on 12 bits
    l2_units: PositiveInt | None = None
    label: Literal["binary", "numeric", "unbounded", "categorical"]
    classes: int | None = Field(default=None, ge=2)
    account: AccountTerms
    # of the account's cap and the analyst's share, where these have terms of their own
    limits: tuple[AccountTerms, ...] = Field(default=(), exclude_if=lambda limits: not limits)
    # the columns, or the label, that the job's summaries or evaluation name
    described: tuple[ColumnFacts, ...] = Field(default=(), exclude_if=lambda columns: not columns)

    @model_validator(mode="after")
    def _scales_belong_to_fixed_rows(self) -> Self:
        scales = (self.feature_step, self.linf_units, self.l2_units)
        if any((scale is not None) != (self.storage == "fixed") for scale in scales):
            raise ValueError("fixed rows have a step and norm bounds; float64 rows have none")
        if (self.classes is not None) != (self.label == "categorical"):
            raise ValueError("a categorical label has a number of classes, and no other has")
        if any(limit.kind != self.account.kind for limit in self.limits):
            raise ValueError("every limit of an account counts as the account does")
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


class LinearModel(Public):
    """The margin is <w, x>."""

    kind: Literal["linear"] = "linear"


class ReluNetwork(Public):
    """The margin is a sum of `width` hidden units, a_h max(0, <w_h, x>), and an offset."""

    kind: Literal["relu_network"] = "relu_network"
    width: int = Field(default=16, ge=1, le=4096)


class Privacy(Public):
    epsilon: float = Field(ge=1e-6, le=EPSILON_MAX, description="What the job may cost.")
    delta: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Defaults to the account's. 0 asks for pure epsilon (Laplace noise).",
    )


class Released(Public):
    """The model that a job has published; the digest of its card is filled in when it is asked for."""

    job: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


def _shorthand(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _by_job(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_by_job(each) for each in value]
    return {"job": value} if isinstance(value, str) else value


def _ball_unless_named(value: Any) -> Any:
    return {"kind": "l2_ball", **value} if isinstance(value, dict) else _shorthand(value)


def _by_kind(value: Any) -> Any:
    return [_shorthand(each) for each in value] if isinstance(value, list | tuple) else value


Several = Annotated[tuple[Released, ...], Field(min_length=1, max_length=MODELS_MAX)]
ModelKind = Annotated[LinearModel | ReluNetwork, Field(discriminator="kind")]


class JobSpec(Public):
    """Fit this loss on this set over that dataset, at this privacy."""

    dataset: str = Field(pattern=r"^[a-z0-9_]{1,64}$")
    algorithm: str = Field(max_length=64, description='A name from GET /v1/algorithms, or "auto".')
    loss: Annotated[AskedLoss, BeforeValidator(_shorthand)] = Field(
        default=NoLoss(),
        description='A loss with its parameters; a bare name such as "logistic" also works. Left out '
        "only where nothing is fitted.",
        exclude_if=lambda loss: loss.kind == "no_loss",
    )
    model: Annotated[ModelKind, BeforeValidator(_shorthand)] = Field(
        default=LinearModel(), description="What a row's margin is; linear by default."
    )
    set: Annotated[AskedSet, BeforeValidator(_ball_unless_named)] = Field(
        default=DefaultSet(),
        description='A set with its parameters; a bare name such as "all" works. By default the one '
        "that the algorithm does best with.",
    )
    ridge: float = Field(
        default=0.0, ge=0, le=1e9, description="lambda: adds (lambda/2)||w||^2, intercept included."
    )
    regulariser: Annotated[Regulariser, BeforeValidator(_shorthand)] = Field(
        default=NoRegulariser(),
        description="Besides ridge; an algorithm's card says which it takes.",
    )
    of: Annotated[Released | Several | None, BeforeValidator(_by_job)] = Field(
        default=None,
        description="For a certificate or an evaluation: the job whose model that is, its id will do; "
        "for an evaluation, a list of them too.",
    )
    evaluate: Evaluate | None = Field(
        default=None,
        description="How models are evaluated on the rows that were held out.",
        exclude_if=lambda evaluate: evaluate is None,
    )
    summaries: Annotated[tuple[Summary, ...], BeforeValidator(_by_kind)] = Field(
        default=(),
        max_length=ASKED_MAX,
        description="What to tell of columns, in the place of a model; a bare kind is of the label.",
        exclude_if=lambda summaries: not summaries,
    )
    privacy: Privacy
    parameters: dict[str, float | int | str | bool] = Field(
        default_factory=dict, description="The algorithm's own; unknown names are refused."
    )

    @property
    def named(self) -> tuple[Released, ...]:
        """The models that it is about."""
        if self.of is None:
            return ()
        return (self.of,) if isinstance(self.of, Released) else self.of


class StepsAndClip(Public):
    """Parameters shared by the algorithms that release noisy sums of clipped gradients."""

    steps: PositiveInt | None = Field(
        default=None, le=10**6, description="Iterations; by default from the theorem's formula."
    )
    clip: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="Bound on one record's gradient norm. Defaults to the loss's Lipschitz "
        "constant, or a usual slope for the squared loss; required where a column is unbounded, or a "
        "label whose loss has no slope bound.",
    )


class ClipOrPrivate(StepsAndClip):
    """The same, with a clip that may be chosen from the data."""

    clip: Annotated[float, Field(ge=1e-9, le=1e9)] | Literal["private"] | None = Field(  # type: ignore[assignment]
        default=None,
        description='Bound on one record\'s gradient norm; "private" chooses it from the data for a '
        "share of the budget. Defaults to the loss's Lipschitz constant, or a usual slope for the "
        'squared loss; and to "private" where gradients have no bound.',
    )
    clip_share: float = Field(
        default=0.1, ge=0.001, le=0.9, description="Of the budget, for a private clip."
    )
    clip_quantile: float | None = Field(
        default=None, gt=0, lt=1, description="Of the gradients' lengths, for a private clip."
    )
