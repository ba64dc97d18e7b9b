"""Play many histories: `make simulate SEEDS=1000 FIRST=0`. A failing one is made short and printed."""

import argparse
import logging
import time
from collections import Counter

from tests.simulation.play import Failed, draw, failure, opened_stage, shrink


def report(stage, seed):
    """A failing history, as short as it gets."""
    scene, steps = draw(seed)
    short = shrink(stage, scene, steps)
    failed = failure(stage, scene, short)
    lines = [f"seed {seed}, {len(steps)} steps shrunk to {len(short)}: {failed}", f"scene {scene}"]
    return "\n".join([*lines, *map(str, short), "what happened:", *failed.world.log])


def campaign(seeds):
    """(findings, lifecycles, steps, faults by kind) of these seeds, up to the first failure."""
    lifecycles, steps, faults = 0, 0, Counter()
    with opened_stage() as stage:
        for seed in seeds:
            scene, drawn = draw(seed)
            try:
                world = stage.play(scene, drawn)
            except Failed:
                return report(stage, seed), lifecycles, steps, faults
            lifecycles += len(world.noise)
            steps += world.steps
            faults.update(world.faults)
    return None, lifecycles, steps, faults


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of workers that die: they do so all the time
    started = time.process_time(), time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    found, lifecycles, steps, faults = campaign(seeds)
    cpu, wall = time.process_time() - started[0], time.monotonic() - started[1]
    print(f"{lifecycles} lifecycles, {steps} steps, {cpu:.0f} s of CPU, {wall:.0f} s")
    for name, count in sorted(faults.items()):
        print(f"{count:8d}  {name}")
    print(found or "every invariant held")
    return int(found is not None)


if __name__ == "__main__":
    raise SystemExit(main())
