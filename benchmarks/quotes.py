"""How long a quote takes by HTTP, in milliseconds: `auto` asked anew, and asked again.

    make bench-quotes

On SQLite, one connection, quotes in sequence. Asked anew, no two quotes have the same epsilon, so each
is planned; asked again, the Plan is there.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.harness import running

SHAPES = ((2_000, 10), (20_000, 100))
LOSSES = ("logistic", "squared", "hinge")


def quote_ms(client, spec):
    start = time.perf_counter()
    client.quote(spec)
    return 1000 * (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quotes", type=int, default=50)
    count = parser.parse_args().quotes
    print(f"{count} quotes of auto each, milliseconds by HTTP: anew, and the same again")
    print(
        f"{'rows':>8}{'columns':>9}  {'loss':10}{'anew p50':>10}{'p95':>8}{'again p50':>11}{'p95':>8}"
    )
    with tempfile.TemporaryDirectory() as folder, running("embedded", Path(folder)) as service:
        for rows, columns in SHAPES:
            scene = service.scene(epsilon=50.0, rows=rows, columns=columns)
            for loss in LOSSES:
                spec = {"dataset": scene.dataset, "algorithm": "auto", "loss": loss}
                asked = [{**spec, "privacy": {"epsilon": 0.3 + 0.03 * i}} for i in range(count)]
                quote_ms(scene.analyst, {**spec, "privacy": {"epsilon": 0.2}})
                figures = []
                for specs in (asked, asked[-1:] * count):
                    figures += np.percentile(
                        [quote_ms(scene.analyst, one) for one in specs], (50, 95)
                    ).tolist()
                print(
                    f"{rows:8}{columns:9}  {loss:10}"
                    + "".join(f"{f:{w}.1f}" for f, w in zip(figures, (10, 8, 11, 8), strict=True))
                )


if __name__ == "__main__":
    main()
