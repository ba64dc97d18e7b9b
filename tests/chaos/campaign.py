"""One campaign: a cluster under load, faults by seed until so many kills were made, and a verdict."""

import json
import os
import random
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.chaos.cluster import Celery, Embedded
from tests.chaos.faults import FAULTS
from tests.chaos.ground import Ground
from tests.chaos.load import SHORT, Load, StoppedError
from tests.chaos.verdict import Verdict, during, wait_for_the_end
from tests.harness import job
from workers.warm import warm

RECOVERY_SECONDS = 180  # of watchdog
NONE = "none, for comparison"


def schedule(kinds, seed):
    """Faults without end: first each once, then at random by their weights."""
    rng, kinds = random.Random(seed), list(kinds)
    rng.shuffle(kinds)
    yield from kinds
    while True:
        yield rng.choices(kinds, [fault.weight for fault in kinds])[0]


class Campaign:
    """Faults of these kinds, or all, each at least once, until `kills` were made. `load` says how many
    analysts there are, and how many rows."""

    def __init__(self, engine, folder, kills, seed=0, without=(), kinds=None, say=print, **load):
        self.engine, self.kills, self.seed, self.without = engine, kills, seed, tuple(without)
        self.kinds = [
            fault
            for fault in FAULTS[engine]
            if fault.needs not in without and (kinds is None or fault.name in kinds)
        ]
        self.folder, self._say, self._load = Path(folder), say, load
        self.rng = random.Random(seed)
        self.recoveries, self.killed, self.faults = defaultdict(list), 0, 0

    def run(self):
        """The findings: none, if all is well."""
        warm()  # or every process would compile the same kernels
        with ExitStack() as stack:
            ground = Ground(self.folder, stack, {fault.needs for fault in self.kinds})
            cluster = (Celery if self.engine == "celery" else Embedded)(ground, stack)
            cluster.start()
            self.load = Load(cluster, random.Random(self.seed), **self._load)
            began = time.monotonic()
            self.load.start()
            self._play(cluster)
            self._probe(cluster, NONE)
            self.load.stop()
            self.say("faults are over; waiting for the last jobs")
            wait_for_the_end(cluster, self.load.book)
            self.load.over.clear()
            self.verdict = Verdict(cluster, self.load, self.rng)
            findings = self.verdict.findings()
            self.load.close()
            self.result = self._result(cluster, findings, round(time.monotonic() - began))
        return findings

    def _result(self, cluster, findings, seconds):
        jobs, book = self.verdict.jobs.values(), self.load.book
        return {
            "engine": self.engine,
            "seed": self.seed,
            "without": self.without,
            "seconds": seconds,
            "load_average": round(os.getloadavg()[2], 1),
            "kills": self.killed,
            "faults": self.faults,
            "kinds": len(self.kinds),
            "jobs": len(jobs),
            "states": dict(Counter(each.state for each in jobs)),
            "started_again": sum(each.fence > 1 for each in jobs),
            "most_starts": max(each.fence for each in jobs),
            "recomputed": self.verdict.recomputed,
            "ended_by_themselves": {p.name: p.ended_by_itself for p in cluster.programs},
            "answers": {str(code): count for code, count in book.answers.items()},
            "longest_request": round(book.longest, 1),
            "recovery": {
                name: {
                    "times": len(seconds),
                    "median": round(median(seconds), 1),
                    "max": round(max(seconds), 1),
                }
                for name, seconds in sorted(self.recoveries.items())
            },
            "findings": findings,
        }

    def _play(self, cluster):
        for _ in range(3):
            self._probe(cluster, NONE)
        for fault in schedule(self.kinds, self.seed):
            if self.killed >= self.kills and self.faults >= len(self.kinds):
                return
            began = time.monotonic()
            killed = fault.make(cluster, self.rng)
            lasted = time.monotonic() - began
            self.killed, self.faults = self.killed + killed, self.faults + 1
            recovery = self._probe(cluster, fault.name)
            self._note(fault=fault.name, kills=killed, lasted=lasted, recovery=recovery)
            if self.faults % 25 == 0:
                during(cluster, self.load.book)
                self._probe(cluster, NONE)
            time.sleep(self.rng.uniform(0, 0.5))

    def _probe(self, cluster, name):
        """Seconds until jobs that are submitted now, one to each API, have succeeded."""
        began = time.monotonic()
        person, spec = self.load.probe, job(self.load.probed, 0.01, SHORT[0][0])
        try:
            waiting = [(url, *person.submit([spec], url=url)) for url in cluster.urls]
            while waiting:
                waiting = [
                    (url, each) for url, each in waiting if person.state(each, url) != "succeeded"
                ]
                if time.monotonic() - began > RECOVERY_SECONDS:
                    raise StoppedError
                time.sleep(0.02)
        except (StoppedError, ValueError):
            self.load.book.finding(f"no recovery within {RECOVERY_SECONDS} s: {name}")
        taken = time.monotonic() - began
        self.recoveries[name].append(taken)
        return taken

    def _note(self, **what):
        """A line of the log, and one to look at."""
        now = round(time.time(), 3)
        what = {k: round(v, 2) if isinstance(v, float) else v for k, v in what.items()}
        with (self.folder / "chaos.log").open("a") as log:
            log.write(json.dumps({"at": now, "number": self.faults, **what}) + "\n")
        self.say(
            f"{self.faults:4d}  {self.killed:4d} kills  {len(self.load.book.accepted):6d} jobs  "
            f"{what['lasted']:5.1f} s  recovered in {what['recovery']:6.2f} s  {what['fault']}"
        )

    def say(self, text):
        self._say(f"{time.strftime('%H:%M:%S', time.gmtime())}  {text}", flush=True)
