"""Opacus on the rows that network.py encoded, with the same network; run by it in an environment of
its own.

    python network_peers.py ROWS.npz RUNS DELTA WIDTH EPSILON...

DP-SGD with Poisson batches and momentum. Its neighbours add or remove a record: at the same epsilon a
weaker guarantee than ours; the second row of each epsilon is at (e/2, d/(1 + exp(e/2))), which
implies (e, d) for replaced records. The learning rate is the best of a small grid on the *test* set.
Prints one JSON object per row of the table: a name, an epsilon, a note, accuracies, gradients per
second of processor time, and the seconds of the quickest fit on the clock.
"""

import json
import math
import sys
import time
import warnings

import numpy as np
import torch
from adult_peers import Rows
from opacus import PrivacyEngine

LEARNING_RATES = (1.0, 4.0)
EPOCHS, BATCH, CLIP = 20, 2048, 0.5


def opacus(x, y, epsilon, delta, width, rate):
    """(the network, gradients per second, seconds on the clock)"""
    rows = Rows(torch.tensor(x, dtype=torch.float32), torch.tensor(y > 0, dtype=torch.float32))
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, collate_fn=lambda batch: batch)
    model = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], width, bias=False),  # a column is constant
        torch.nn.ReLU(),
        torch.nn.Linear(width, 1),
    )
    torch.nn.init.normal_(model[0].weight, std=math.sqrt(2))  # as network_start, for rows of norm 1
    torch.nn.init.normal_(model[2].weight, std=1 / math.sqrt(width))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=EPOCHS,
        max_grad_norm=CLIP,
    )
    loss = torch.nn.BCEWithLogitsLoss()
    start, clock, count = time.process_time(), time.perf_counter(), 0
    for _ in range(EPOCHS):
        for features, target in loader:
            count += len(target)
            optimizer.zero_grad()
            loss(model(features).squeeze(1), target).backward()
            optimizer.step()
    seconds = time.perf_counter() - clock
    return model, count / (time.process_time() - start), seconds


def main():
    path, runs, delta, width, *epsilons = sys.argv[1:]
    rows = np.load(path)
    x, y, x_test, y_test = (rows[name] for name in ("x", "y", "x_test", "y_test"))
    features = torch.tensor(x_test, dtype=torch.float32)

    def fit(privacy, rate):
        model, *speeds = opacus(x, y, *privacy, int(width), rate)
        with torch.no_grad():
            found = model(features).squeeze(1).numpy() > 0
        return float(np.mean(found == (y_test > 0))), *speeds

    for e in map(float, epsilons):
        half = e / 2, float(delta) / (1 + math.exp(e / 2))
        for privacy, neighbours in (((e, float(delta)), "add or remove"), (half, "replace one")):
            rate = max(LEARNING_RATES, key=lambda rate, p=privacy: fit(p, rate)[0])
            fits = [fit(privacy, rate) for _ in range(int(runs))]
            row = {
                "name": f"Opacus network, {neighbours}",
                "epsilon": e,
                "note": f"rate {rate}, picked on the test set",
                "accuracies": [accuracy for accuracy, *_ in fits],
                "rows_per_second": max(speed for _, speed, _ in fits),
                "seconds": min(seconds for *_, seconds in fits),
                "epochs": EPOCHS,
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the model is so small that a second one only waits
    main()
