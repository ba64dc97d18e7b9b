"""A clip that is chosen because nothing bounds a gradient, by algorithms of many steps."""

import numpy as np
import pytest

from service.planning.catalog import plan
from tests.planning.cases import facts
from tests.planning.test_defaults import asked
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

N, D = 3000, 3
CHOOSING = (
    "gradient-descent",
    "accelerated-sgd",
    "localized-accelerated-sgd",
    "online-to-nonconvex",
)


def fitted(algorithm, storage, times=1.0, loss="squared", **more):
    """The weights for labels of a line, multiplied by so much."""
    about = facts(storage, rows=N, columns=D, epsilon=50.0, label="unbounded")
    made = plan(asked(algorithm, 50.0, loss=loss, **more), about)
    rng = np.random.default_rng(5)
    x = np.c_[np.full(N, 0.5), rng.uniform(0, 0.5, (N, D - 1))]
    y = times * (x @ [1.0, 2.0, -1.0] + rng.uniform(-0.1, 0.1, N))
    stored = np.rint(4095 * x).astype(np.int16) if storage == "fixed" else x
    data = Data(made, stored, y, Randomness(bytes(32), made.digest()))
    weights = RUNS[algorithm](made, data, Progress())
    data.close()  # all that was paid for was let out
    return made, weights


@pytest.mark.parametrize("algorithm", CHOOSING)
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_it_is_the_first_release_and_the_run_takes_all_that_was_paid_for(algorithm, storage):
    made, weights = fitted(algorithm, storage)
    assert made.spec.set.kind == "all"
    assert made.release.parts[0] == made.private_clip.release()
    assert made.private_clip.rank >= N // 2
    assert np.isfinite(weights).all() and np.abs(weights).max() > 0


@pytest.mark.parametrize("algorithm", ["gradient-descent", "online-to-nonconvex"])
def test_a_network_has_one_too(algorithm):
    model = {"kind": "relu_network", "width": 2}
    made, weights = fitted(algorithm, "float64", model=model, parameters={"steps": 4})
    assert made.private_clip is not None and np.isfinite(weights).all()


@pytest.mark.parametrize("algorithm", CHOOSING[:3])
def test_weights_follow_the_scale_of_labels(algorithm):
    """Larger labels have a larger clip; and steps are of their length, not of a clip of 1."""
    size = [np.linalg.norm(fitted(algorithm, "float64", times)[1]) for times in (1.0, 64.0)]
    assert size[1] == pytest.approx(64 * size[0], rel=0.5)
