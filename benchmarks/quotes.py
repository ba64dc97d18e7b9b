"""How long a quote takes by HTTP, in milliseconds: `auto` asked anew, and asked again.

    make bench-quotes

On SQLite, one connection, quotes in sequence. Asked anew, no two quotes have the same epsilon, so each
is planned; asked again, the Plan is there. `cpu` is what the API's process used, which other tenants
of a machine change less.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.harness import running

SHAPES = ((2_000, 10), (20_000, 100))
LOSSES = ("logistic", "squared", "hinge")


def timed(service, specs, client):
    """(median, 95th percentile, processor time of the API) of a quote, in milliseconds."""
    api = service.processes["api"].pid
    times, before = [], processor_ms(api)
    for spec in specs:
        start = time.perf_counter()
        client.quote(spec)
        times.append(1000 * (time.perf_counter() - start))
    return *np.percentile(times, (50, 95)), (processor_ms(api) - before) / len(specs)


def processor_ms(pid):
    """What a process has used so far."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quotes", type=int, default=50)
    count = parser.parse_args().quotes
    print(f"{count} quotes of auto each, milliseconds by HTTP; anew, and the same again")
    head = "".join(f"{name:>9}" for name in ("p50", "p95", "cpu") * 2)
    print(f"{'rows':>8}{'columns':>9}  {'loss':10}{head}")
    with tempfile.TemporaryDirectory() as folder, running("embedded", Path(folder)) as service:
        for rows, columns in SHAPES:
            scene = service.scene(epsilon=50.0, rows=rows, columns=columns)
            for loss in LOSSES:
                spec = {"dataset": scene.dataset, "algorithm": "auto", "loss": loss}
                asked = [{**spec, "privacy": {"epsilon": 0.3 + 0.03 * i}} for i in range(count)]
                scene.analyst.quote({**spec, "privacy": {"epsilon": 0.2}})
                figures = [
                    figure
                    for specs in (asked, asked[-1:] * count)
                    for figure in timed(service, specs, scene.analyst)
                ]
                print(f"{rows:8}{columns:9}  {loss:10}" + "".join(f"{f:9.1f}" for f in figures))


if __name__ == "__main__":
    main()
