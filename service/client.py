"""A small typed client for the API.

client = Client("http://127.0.0.1:8000", key)
job = client.submit({"dataset": ..., "algorithm": ..., "loss": ..., "privacy": {...}})
model = client.model(client.wait(job["id"])["id"])
model.predict([{"age": 41, "city": "Oslo"}])
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, Self

import httpx

from service.datasets.formats import guess
from service.jobs.states import ENDED
from service.model import JSON, Model

NO_ADDRESS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)
NO_ANSWER = (httpx.ConnectError, httpx.ConnectTimeout)
CUT_SHORT = httpx.TransportError


class ApiError(RuntimeError):
    """The service refused; `problem` is its application/problem+json body."""

    def __init__(self, problem: JSON) -> None:
        super().__init__(f"{problem.get('code')}: {problem.get('detail')}")
        self.problem = problem
        self.status: int = problem.get("status", 0)
        self.code: str = problem.get("code", "")


class Client:
    def __init__(self, url: str, key: str | None = None, timeout: float = 3600.0) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **kwargs: Any) -> JSON:
        response = self._http.request(method, path, **kwargs)
        if response.is_success and not response.content:
            return {}
        try:
            body: JSON = response.json()
        except ValueError:  # not ours: a proxy's page, or another service's
            detail = f"{response.url} answered no JSON; is this the address of an epsilond service?"
            raise ApiError(
                {"status": response.status_code, "code": "unknown", "detail": detail}
            ) from None
        if not response.is_success:
            raise ApiError(body)
        return body

    def pages(self, path: str, cursor: str = "id", **params: Any) -> Iterator[JSON]:
        """Every element of a list, page by page."""
        params = {"limit": 100, **{k: v for k, v in params.items() if v is not None}}
        while True:
            page = self.request("GET", path, params=params)
            yield from page["data"]
            if not page["has_more"]:
                return
            last = page["data"][-1]
            params["starting_after"] = last["body"]["seq"] if cursor == "body" else last[cursor]

    # datasets and budgets

    def declare_dataset(
        self,
        name: str,
        schema: Mapping[str, Any],
        same_people_as: str | None = None,
        shared_ledger: bool = False,
    ) -> JSON:
        body = {
            "name": name,
            "schema": schema,
            "same_people_as": same_people_as,
            "shared_ledger": shared_ledger,
        }
        return self.request("POST", "/v1/datasets", json=body)

    def share_ledger(self, dataset: str, shared: bool) -> JSON:
        body = {"shared_ledger": shared}
        return self.request("PUT", f"/v1/datasets/{dataset}/sharing", json=body)

    def upload(
        self,
        dataset: str,
        path: Path,
        *,
        dry_run: bool = False,
        refuse_above: float | None = None,
    ) -> JSON:
        """The dataset, with a `report` on what was clipped, filled, unknown and constant. A dry run
        stores nothing; above the share `refuse_above` of a column's cells the file is refused."""
        headers = {"Content-Type": guess(path).media_types[0]}
        params: dict[str, Any] = {"dry_run": dry_run}
        if refuse_above is not None:
            params["refuse_above"] = refuse_above
        with path.open("rb") as file:
            at = f"/v1/datasets/{dataset}/data"
            return self.request("PUT", at, content=file, headers=headers, params=params)

    def report(self, dataset: str) -> JSON:
        """What ingestion did to the rows; for their owner alone."""
        report: JSON = self.request("GET", f"/v1/datasets/{dataset}/report")["report"]
        return report

    def datasets(self) -> list[JSON]:
        return list(self.pages("/v1/datasets"))

    def dataset(self, dataset: str) -> JSON:
        return self.request("GET", f"/v1/datasets/{dataset}")

    def delete_dataset(self, dataset: str) -> None:
        """One that never had data."""
        self.request("DELETE", f"/v1/datasets/{dataset}")

    def delete_data(self, dataset: str) -> None:
        self.request("DELETE", f"/v1/datasets/{dataset}/data")

    def set_budget(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        epsilon_cap: float | None = None,
        kind: str | None = None,
    ) -> JSON:
        body = {"epsilon": epsilon, "delta": delta, "epsilon_cap": epsilon_cap, "kind": kind}
        return self.request("PUT", f"/v1/datasets/{dataset}/budget", json=body)

    def budget(self, dataset: str) -> JSON:
        return self.request("GET", f"/v1/datasets/{dataset}/budget")

    def top_up(self, dataset: str, epsilon_cap: float, reason: str) -> JSON:
        body = {"epsilon_cap": epsilon_cap, "reason": reason}
        return self.request("POST", f"/v1/datasets/{dataset}/budget/top-ups", json=body)

    def freeze(self, dataset: str, reason: str) -> JSON:
        body = {"reason": reason}
        return self.request("POST", f"/v1/datasets/{dataset}/budget/freeze", json=body)

    def unfreeze(self, dataset: str, reason: str) -> JSON:
        body = {"reason": reason}
        return self.request("POST", f"/v1/datasets/{dataset}/budget/unfreeze", json=body)

    def ledger(self, dataset: str) -> list[JSON]:
        return list(self.pages(f"/v1/datasets/{dataset}/ledger", cursor="seq"))

    def grant(
        self, dataset: str, principal: str, epsilon_cap: float | EllipsisType | None = ...
    ) -> JSON:
        """Without `epsilon_cap` an earlier share stays as it is; None lifts it."""
        body = {} if epsilon_cap is ... else {"epsilon_cap": epsilon_cap}
        return self.request("PUT", f"/v1/datasets/{dataset}/grants/{principal}", json=body)

    def grants(self, dataset: str) -> list[JSON]:
        return list(self.pages(f"/v1/datasets/{dataset}/grants", cursor="principal"))

    def revoke_grant(self, dataset: str, principal: str) -> None:
        self.request("DELETE", f"/v1/datasets/{dataset}/grants/{principal}")

    # jobs

    def algorithms(self) -> list[JSON]:
        return list(self.pages("/v1/algorithms", cursor="name"))

    def quote(self, spec: Mapping[str, Any]) -> JSON:
        return self.request("POST", "/v1/quotes", json=spec)

    def compare(self, spec: Mapping[str, Any]) -> JSON:
        """Every algorithm on one spec, best first."""
        return self.request("POST", "/v1/quotes/comparison", json=spec)

    def quote_for_noise(self, spec: Mapping[str, Any], noise: float) -> JSON:
        """The quote at the smallest epsilon with at most this noise."""
        return self.request("POST", "/v1/quotes/noise", json={**spec, "noise": noise})

    def quote_batch(self, specs: Sequence[Mapping[str, Any]]) -> JSON:
        """Several jobs priced together: which fit, in this order, and whether all do."""
        return self.request("POST", "/v1/quotes/batch", json={"jobs": list(specs)})

    def submit_group(
        self, specs: Sequence[Mapping[str, Any]], idempotency_key: str | None = None
    ) -> JSON:
        """Several jobs, all reserved or none."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self.request("POST", "/v1/groups", json={"jobs": list(specs)}, headers=headers)

    def group(self, group: str) -> JSON:
        return self.request("GET", f"/v1/groups/{group}")

    def submit(self, spec: Mapping[str, Any], idempotency_key: str | None = None) -> JSON:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self.request("POST", "/v1/jobs", json=spec, headers=headers)

    def jobs(self, dataset: str | None = None, state: str | None = None) -> list[JSON]:
        return list(self.pages("/v1/jobs", dataset=dataset, state=state))

    def job(self, job: str) -> JSON:
        return self.request("GET", f"/v1/jobs/{job}")

    def wait(
        self, job: str, on_change: Callable[[JSON], None] | None = None, poll_seconds: float = 0.1
    ) -> JSON:
        """The job once it has ended, however it ended."""
        while True:
            view = self.job(job)
            if on_change is not None:
                on_change(view)
            if view["state"] in ENDED:
                return view
            time.sleep(poll_seconds)

    def stream(self, job: str | None = None, last_event_id: str | None = None) -> Iterator[JSON]:
        """Events as they happen, of one job until it has ended or of all: dicts of event, id, data."""
        path = "/v1/events" if job is None else f"/v1/jobs/{job}/events"
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        with self._http.stream("GET", path, headers=headers) as response:
            if not response.is_success:
                response.read()
                raise ApiError(response.json())
            seen: JSON = {"id": last_event_id}
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name in ("id", "event"):
                    seen[name] = value
                elif name == "data":
                    seen["data"] = json.loads(value)
                elif not line and "data" in seen:
                    yield seen
                    seen = {"id": seen["id"]}

    def cancel(self, job: str) -> JSON:
        return self.request("POST", f"/v1/jobs/{job}/cancel")

    def events(self, job: str) -> list[JSON]:
        return list(self.pages(f"/v1/jobs/{job}/events"))

    def plan(self, job: str) -> JSON:
        return self.request("GET", f"/v1/jobs/{job}/plan")

    def model(self, job: str) -> Model:
        return Model(self.request("GET", f"/v1/jobs/{job}/model"))

    def summary(self, job: str) -> JSON:
        """What the job's summaries told, each number with its interval."""
        return self.request("GET", f"/v1/jobs/{job}/summary")

    def record(self, job: str) -> JSON:
        return self.request("GET", f"/v1/jobs/{job}/audit")

    # audit and access

    def chain(self, dataset: str) -> list[JSON]:
        return list(self.pages(f"/v1/datasets/{dataset}/audit", cursor="body"))

    def public_key(self) -> str:
        return str(self.request("GET", "/v1/audit/public-key")["public_key"])

    def verify(self, dataset: str, seq: int | None = None) -> JSON:
        """What the service itself finds in its chain, or in one record."""
        params = {} if seq is None else {"seq": seq}
        return self.request("GET", f"/v1/datasets/{dataset}/audit/verification", params=params)

    def operations(self) -> JSON:
        return self.request("GET", "/v1/operations")

    def me(self) -> JSON:
        return self.request("GET", "/v1/me")

    def principals(self) -> list[JSON]:
        return list(self.pages("/v1/principals"))

    def add_principal(self, name: str, role: str) -> JSON:
        return self.request("POST", "/v1/principals", json={"name": name, "role": role})

    def keys(self) -> list[JSON]:
        return list(self.pages("/v1/keys"))

    def add_key(
        self,
        principal: str | None = None,
        expires_days: int | None = None,
        outlives: bool | None = None,
    ) -> JSON:
        body = {"principal": principal, "expires_days": expires_days, "outlives": outlives}
        return self.request("POST", "/v1/keys", json=body)

    def rotate_key(self, key: str) -> JSON:
        return self.request("POST", f"/v1/keys/{key}/rotate")

    def revoke_key(self, key: str, everything: bool = False) -> None:
        self.request("DELETE", f"/v1/keys/{key}", params={"everything": everything})

    def revoke_keys(self, principal: str) -> None:
        """All keys of a principal."""
        self.request("DELETE", f"/v1/principals/{principal}/keys")
