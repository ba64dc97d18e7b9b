"""Other libraries on the rows that adult.py encoded; run by it in an environment of their own.

    python adult_peers.py ROWS.npz RUNS DELTA EPSILON...

Prints one JSON object per row of the table: a name, an epsilon, a note, and the weights of each run.
The constant column is the intercept for all of them. Settings come from small grids; the best on the
*test* set is kept, which no analyst could do for free.

- scikit-learn: logistic regression without privacy, the ceiling.
- diffprivlib: objective perturbation, pure epsilon, neighbours replace one record.
- Opacus: DP-SGD with Poisson batches and momentum on the same linear model, for the logistic and for
  the hinge loss. Its neighbours add or remove a record: at the same epsilon a weaker guarantee than
  ours. A replacement is a removal and an addition, so (e/2, d/(1 + exp(e/2))) there implies (e, d) for
  replaced records: the rows named "replace".
"""

import json
import math
import sys
import warnings

import numpy as np
import torch
from diffprivlib.models import LogisticRegression as PrivateLogisticRegression
from opacus import PrivacyEngine
from sklearn.linear_model import LogisticRegression

TRIES = 3  # runs per setting when picking from a grid
INVERSE_RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0)
LEARNING_RATES = (1.0, 2.0, 4.0, 8.0)
EPOCHS, BATCH = 20, 2048


def ceiling(x, y):
    return LogisticRegression(C=10.0, fit_intercept=False, max_iter=2000).fit(x, y).coef_[0]


def diffprivlib(x, y, epsilon, inverse_ridge):
    model = PrivateLogisticRegression(
        epsilon=epsilon, data_norm=1.0, C=inverse_ridge, fit_intercept=False, max_iter=1000
    )
    return model.fit(x, y).coef_[0]


class Rows(torch.utils.data.TensorDataset):
    def __getitems__(self, positions):
        """A whole batch at once: taken row by row it would cost more than the gradients."""
        return tuple(tensor[positions] for tensor in self.tensors)


LOSSES = {
    "logistic": lambda margins: torch.nn.functional.softplus(-margins).mean(),
    "hinge": lambda margins: torch.relu(1 - margins).mean(),
}


def opacus(x, y, loss, epsilon, delta, learning_rate):
    rows = Rows(torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32))
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, collate_fn=lambda batch: batch)
    model = torch.nn.Linear(x.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=EPOCHS,
        max_grad_norm=1.0,
    )
    for _ in range(EPOCHS):
        for features, labels in loader:
            optimizer.zero_grad()
            LOSSES[loss](labels * model(features).squeeze(1)).backward()
            optimizer.step()
    return next(model.parameters()).detach().numpy()[0].astype(float)


def main():
    path, runs, delta, *epsilons = sys.argv[1:]
    rows = np.load(path)
    x, y, x_test, y_test = (rows[name] for name in ("x", "y", "x_test", "y_test"))

    def accuracy(weights):
        return np.mean((x_test @ weights > 0) == (y_test > 0))

    def best(fit, grid):
        return max(
            grid, key=lambda setting: np.mean([accuracy(fit(setting)) for _ in range(TRIES)])
        )

    def show(name, epsilon, note, fit, count=int(runs)):
        weights = [fit().tolist() for _ in range(count)]
        row = {"name": name, "epsilon": epsilon, "note": note, "weights": weights}
        print(json.dumps(row), flush=True)

    for e in map(float, epsilons):
        show("diffprivlib", e, "C = 1 (default); pure", lambda e=e: diffprivlib(x, y, e, 1.0))
    for e in map(float, epsilons):
        C = best(lambda C, e=e: diffprivlib(x, y, e, C), INVERSE_RIDGES)
        note = f"C = {C}, picked on the test set; pure"
        show("diffprivlib, best C", e, note, lambda e=e, C=C: diffprivlib(x, y, e, C))
    for e in map(float, epsilons):
        half = e / 2, float(delta) / (1 + math.exp(e / 2))
        for neighbours, privacy in {"add or remove": (e, float(delta)), "replace": half}.items():
            for loss in LOSSES:
                given = x, y, loss, *privacy
                rate = best(lambda rate, given=given: opacus(*given, rate), LEARNING_RATES)
                note = f"rate {rate}, picked on the test set"
                name = f"Opacus, {loss}, {neighbours}"
                show(name, e, note, lambda given=given, rate=rate: opacus(*given, rate))
    show("scikit-learn, not private", "-", "", lambda: ceiling(x, y), count=1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the model is so small that a second one only waits
    main()
