"""Play many histories: `make simulate SEEDS=1000 FIRST=0`. A failing one is made short and printed."""

import argparse
import logging
import time
from collections import Counter

from tests.simulation.play import Failed, draw, failure, opened_stage, shrink
from tools.campaigns import record

NOTED = 100  # seeds


def report(stage, seed):
    """A failing history, as short as it gets."""
    scene, steps = draw(seed)
    short = shrink(stage, scene, steps)
    failed = failure(stage, scene, short)
    lines = [f"seed {seed}, {len(steps)} steps shrunk to {len(short)}: {failed}", f"scene {scene}"]
    return "\n".join([*lines, *map(str, short), "what happened:", *failed.world.log])


def campaign(seeds, noted=lambda *so_far: None):
    """(findings, lifecycles, steps, faults by kind) of these seeds, up to the first failure. `noted`
    is told of all but the findings every now and then."""
    lifecycles, steps, faults = 0, 0, Counter()
    with opened_stage() as stage:
        for number, seed in enumerate(seeds, 1):
            scene, drawn = draw(seed)
            try:
                world = stage.play(scene, drawn)
            except Failed:
                return report(stage, seed), lifecycles, steps, faults
            lifecycles += len(world.noise)
            steps += world.steps
            faults.update(world.faults)
            if number % NOTED == 0:
                noted(number, lifecycles, steps, faults)
    return None, lifecycles, steps, faults


def recording(first):
    """Write down how far it came: a campaign of hours may be ended at any time."""
    started = time.process_time()

    def noted(seeds, lifecycles, steps, faults):
        record(
            "simulate",
            command=f"make simulate SEEDS={seeds} FIRST={first}",
            seeds=seeds,
            lifecycles=lifecycles,
            steps=steps,
            faults=dict(sorted(faults.items())),
            cpu_seconds=round(time.process_time() - started),
        )

    return noted


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="into docs/campaigns, as it goes")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of workers that die: they do so all the time
    started = time.process_time(), time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    noted = [recording(options.first)] if options.record else []
    found, lifecycles, steps, faults = campaign(seeds, *noted)
    cpu, wall = time.process_time() - started[0], time.monotonic() - started[1]
    print(f"{lifecycles} lifecycles, {steps} steps, {cpu:.0f} s of CPU, {wall:.0f} s")
    for name, count in sorted(faults.items()):
        print(f"{count:8d}  {name}")
    print(found or "every invariant held")
    return int(found is not None)


if __name__ == "__main__":
    raise SystemExit(main())
