"""Networks: the pass equals a plain reference, the card predicts what was fitted."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

from epsilond import Model
from service.datasets.encode import columns_from_rows, encode_features
from service.datasets.schema import Schema
from service.jobs.card import Released, model_card
from service.planning.catalog import plan
from service.planning.choose import choose, compare
from service.planning.plan import Plan
from tests.harness import numeric_schema
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_batch, exact_estimate, exact_sum
from workers.algorithms import RUNS
from workers.data import Data
from workers.kernels import simd
from workers.kernels.losses import derivative64, slope_of
from workers.progress import Progress
from workers.randomness import Randomness

KEY = bytes(32)
N, D, H = 300, 21, 5
NETWORK = {"kind": "relu_network", "width": H}
storages = pytest.mark.parametrize("storage", ["fixed", "float64"])
losses = pytest.mark.parametrize("loss", ["logistic", "absolute", "squared"])


def made_plan(storage, loss, algorithm="gradient-descent", **more) -> Plan:
    parameters = {"clip": 0.7} | more
    job = spec(algorithm, 1.0, loss=loss, model=NETWORK, parameters=parameters)
    return plan(job, facts(storage, rows=N, columns=D))


def rows_of(storage) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.integers(-800, 800, (N, D)).astype(np.int16)
    return (x if storage == "fixed" else x / 4095), x / 4095, rng.choice([-1.0, 1.0], N)


def gradients(w, x, y, loss) -> np.ndarray:
    hidden, outer, offset = w[: H * D].reshape(H, D), w[H * D : -1], w[-1]
    t = x @ hidden.T
    r = np.maximum(t, 0)
    m = r @ outer + offset
    slope = {
        "logistic": lambda: -y / (1 + np.exp(y * m)),
        "absolute": lambda: np.sign(m - y),
        "squared": lambda: m - y,
    }[loss]()
    u = slope[:, None] * outer * (t > 0)
    inner = (u[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    return np.concatenate([inner, slope[:, None] * r, slope[:, None]], axis=1)


def clipped(vectors, clip) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors * np.minimum(1, clip / np.maximum(norms, 1e-300))).sum(axis=0)


@storages
@losses
@pytest.mark.parametrize("fast", [True, False])
def test_a_sum_is_that_of_the_clipped_gradients(storage, loss, fast, monkeypatch):
    monkeypatch.setattr(simd, "AVAILABLE", simd.AVAILABLE and fast)
    made, (stored, x, y) = made_plan(storage, loss), rows_of(storage)
    w = np.random.default_rng(1).normal(size=made.dimension) / 3
    found = exact_sum(Data(made, stored, y, Randomness(KEY, "x")), w, 3, 290) * made.lattice.step
    expected = clipped(gradients(w, x[3:290], y[3:290], loss), 0.7)
    assert np.abs(found - expected).max() <= 0.01 * np.abs(expected).max()


@storages
@pytest.mark.parametrize("apart", [0.3, 1e-3])
def test_a_difference_is_that_of_the_gradients_over_the_perturbed_points(storage, apart):
    made = made_plan(
        storage,
        "logistic",
        "online-to-nonconvex",
        steps=4,
        period=4,
        block=4,
        smoothness=2e3 * apart,
    )
    stored, x, y = rows_of(storage)
    rng = np.random.default_rng(2)
    before, around = rng.normal(size=made.dimension) / 3, rng.normal(size=(3, made.dimension)) / 50
    at = before + apart * rng.normal(size=made.dimension) / 10
    data = Data(made, stored, y, Randomness(KEY, "x"))
    later = made.schedule.later
    found = exact_estimate(data, at, before, around, 0, 200) * later.step
    vectors = np.mean(
        [
            gradients(at + v, x, y, "logistic") - gradients(before + v, x, y, "logistic")
            for v in around
        ],
        axis=0,
    )[:200]
    assert np.linalg.norm(vectors, axis=1).max() <= later.clip  # nothing is clipped here
    expected = vectors.sum(axis=0)
    # weights have 15 bits: one unit of one record may bend a little elsewhere
    off = np.abs(found - expected)
    assert np.quantile(off, 0.75) <= 0.02 * np.abs(expected).max()
    assert np.linalg.norm(off) <= np.linalg.norm(expected)


@storages
def test_a_batch_sums_the_rows_at_its_positions(storage):
    made, (stored, _, y) = made_plan(storage, "logistic", batch=40), rows_of(storage)
    data = Data(made, stored, y, Randomness(KEY, "x"))
    w = np.random.default_rng(1).normal(size=made.dimension) / 3
    positions = np.arange(3, 283, 7)
    one_by_one = sum(exact_sum(data, w, i, i + 1) for i in positions)
    assert np.array_equal(exact_batch(data, w, positions), one_by_one)
    assert made.schedule.batch == 40 and made.gradients == 40 * made.schedule.steps


@pytest.mark.parametrize(
    ("rows", "epsilon", "batch"),
    [(300, 1.0, 300), (5000, 1.0, 1250), (10**6, 1.0, 31_250), (10**5, 100.0, 25_000)],
)
def test_of_many_rows_a_step_draws_a_thirty_second_unless_that_doubles_the_noise(
    rows, epsilon, batch
):
    about = facts(rows=rows, epsilon=epsilon)
    made = plan(spec("gradient-descent", epsilon, model=NETWORK), about)
    assert made.schedule.batch == batch
    whole = spec("gradient-descent", epsilon, model=NETWORK, parameters={"batch": rows})
    assert made.prediction.our_noise <= 2.05 * plan(whole, about).prediction.our_noise
    assert plan(spec("gradient-descent", epsilon), about).schedule.batch == rows


def test_blocks_and_threads_change_no_bit(monkeypatch):
    made, (stored, _, y) = made_plan("fixed", "logistic"), rows_of("fixed")
    w = np.random.default_rng(1).normal(size=made.dimension)
    data = Data(made, stored, y, Randomness(KEY, "x"))
    whole = exact_sum(data, w, 0, N)
    parts = sum(exact_sum(data, w, low, low + 50) for low in range(0, N, 50))
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("columns", [16, 17, D, 113])
@pytest.mark.parametrize("width", [1, 2, 16])
def test_vector_instructions_change_no_bit(columns, width, monkeypatch):
    network, rng = {"kind": "relu_network", "width": width}, np.random.default_rng(3)
    job = spec("gradient-descent", 1.0, loss="logistic", model=network, parameters={"clip": 0.7})
    made = plan(job, facts("fixed", rows=N, columns=columns))
    x = rng.integers(-350, 350, (N, columns)).astype(np.int16)
    data = Data(made, x, rng.choice([-1.0, 1.0], N), Randomness(KEY, "x"))
    w = rng.normal(size=made.dimension)
    by_vectors = exact_sum(data, w, 0, N)
    monkeypatch.setattr(simd, "AVAILABLE", False)
    data.use(made.lattice)  # forgets the layout
    assert np.array_equal(by_vectors, exact_sum(data, w, 0, N))


@storages
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_clipped_record_is_as_long_as_the_bound_and_no_longer(storage, delta):
    parameters = {"clip": 0.01}
    job = spec(
        "gradient-descent", 1.0, delta, loss="logistic", model=NETWORK, parameters=parameters
    )
    made, (stored, _, y) = plan(job, facts(storage, rows=N, columns=D)), rows_of(storage)
    data, power = Data(made, stored, y, Randomness(KEY, "x")), 1 if delta == 0.0 else 2
    w = np.random.default_rng(1).normal(size=made.dimension) / 3
    bound = made.lattice.contribution_units**power
    sizes = [sum(abs(int(v)) ** power for v in exact_sum(data, w, i, i + 1)) for i in range(N)]
    assert 0.99 * bound < max(sizes) <= bound


@pytest.mark.parametrize("algorithm", ["gradient-descent", "online-to-nonconvex"])
@pytest.mark.parametrize("delta", [None, 0.0])
def test_a_fitted_network_predicts_from_raw_rows(algorithm, delta):
    schema = numeric_schema(4)
    about = facts(rows=400, columns=5, epsilon=50.0)
    job = spec(algorithm, 40.0, delta, loss="logistic", model=NETWORK, parameters={"steps": 20})
    made = plan(job, about)
    rng = np.random.default_rng(0)
    x, y = rng.integers(-1800, 1800, (400, 5)).astype(np.int16), rng.choice([-1.0, 1.0], 400)
    weights = RUNS[algorithm](made, Data(made, x, y, Randomness(KEY, made.digest())), Progress())
    parsed = Schema.model_validate(schema)
    released = Released(vector=tuple(weights.tolist()))
    card = model_card("job_1", made, "0" * 64, parsed.model_dump_json(), released)
    assert card["coef_"] is None and len(card["network"]["hidden"]) == H
    model = Model(card)
    raw = [{name: 0.1 * i for i, name in enumerate(card["feature_names_in_"])}]
    encoded = encode_features(parsed, columns_from_rows(parsed, raw))
    units = np.maximum(encoded @ weights[: H * 5].reshape(H, 5).T, 0)
    expected = units @ weights[H * 5 : -1] + weights[-1]
    assert model.decision_function(raw) == pytest.approx(expected)
    assert model.predict(raw)[0] in card["classes_"]


def test_auto_takes_what_predicts_a_stationarity():
    about = facts(rows=N, columns=D)
    job = spec("auto", 1.0, loss="logistic", model=NETWORK)
    made, _ = choose(compare(job, about, 10**12))
    assert made.algorithm == "online-to-nonconvex"


# --- losses averaged over a ball, for linear models


@pytest.mark.parametrize("loss", ["ramp", {"kind": "trimmed", "threshold": 0.4}, "phase_retrieval"])
@pytest.mark.parametrize("label", [-1.0, 0.3, 1.0])
def test_an_averaged_slope_is_the_mean_over_the_ball(loss, label):
    """Against numerical integration of one coordinate of a uniform point in the ball."""
    columns, radius = 20, 0.9
    job = spec("online-to-nonconvex", 1.0, loss=loss, parameters={"radius": radius})
    made = plan(job, facts(rows=N, columns=columns))
    slope, k = slope_of(made), columns + 1
    c = np.exp(gammaln(k / 2 + 1) - gammaln((k + 1) / 2)) / np.sqrt(np.pi)
    plain = slope_of(made.model_copy(update={"smoothing": None}))
    for m in np.linspace(-1.6, 1.6, 9):
        expected, _ = quad(
            lambda u, m=m: (
                derivative64(plain, m + radius * u, label) * c * (1 - u * u) ** ((k - 1) / 2)
            ),
            -1,
            1,
            limit=400,
        )
        assert derivative64(slope, m, label) == pytest.approx(expected, abs=2e-3)
