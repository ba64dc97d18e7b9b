"""Kill, stop, cut and fill everything below and inside the service, under load: `make chaos`.

    make chaos                              # 500 kills: 380 in Celery's form, 120 embedded
    make chaos KILLS=50 FIRST=7             # fewer, with another seed
    make chaos ARGS="--without network"     # where there is no root; said in the result

It starts a PostgreSQL, a Redis and services of its own, on ports and in folders of its own. Disks that
fill up and networks that are cut take root on Linux and `ip`; where that is not given, it says so and
ends, unless they are left out by name.
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign
from tests.chaos.ground import ImpossibleError
from tools.campaigns import record

GIVEN_UP = ("disks", "network")
CELERY_SHARE = 0.76  # of the kills


def table(recovery):
    lines = [f"{'seconds to recovery':44s}{'times':>7s}{'median':>9s}{'max':>9s}"]
    for name, found in sorted(recovery.items(), key=lambda item: item[1]["median"]):
        numbers = f"{found['times']:7d}{found['median']:9.2f}{found['max']:9.2f}"
        lines.append(f"{name:44s}{numbers}")
    return "\n".join(lines)


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=plain
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("celery", "embedded"))
    parser.add_argument("--without", action="append", choices=GIVEN_UP, default=[])
    parser.add_argument("--record", action="store_true", help="the result into docs/campaigns")
    parser.add_argument("--folder", type=Path, help="where logs stay; default: one that is removed")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    shares = {"celery": round(CELERY_SHARE * options.kills)}
    shares["embedded"] = options.kills - shares["celery"]
    if options.engine:
        shares = {options.engine: options.kills}
    failed, given_up = False, [("without", name) for name in options.without]
    with tempfile.TemporaryDirectory(prefix="epsilond-chaos-") as temporary:
        for engine, kills in shares.items():
            folder = (options.folder or Path(temporary)) / engine
            folder.mkdir(parents=True)
            campaign = Campaign(engine, folder, kills, options.seed, options.without)
            try:
                findings = campaign.run()
            except ImpossibleError as reason:
                raise SystemExit(
                    f"{engine}: a fault cannot be made here: {reason}. Run it where it can, or leave "
                    f"it out by name: {' '.join(f'--without {name}' for name in GIVEN_UP)}"
                ) from None
            result = campaign.result
            if options.record:
                words = " ".join(f"--{k} {v}" for k, v in [("engine", engine), *given_up])
                command = f'make chaos KILLS={kills} FIRST={options.seed} ARGS="{words}"'
                record(f"chaos-{engine}", command=command, **result)
            print(table(result["recovery"]))
            print(json.dumps({k: v for k, v in result.items() if k != "recovery"}, indent=1))
            print("\n".join(findings) or "nothing was lost, doubled or overspent")
            failed |= bool(findings)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
