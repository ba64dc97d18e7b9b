"""Uses the four examples in the tree on the path, and prints what came of it.

python use.py FOLDER, with FOLDER for files"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from service.datasets import formats, ingest
from service.datasets.schema import Schema
from service.planning.catalog import plan
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import GateError
from workers.progress import Progress
from workers.randomness import Randomness

N, D, STEP, EPSILON = 400, 3, 1 / 4095, 50.0
LOSS = {"kind": "pseudo_huber", "width": 0.5}
SET = {"kind": "nonnegative_ball", "radius": 0.03}
FACTS = Facts(
    rows=N,
    columns=D,
    storage="fixed",
    feature_step=STEP,
    linf_units=4095,
    l2_units=4095,
    label="numeric",
    account=AccountTerms.for_ceiling(EPSILON, 1e-6),
)
RNG = np.random.default_rng(1)
X = RNG.integers(-2000, 2000, (N, D)).astype(np.int16)
Y = np.clip(X @ np.array([2.0, -1.0, 1.0]) * STEP, -1.0, 1.0)


def fitted(algorithm: str, loss: Any, feasible: Any) -> dict[str, Any]:
    """A job planned, priced, metered and run; and what the gate says to a run that wants more."""
    privacy = {"epsilon": EPSILON}
    asked = {"dataset": "d", "algorithm": algorithm, "loss": loss, "set": feasible}
    made = plan(JobSpec.model_validate(asked | {"privacy": privacy}), FACTS)
    data = Data(made, X, Y, Randomness(bytes(32), made.digest()))
    weights = RUNS[algorithm](made, data, Progress())
    try:
        data.noisy_sum(weights, 0, N)
        refusal = ""
    except GateError as refused:
        refusal = str(refused)
    return {
        "weights": weights.tolist(),
        "price": made.price.units,
        "noise": made.prediction.our_noise,
        "read again": Plan.model_validate_json(made.canonical()) == made,
        "refusal": refusal,
    }


def reference() -> list[float]:
    """The step of the example algorithm on the example loss over the example set, without noise."""
    width, radius, x = LOSS["width"], SET["radius"], X * STEP
    slopes = -Y / np.sqrt(1 + (Y / width) ** 2)  # of the residual 0 - y
    w = np.maximum(-(x.T @ slopes) / N / 2, 0.0)
    return (w * min(1.0, radius / np.linalg.norm(w))).tolist()


def ingested(folder: Path) -> dict[str, Any]:
    """One table in two formats: what is stored of each."""
    rows = [
        {"age": 41, "ward": "B", "note": None, "y": "yes"},
        {"age": 19.5, "ward": "C", "note": "x", "y": "no"},
    ]
    schema = {
        "columns": [
            {"name": "age", "kind": "numeric", "lower": 0, "upper": 110},
            {"name": "ward", "kind": "categorical", "categories": ["A", "B"]},
            {"name": "note", "kind": "ignored"},
        ],
        "label": {"name": "y", "kind": "binary", "positive": "yes", "negative": "no"},
    }
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    (folder / "t.csv").write_text("\n".join([",".join(rows[0]), *lines]))
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = {}
    for source in (folder / "t.csv", folder / "t.jsonl"):
        out = folder / f"out-{source.suffix}"
        request = ingest.IngestRequest(
            source=source,
            format=formats.guess(source).name,
            schema=Schema.model_validate(schema),
            out_dir=out,
            content_key="ab" * 32,
            shuffle_key="cd" * 32,
            max_rows=100,
            cpu_seconds=60,
            memory_bytes=2 << 30,
        )
        ingest.ingest(request)
        found[source.suffix] = {p.name: p.read_bytes().hex() for p in sorted(out.iterdir())}
    return found


if __name__ == "__main__":
    seen = {
        "all three": fitted("single-gradient-step", LOSS, SET),
        "algorithm": fitted("single-gradient-step", "squared", "l2_ball"),
        "loss": fitted("gradient-descent", LOSS, "l2_ball"),
        "set": fitted("gradient-descent", "squared", SET),
        "reference": reference(),
        "format": ingested(Path(sys.argv[1])),
    }
    print(json.dumps(seen))
