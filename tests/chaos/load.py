"""People who use the service all the while: each asks again until there is an answer, and everything
that they were told is written down."""

import random
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from service.jobs.states import ENDED
from tests.harness import job, numbers, numeric_schema

WATCHDOG_SECONDS = 240.0  # of one question, however often it is asked
ANSWER_SECONDS = 60.0  # of one request: longer than any fault lasts
IN_FLIGHT = 5
DELTA = 1e-6
AGAIN = {503, 507}


class StoppedError(Exception):
    """The campaign is over."""


@dataclass
class Book:
    """What clients know: what they were told, and must find to be true for ever."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    accepted: set = field(default_factory=set)  # jobs
    cancelled: set = field(default_factory=set)  # whose cancel was asked for
    ended: dict = field(default_factory=dict)  # job: the state in which it was seen
    models: dict = field(default_factory=dict)  # job: its model, as it was seen
    heads: dict = field(default_factory=dict)  # dataset: heads of its chain, as they were seen
    answers: Counter = field(default_factory=Counter)
    longest: float = 0.0
    wrong: list = field(default_factory=list)

    def finding(self, what):
        with self.lock:
            self.wrong.append(what)


class Person:
    """A client of all APIs, as by a load balancer that knows nothing."""

    def __init__(self, urls, key, book, rng, over):
        self.urls, self.book, self.rng, self.over = urls, book, rng, over
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {key}"}, timeout=httpx.Timeout(ANSWER_SECONDS)
        )

    def once(self, method, path, url=None, **kwargs):
        """One request; None if it was cut, or is to be sent again."""
        began = time.monotonic()
        try:
            answer = self._http.request(
                method, f"{url or self.rng.choice(self.urls)}{path}", **kwargs
            )
        except httpx.ReadTimeout:
            self.book.finding(f"{method} {path} had no answer within {ANSWER_SECONDS:g} s")
            return None
        except httpx.TransportError:
            self.book.answers["no answer"] += 1
            return None
        with self.book.lock:
            self.book.answers[answer.status_code] += 1
            self.book.longest = max(self.book.longest, time.monotonic() - began)
        if answer.status_code >= 500 and answer.status_code not in AGAIN:
            self.book.finding(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return None if answer.status_code >= 500 else answer

    def ask(self, method, path, url=None, persist=False, **kwargs):
        """Until there is an answer, or the campaign is over; `persist` also then."""
        deadline = time.monotonic() + WATCHDOG_SECONDS
        while True:
            answer = self.once(method, path, url, **kwargs)
            if answer is not None:
                return answer
            if self.over.is_set() and not persist:
                raise StoppedError
            if time.monotonic() > deadline:
                self.book.finding(f"{method} {path}: asked for {WATCHDOG_SECONDS:g} s in vain")
                raise StoppedError
            time.sleep(0.1)

    def submit(self, specs, group=False, url=None):
        """The jobs that this made; none if they were refused. Asked until there is an answer: else
        nobody would know what was accepted."""
        headers = {"Idempotency-Key": secrets.token_hex(12)}
        body, path = ({"jobs": specs}, "/v1/groups") if group else (specs[0], "/v1/jobs")
        answer = self.ask("POST", path, url, persist=True, json=body, headers=headers)
        if answer.status_code != 202:
            if answer.status_code != 409:
                self.book.finding(f"POST {path}: {answer.status_code} {answer.text[:300]}")
            return []
        made = answer.json()["data"] if group else [answer.json()]
        with self.book.lock:
            self.book.accepted.update(one["id"] for one in made)
        return [one["id"] for one in made]

    def state(self, job_id, url=None):
        """Its state now; what has ended once stays as it ended, and so does its model."""
        answer = self.ask("GET", f"/v1/jobs/{job_id}", url)
        if answer.status_code != 200:
            self.book.finding(f"job {job_id} was accepted, and now: {answer.status_code}")
            return "failed"
        state = answer.json()["state"]
        if state in ENDED:
            with self.book.lock:
                before = self.book.ended.setdefault(job_id, state)
            if before != state:
                self.book.finding(f"job {job_id} had {before}, and is now {state}")
        if state == "succeeded":
            model = self.ask("GET", f"/v1/jobs/{job_id}/model", url)
            with self.book.lock:
                before = self.book.models.setdefault(job_id, model.text)
            if before != model.text or model.status_code != 200:
                self.book.finding(f"job {job_id} had another model before")
        return state

    def close(self):
        self._http.close()


SHORT = (  # algorithm, epsilon and further words, delta
    ("gradient-descent", {}),
    ("gradient-descent", {"parameters": {"steps": 1, "batch": 1}}),
    ("gradient-descent", {"privacy": {"epsilon": 0.02, "delta": 0}}),
    ("frank-wolfe", {"set": {"kind": "l1_ball", "radius": 1.0}}),
)
LONG = ("gradient-descent", {"parameters": {"steps": 1500}})


class Load:
    """Owners, analysts and their datasets. `datasets` are: two wide ones of one owner and one tight
    one whose budget runs out, with caps and a share; the last has as many rows as make jobs long."""

    def __init__(self, cluster, rng, analysts=4, rows=1500, long_rows=20_000):
        self.book, self.over, self.urls = Book(), threading.Event(), cluster.urls
        self._folder = cluster.ground.folder
        self.admin = self._person(cluster.administrator(), rng)
        self.owner, owner_key = self._join("owner", rng)[0::2]
        members = [self._join("analyst", rng) for _ in range(analysts)]
        self.analysts, self.ids = [m[0] for m in members], [m[1] for m in members]
        self.probe, probe_id, _ = self._join("analyst", rng)
        wide, tight = {"epsilon": 20.0, "epsilon_cap": 2.0}, {"epsilon": 1.0, "epsilon_cap": 0.3}
        self.wide = self._dataset(rows, wide, self.ids)
        self.tight = self._dataset(rows, tight, self.ids)
        self.long = self._dataset(long_rows, {"epsilon": 20.0}, self.ids)
        self.probed = self._dataset(rows, {"epsilon": 20.0}, [probe_id])
        self.datasets = [self.wide, self.tight, self.long, self.probed]
        work = [
            *((self._analyse, each) for each in self.analysts),
            (self._govern, self.owner),
            (self._upload, self._person(owner_key, rng)),
        ]
        self.everybody = [self.admin, self.probe, *(person for _, person in work)]
        self._threads = [
            threading.Thread(target=self._live, args=each, daemon=True) for each in work
        ]

    def _person(self, key, rng):
        return Person(self.urls, key, self.book, random.Random(rng.random()), self.over)

    def _join(self, role, rng):
        body = {"name": f"{role} {secrets.token_hex(4)}", "role": role}
        made = self.admin.ask("POST", "/v1/principals", json=body).json()["id"]
        key = self.admin.ask("POST", "/v1/keys", json={"principal": made}).json()["key"]
        return self._person(key, rng), made, key

    def _dataset(self, rows, budget, analysts):
        made = self._declare(self.owner)
        file = numbers(self._folder, rows, 4)
        answer = self._send(self.owner, made, file)
        assert answer.status_code == 200, answer.text
        file.unlink()
        self.owner.ask("PUT", f"/v1/datasets/{made}/budget", json={"delta": DELTA, **budget})
        for each in analysts:
            self.owner.ask("PUT", f"/v1/datasets/{made}/grants/{each}", json={})
        return made

    def _declare(self, owner):
        name = secrets.token_hex(8)  # names are taken once; an answer that got lost is given again
        body = {"name": name, "schema": numeric_schema(4)}
        headers = {"Idempotency-Key": name}
        return owner.ask("POST", "/v1/datasets", json=body, headers=headers).json()["id"]

    def _send(self, owner, dataset, file):
        headers, content = {"Content-Type": "application/x-npz"}, file.read_bytes()
        path = f"/v1/datasets/{dataset}/data"
        return owner.ask("PUT", path, content=content, headers=headers)

    # what they do until the campaign is over

    def start(self):
        for thread in self._threads:
            thread.start()

    def stop(self):
        self.over.set()
        for thread in self._threads:
            thread.join()

    def close(self):
        for each in self.everybody:
            each.close()

    def _live(self, work, person):
        try:
            while not self.over.is_set():
                work(person)
        except StoppedError:
            pass
        except Exception as error:
            self.book.finding(f"a client met {error!r}")
            raise

    def _spec(self, rng):
        if rng.random() < 0.15:
            algorithm, changes = LONG
            return job(self.long, 0.02, algorithm, **changes)
        algorithm, changes = rng.choice(SHORT)
        dataset = self.tight if rng.random() < 0.2 else self.wide
        return job(dataset, 0.02, algorithm, **changes)

    def _analyse(self, person):
        """Some jobs at once, followed to their ends; a few are cancelled."""
        rng, mine = person.rng, []
        while len(mine) < IN_FLIGHT:
            group = rng.random() < 0.25
            specs = [self._spec(rng) for _ in range(rng.randint(2, 3) if group else 1)]
            mine += person.submit(specs, group)
            if rng.random() < 0.1:
                break
        if mine and rng.random() < 0.5:
            chosen = rng.choice(mine)
            with self.book.lock:
                self.book.cancelled.add(chosen)
            person.ask("POST", f"/v1/jobs/{chosen}/cancel")
        while mine:
            mine = [each for each in mine if person.state(each) not in ENDED]
            time.sleep(0.5)

    def _govern(self, owner):
        """Top-ups by small steps, and a dataset that is frozen now and then."""
        rng = owner.rng
        dataset = rng.choice([self.wide, self.tight])
        if rng.random() < 0.6:
            budget = owner.ask("GET", f"/v1/datasets/{dataset}/budget").json()
            body = {"epsilon_cap": round(budget["epsilon_cap"] * 1.05, 6), "reason": "chaos"}
            owner.ask("POST", f"/v1/datasets/{dataset}/budget/top-ups", json=body)
        else:
            for verb in ("freeze", "unfreeze"):
                path = f"/v1/datasets/{self.tight}/budget/{verb}"
                owner.ask("POST", path, json={"reason": "chaos"})
                time.sleep(0.3)
        for each in self.datasets:
            head = owner.ask("GET", f"/v1/datasets/{each}").json()["audit_head"]
            if head is not None:
                with self.book.lock:
                    self.book.heads.setdefault(each, {})[head] = None
        self.over.wait(1.0)

    def _upload(self, owner):
        """A dataset that nobody uses, so that uploads are cut too."""
        file = numbers(self._folder, 20_000, 4)
        try:
            answer = self._send(owner, self._declare(owner), file)
            # 409: it was made, and the answer got lost
            if answer.status_code not in (200, 409):
                self.book.finding(f"an upload: {answer.status_code} {answer.text[:300]}")
        finally:
            file.unlink()
        self.over.wait(5.0)
