"""What other libraries take for the same work; run by kernels.py in an environment of their own.

Prints one JSON object. Needs torch, opacus, opendp and scikit-learn; none of ours.
"""

import json
import time

import numpy as np
import opendp.prelude as dp
import torch
from opacus import PrivacyEngine
from sklearn.linear_model import LogisticRegression

COLUMNS = 100


def data(rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, COLUMNS)) / np.sqrt(COLUMNS)
    return x, x @ rng.normal(size=COLUMNS) + rng.logistic(size=rows) > 0


def seconds(action, repeats=3):
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def opacus_rows_per_second(rows=20_000, batch=500):
    """One epoch of DP-SGD on a linear model."""
    x, y = data(rows)
    inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, labels), batch_size=batch
    )
    model = torch.nn.Linear(COLUMNS, 1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    loss = torch.nn.BCEWithLogitsLoss()

    def epoch():
        for features, target in loader:
            optimizer.zero_grad()
            loss(model(features).squeeze(1), target).backward()
            optimizer.step()

    return rows / seconds(epoch)


def sklearn_seconds(rows):
    x, y = data(rows)
    return seconds(lambda: LogisticRegression(C=1.0, max_iter=1000).fit(x, y))


def opendp(make, metric, scale):
    dp.enable_features("contrib")
    return make(dp.vector_domain(dp.atom_domain(T=int)), metric, scale=scale)


def opendp_samples_per_second(make, metric, count=20_000):
    measurement, zeros = opendp(make, metric, float(2**20)), [0] * count
    return count / seconds(lambda: measurement(zeros))


def opendp_laplace_counts(scale, edge, count=200_000):
    """How often OpenDP's discrete Laplace gave each integer from -edge to edge (tails included)."""
    drawn = opendp(dp.m.make_laplace, dp.l1_distance(T=float), scale)([0] * count)
    return np.bincount(np.clip(drawn, -edge, edge) + edge, minlength=2 * edge + 1).tolist()


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(
        json.dumps(
            {
                "opacus_rows_per_second": opacus_rows_per_second(),
                "sklearn_seconds": sklearn_seconds(200_000),
                "opendp_normal": opendp_samples_per_second(
                    dp.m.make_gaussian, dp.l2_distance(T=float)
                ),
                "opendp_laplace": opendp_samples_per_second(
                    dp.m.make_laplace, dp.l1_distance(T=float)
                ),
                "opendp_laplace_counts": opendp_laplace_counts(3.5, 20),
            }
        )
    )
