"""What open clients cost: the API's share of one core while they listen or wait.

    make bench-polling

For each engine, the API process alone (the embedded engine's worker is a process of its own): with no
client, with 100 event streams, with 100 streams while a job runs and reports its progress, with 100
requests that wait for a job to change. CPU time is read from the system before and after.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import httpx

from service.config import Settings
from tests.harness import ENGINES, job, running, until

# the harness shortens these for the tests' sake; a service is as patient as it is shipped
INTERVALS = ("loop_seconds", "lease_seconds")


def cpu_seconds(pid):
    """User and system time of one process, as Linux counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(service, seconds):
    """Percent of one core that the API process takes."""
    pid = service.processes["api"].pid
    start, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - used) / (time.monotonic() - start)


async def listen(http, path, counts):
    async with http.stream("GET", path) as response:
        async for line in response.aiter_lines():
            counts["events"] += line.startswith("event:")


async def wait(http, path, counts):
    headers = {}
    while True:
        answer = await http.get(path, headers={"Prefer": "wait=30", **headers})
        headers = {"If-None-Match": answer.headers["etag"]}
        counts["answers"] += 1


def measure(service, scene, clients, client, path, seconds):
    """Open the clients, let them settle, measure."""
    counts = {"events": 0, "answers": 0}

    async def run():
        limits = httpx.Limits(max_connections=None)
        headers = {"Authorization": f"Bearer {scene.analyst.key}"}
        async with httpx.AsyncClient(
            base_url=service.url, headers=headers, timeout=None, limits=limits
        ) as http:
            tasks = [asyncio.create_task(client(http, path, counts)) for _ in range(clients)]
            await asyncio.to_thread(
                until, lambda: service.admin.operations()["streams"] >= clients, "all clients"
            )
            await asyncio.sleep(2)
            counts.update(events=0, answers=0)
            taken = await asyncio.to_thread(share, service, seconds)
            said = dict(counts)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return taken, said

    return asyncio.run(run())


def bench(engine, clients, seconds):
    shipped = {name: Settings.model_fields[name].default for name in INTERVALS}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(engine, Path(folder), **shipped) as service,
    ):
        scene = service.scene(rows=200_000)
        scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])
        idle = share(service, seconds)
        print(f"{engine:10}{'no client':38}{idle:7.2f} %")
        long = job(scene.dataset, parameters={"steps": 500_000})
        for what, client, busy in (
            ("event streams", listen, False),
            ("event streams, one job running", listen, True),
            ("waiting requests, one job queued", wait, False),
        ):
            busy_job = None
            path = "/v1/events"
            if busy or client is wait:
                busy_job = scene.analyst.submit(long)["id"]
                until(lambda j=busy_job: scene.analyst.job(j)["data_opened"], "the job's start")
            if client is wait:  # one that stays queued behind the other
                path = f"/v1/jobs/{scene.analyst.submit(long)['id']}"
            taken, said = measure(service, scene, clients, client, path, seconds)
            per_second = (said["events"] + said["answers"]) / seconds
            label = f"{clients} {what}"
            print(f"{engine:10}{label:38}{taken:7.2f} %   {per_second:6.1f} messages/s")
            for open_job in scene.analyst.jobs():
                if open_job["state"] in ("queued", "running"):
                    scene.analyst.cancel(open_job["id"])
            if busy_job is not None:
                scene.analyst.wait(busy_job)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    print("the API process's share of one core")
    for engine in ENGINES:
        bench(engine, options.clients, options.seconds)


if __name__ == "__main__":
    main()
