"""Other libraries on the rows of default.py; run by it in an environment of their own.

    python default_peers.py JOBS.json        # one line of JSON per fit and setting: weights, seconds
    python default_peers.py --time ROWS COLUMNS

Every setting of a small grid is fitted; default.py keeps the best on the *test* rows, which no analyst
could do for free. The constant column is the intercept.

- diffprivlib: objective perturbation (logistic) and the functional mechanism (linear), pure epsilon,
  neighbours replace a record.
- Opacus: DP-SGD with Poisson batches and momentum on a linear model, as in adult_peers.py. "replace"
  is the privacy for added or removed records that implies ours.
"""

import json
import math
import sys
import time
import warnings

import numpy as np
import torch
from adult_peers import LOSSES, Rows
from diffprivlib.models import LinearRegression, LogisticRegression
from opacus import PrivacyEngine
from sklearn.linear_model import LogisticRegression as NotPrivate

EPOCHS, BATCH = 20, 2048
OPACUS_GRID = {"logistic": [(r, 1.0) for r in (1.0, 2.0, 4.0, 8.0)]}
OPACUS_GRID["squared"] = [(r, c) for c in (0.1, 1.0) for r in (0.5, 2.0, 8.0)]
INVERSE_RIDGES = (0.01, 0.1, 1.0, 10.0)
ALL_LOSSES = {"logistic": lambda m, y: LOSSES["logistic"](m * y)}
ALL_LOSSES["squared"] = lambda m, y: ((m - y) ** 2).mean() / 2


def opacus(x, y, job, setting):
    rate, clip = setting
    epsilon, delta = job["epsilon"], job["delta"]
    if job["method"].endswith("replace"):
        epsilon, delta = epsilon / 2, delta / (1 + math.exp(epsilon / 2))
    torch.manual_seed(job["seed"])
    rows = Rows(torch.tensor(x), torch.tensor(y, dtype=torch.float32))
    batch = min(BATCH, max(1, len(y) // 4))
    loader = torch.utils.data.DataLoader(rows, batch_size=batch, collate_fn=lambda given: given)
    model = torch.nn.Linear(x.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=EPOCHS,
        max_grad_norm=clip,
    )
    for _ in range(EPOCHS):
        for features, labels in loader:
            if len(labels):
                optimizer.zero_grad()
                ALL_LOSSES[job["loss"]](model(features).squeeze(1), labels).backward()
                optimizer.step()
    return next(model.parameters()).detach().numpy()[0]


def diffprivlib(x, y, job, inverse_ridge):
    if job["loss"] == "logistic":
        model = LogisticRegression(
            epsilon=job["epsilon"],
            data_norm=1.0,
            C=inverse_ridge,
            fit_intercept=False,
            max_iter=1000,
            random_state=job["seed"],
        )
        return model.fit(x, y).coef_[0]
    entry = float(x[0, 0])
    model = LinearRegression(
        epsilon=job["epsilon"],
        bounds_X=(0.0, entry),
        bounds_y=(-1.0, 1.0),
        random_state=job["seed"],
    ).fit(x[:, 1:], y)
    return np.r_[model.intercept_ / entry, model.coef_]


def fits(job):
    rows = np.load(job["rows"])
    x, y = rows["x"], rows["y"]
    if job["method"] == "diffprivlib":
        fit, grid = diffprivlib, INVERSE_RIDGES if job["loss"] == "logistic" else [None]
    else:
        fit, grid = opacus, OPACUS_GRID[job["loss"]]
    for setting in grid:
        start = time.perf_counter()
        weights = fit(x, y, job, setting)
        seconds = round(time.perf_counter() - start, 3)
        told = {"setting": str(setting), "seconds": seconds, "weights": weights.tolist()}
        print(json.dumps({**job, **told}), flush=True)


def timed(rows, columns):
    """Seconds of a fit on rows as those of default_time.py: each library's, by the clock and of
    processor."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (rows, columns)).astype(np.float32)
    x *= 1 / math.sqrt(columns)
    margin = x @ rng.normal(size=columns).astype(np.float32) * 4
    y = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-(margin - margin.mean()))), 1.0, -1.0)
    few = min(rows, 50_000)
    job = {"epsilon": 1.0, "delta": 1e-6, "method": "Opacus", "seed": 0, "loss": "logistic"}
    global EPOCHS  # noqa: PLW0603 - all cost the same
    EPOCHS = 1
    private = LogisticRegression(epsilon=1.0, data_norm=1.0, fit_intercept=False)
    for name, fit, times, share in (
        ("scikit-learn", lambda: NotPrivate(C=1.0, max_iter=1000).fit(x, y), 3, 1),
        ("diffprivlib", lambda: private.fit(x, y), 1, 1),
        ("Opacus", lambda: opacus(x[:few], y[:few], job, (1.0, 1.0)), 1, 20 * rows / few),
    ):
        told = {"name": name, "seconds": math.inf, "processor": math.inf}
        for _ in range(times):
            start, used = time.perf_counter(), time.process_time()
            fit()
            told["seconds"] = min(told["seconds"], share * (time.perf_counter() - start))
            told["processor"] = min(told["processor"], share * (time.process_time() - used))
        print(json.dumps(told), flush=True)


def main():
    if sys.argv[1] == "--time":
        timed(*map(int, sys.argv[2:]))
        return
    with open(sys.argv[1]) as file:
        for job in json.load(file):
            fits(job)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the model is so small that a second one only waits
    main()
