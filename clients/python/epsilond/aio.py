"""The client of the API, for asyncio. client.py is made of this file by `make docs`: edit this one.

async with AsyncClient("http://127.0.0.1:8000", key) as client:
    job = await client.wait((await client.submit(spec)).id)
    (await client.model(job.id)).predict(rows)
"""

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any

from epsilond import http
from epsilond.aio_http import AsyncConnection
from epsilond.encode import JSON
from epsilond.http import ApiError, OnChange, answer
from epsilond.model import Model
from epsilond.progress import Watch
from epsilond.results import Budget, Comparison, Dataset, Group, Job, Quote, Result, Results
from epsilond.timing import async_sleep as sleep
from epsilond.upload import UploadError, in_a_file, matches

Specs = Sequence[Mapping[str, Any]]


class AsyncClient(AsyncConnection):
    """Every request of the API by its name. A refusal is an ApiError, with its `problem`."""

    # datasets and budgets

    async def declare_dataset(
        self,
        name: str,
        schema: Mapping[str, Any],
        same_people_as: str | None = None,
        shared_ledger: bool = False,
    ) -> Dataset:
        body = {"name": name, "schema": schema, "shared_ledger": shared_ledger}
        body |= {"same_people_as": same_people_as}
        return Dataset(await self.request("POST", "/v1/datasets", json=body))

    async def upload(
        self,
        dataset: str,
        data: Any,
        *,
        schema: Mapping[str, Any] | None = None,
        same_people_as: str | None = None,
        dry_run: bool = False,
        refuse_above: float | None = None,
        media_type: str | None = None,
    ) -> Dataset:
        """A file, a DataFrame, an Arrow table or a mapping of columns into a dataset, which comes back
        with a `report` on what was clipped, filled, unknown and constant.

        `dataset` is an id. With a `schema` it is a name: the dataset is declared, or if an earlier
        upload left it empty, taken up again. Schema and names are checked before that. A dry run
        stores nothing; above the share `refuse_above` of a column's cells the file is refused.
        """
        with in_a_file(data, schema, media_type) as (file, media):
            new = False
            if schema is not None:
                dataset, new = await self._begin(dataset, schema, same_people_as)
            headers = {"Content-Type": media, "Content-Length": str(file.stat().st_size)}
            params: JSON = {"dry_run": dry_run}
            if refuse_above is not None:
                params["refuse_above"] = refuse_above
            at = f"/v1/datasets/{dataset}/data"
            try:
                return Dataset(
                    await self.request("PUT", at, file=file, headers=headers, params=params)
                )
            finally:
                if dry_run and new:
                    await self.delete_dataset(dataset)

    async def _begin(
        self, name: str, schema: Mapping[str, Any], same_people_as: str | None
    ) -> tuple[str, bool]:
        """The id of a dataset of this name that has no data yet, and whether it is new."""
        try:
            return (await self.declare_dataset(name, schema, same_people_as)).id, True
        except ApiError as refusal:
            if refusal.code != "name_taken":
                raise
            begun = await self.dataset(refusal.problem["id"])
            if begun.state != "empty":
                raise
            if not matches(begun.schema, schema):
                raise UploadError(
                    f"the empty dataset {begun.id} has this name and another schema; delete it with "
                    f"epsilond datasets delete {begun.id}, or choose another name"
                ) from None
            return begun.id, False

    async def datasets(self) -> Results[Dataset]:
        return Results([Dataset(one) async for one in self.pages("/v1/datasets")])

    async def dataset(self, dataset: str) -> Dataset:
        return Dataset(await self.request("GET", f"/v1/datasets/{dataset}"))

    async def find(self, dataset: str) -> Dataset:
        """The dataset of this id or, if no other that you may see has it, of this name."""
        if dataset.startswith("ds_"):
            return await self.dataset(dataset)
        ids = [one.id for one in await self.datasets() if one.name == dataset]
        if len(ids) != 1:
            found = (
                f"several have: {', '.join(ids)}; give an id" if ids else "none that you may see"
            )
            raise LookupError(f"which dataset is called {dataset!r}? {found}")
        return await self.dataset(ids[0])

    async def report(self, dataset: str) -> Result:
        """What ingestion did to the rows; for their owner alone."""
        return Result((await self.request("GET", f"/v1/datasets/{dataset}/report"))["report"])

    async def delete_dataset(self, dataset: str) -> None:
        """One that never had data."""
        await self.request("DELETE", f"/v1/datasets/{dataset}")

    async def delete_data(self, dataset: str) -> None:
        await self.request("DELETE", f"/v1/datasets/{dataset}/data")

    async def share_ledger(self, dataset: str, shared: bool) -> Dataset:
        body = {"shared_ledger": shared}
        return Dataset(await self.request("PUT", f"/v1/datasets/{dataset}/sharing", json=body))

    async def set_budget(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        epsilon_cap: float | None = None,
        kind: str | None = None,
    ) -> Budget:
        body = {"epsilon": epsilon, "delta": delta, "epsilon_cap": epsilon_cap, "kind": kind}
        return Budget(await self.request("PUT", f"/v1/datasets/{dataset}/budget", json=body))

    async def budget(self, dataset: str) -> Budget:
        return Budget(await self.request("GET", f"/v1/datasets/{dataset}/budget"))

    async def _steer(self, dataset: str, act: str, **body: Any) -> Budget:
        at = f"/v1/datasets/{dataset}/budget/{act}"
        return Budget(await self.request("POST", at, json=body))

    async def top_up(self, dataset: str, epsilon_cap: float, reason: str) -> Budget:
        return await self._steer(dataset, "top-ups", epsilon_cap=epsilon_cap, reason=reason)

    async def freeze(self, dataset: str, reason: str) -> Budget:
        return await self._steer(dataset, "freeze", reason=reason)

    async def unfreeze(self, dataset: str, reason: str) -> Budget:
        return await self._steer(dataset, "unfreeze", reason=reason)

    async def ledger(self, dataset: str) -> Results[Result]:
        return await self._list(f"/v1/datasets/{dataset}/ledger", "seq")

    async def grant(
        self, dataset: str, principal: str, epsilon_cap: float | EllipsisType | None = ...
    ) -> Result:
        """Without `epsilon_cap` an earlier share stays as it is; None lifts it."""
        body = {} if epsilon_cap is ... else {"epsilon_cap": epsilon_cap}
        at = f"/v1/datasets/{dataset}/grants/{principal}"
        return Result(await self.request("PUT", at, json=body))

    async def grants(self, dataset: str) -> Results[Result]:
        return await self._list(f"/v1/datasets/{dataset}/grants", "principal")

    async def revoke_grant(self, dataset: str, principal: str) -> None:
        await self.request("DELETE", f"/v1/datasets/{dataset}/grants/{principal}")

    # jobs

    async def algorithms(self) -> Results[Result]:
        return await self._list("/v1/algorithms", "name")

    async def quote(self, spec: Mapping[str, Any]) -> Quote:
        return Quote(await self.request("POST", "/v1/quotes", json=spec))

    async def compare(self, spec: Mapping[str, Any]) -> Comparison:
        """Every algorithm on one spec, best first."""
        return Comparison(await self.request("POST", "/v1/quotes/comparison", json=spec))

    async def quote_for_noise(self, spec: Mapping[str, Any], noise: float) -> Quote:
        """The quote at the smallest epsilon with at most this noise, as far as bisection finds it."""
        return Quote(await self.request("POST", "/v1/quotes/noise", json={**spec, "noise": noise}))

    async def quote_batch(self, specs: Specs) -> Result:
        """Several jobs priced together: which fit, in this order, and whether all do."""
        return Result(await self.request("POST", "/v1/quotes/batch", json={"jobs": list(specs)}))

    async def submit_group(self, specs: Specs, idempotency_key: str | None = None) -> Group:
        """Several jobs, all reserved or none."""
        headers = http.idempotent(idempotency_key)
        body = {"jobs": list(specs)}
        return Group(await self.request("POST", "/v1/groups", json=body, headers=headers))

    async def group(self, group: str) -> Group:
        return Group(await self.request("GET", f"/v1/groups/{group}"))

    async def submit(self, spec: Mapping[str, Any], idempotency_key: str | None = None) -> Job:
        headers = http.idempotent(idempotency_key)
        return Job(await self.request("POST", "/v1/jobs", json=spec, headers=headers))

    async def jobs(self, dataset: str | None = None, state: str | None = None) -> Results[Job]:
        pages = self.pages("/v1/jobs", dataset=dataset, state=state)
        return Results([Job(one) async for one in pages])

    async def job(self, job: str) -> Job:
        return Job(await self.request("GET", f"/v1/jobs/{job}"))

    async def wait(
        self, job: str, on_change: OnChange | None = None, progress: bool | None = None
    ) -> Job:
        """The job once it has ended, however it ended. The service answers when it has changed. With a
        bar on a terminal and in a notebook, unless `progress` says otherwise."""
        headers: dict[str, str] = {}
        with Watch(progress) as watch:
            while True:
                response = await self._send("GET", f"/v1/jobs/{job}", headers=headers)
                if response.status_code != 304:
                    view = Job(answer(response))
                    watch.show(view)
                    if on_change is not None:
                        on_change(view)
                    if view.ended:
                        return view
                if headers and "preference-applied" not in response.headers:
                    await sleep(1.0)  # what stands between does not know how to wait
                headers = http.when_changed(response)

    async def cancel(self, job: str) -> Job:
        return Job(await self.request("POST", f"/v1/jobs/{job}/cancel"))

    async def events(self, job: str) -> Results[Result]:
        return await self._list(f"/v1/jobs/{job}/events")

    async def plan(self, job: str) -> Result:
        return Result(await self.request("GET", f"/v1/jobs/{job}/plan"))

    async def model(self, job: str) -> Model:
        return Model(await self.request("GET", f"/v1/jobs/{job}/model"))

    async def evaluation(self, job: str) -> Result:
        """How good models are on held-out rows: metrics and curves, each number with its interval."""
        return Result(await self.request("GET", f"/v1/jobs/{job}/evaluation"))

    async def summary(self, job: str) -> Result:
        """What the job's summaries told, each number with its interval."""
        return Result(await self.request("GET", f"/v1/jobs/{job}/summary"))

    async def record(self, job: str) -> Result:
        return Result(await self.request("GET", f"/v1/jobs/{job}/audit"))

    # audit and access

    async def chain(self, dataset: str) -> Results[Result]:
        return await self._list(f"/v1/datasets/{dataset}/audit", "body")

    async def public_key(self) -> str:
        return str((await self.request("GET", "/v1/audit/public-key"))["public_key"])

    async def verify(self, dataset: str, seq: int | None = None) -> Result:
        """What the service itself finds in its chain, or in one record."""
        params = {} if seq is None else {"seq": seq}
        at = f"/v1/datasets/{dataset}/audit/verification"
        return Result(await self.request("GET", at, params=params))

    async def operations(self) -> Result:
        return Result(await self.request("GET", "/v1/operations"))

    async def me(self) -> Result:
        return Result(await self.request("GET", "/v1/me"))

    async def principals(self) -> Results[Result]:
        return await self._list("/v1/principals")

    async def add_principal(self, name: str, role: str) -> Result:
        body = {"name": name, "role": role}
        return Result(await self.request("POST", "/v1/principals", json=body))

    async def keys(self) -> Results[Result]:
        return await self._list("/v1/keys")

    async def add_key(
        self,
        principal: str | None = None,
        expires_days: int | None = None,
        outlives: bool | None = None,
    ) -> Result:
        body = {"principal": principal, "expires_days": expires_days, "outlives": outlives}
        return Result(await self.request("POST", "/v1/keys", json=body))

    async def rotate_key(self, key: str) -> Result:
        return Result(await self.request("POST", f"/v1/keys/{key}/rotate"))

    async def revoke_key(self, key: str, everything: bool = False) -> None:
        await self.request("DELETE", f"/v1/keys/{key}", params={"everything": everything})

    async def revoke_keys(self, principal: str) -> None:
        """All keys of a principal."""
        await self.request("DELETE", f"/v1/principals/{principal}/keys")
