"""aio.py without asyncio. Made of it by `make docs`: edit that."""

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any

from epsilond import http
from epsilond.sync_http import Connection
from epsilond.encode import JSON
from epsilond.http import ApiError, OnChange, answer
from epsilond.model import Model
from epsilond.progress import Watch
from epsilond.results import Budget, Comparison, Dataset, Group, Job, Quote, Result, Results
from epsilond.timing import sleep
from epsilond.upload import UploadError, in_a_file, matches

Specs = Sequence[Mapping[str, Any]]


class Client(Connection):
    """Every request of the API by its name. A refusal is an ApiError, with its `problem`."""

    # datasets and budgets

    def declare_dataset(
        self,
        name: str,
        schema: Mapping[str, Any],
        same_people_as: str | None = None,
        shared_ledger: bool = False,
    ) -> Dataset:
        body = {"name": name, "schema": schema, "shared_ledger": shared_ledger}
        body |= {"same_people_as": same_people_as}
        return Dataset(self.request("POST", "/v1/datasets", json=body))

    def upload(
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
                dataset, new = self._begin(dataset, schema, same_people_as)
            headers = {"Content-Type": media, "Content-Length": str(file.stat().st_size)}
            params: JSON = {"dry_run": dry_run}
            if refuse_above is not None:
                params["refuse_above"] = refuse_above
            at = f"/v1/datasets/{dataset}/data"
            try:
                return Dataset(self.request("PUT", at, file=file, headers=headers, params=params))
            finally:
                if dry_run and new:
                    self.delete_dataset(dataset)

    def _begin(
        self, name: str, schema: Mapping[str, Any], same_people_as: str | None
    ) -> tuple[str, bool]:
        """The id of a dataset of this name that has no data yet, and whether it is new."""
        try:
            return (self.declare_dataset(name, schema, same_people_as)).id, True
        except ApiError as refusal:
            if refusal.code != "name_taken":
                raise
            begun = self.dataset(refusal.problem["id"])
            if begun.state != "empty":
                raise
            if not matches(begun.schema, schema):
                raise UploadError(
                    f"the empty dataset {begun.id} has this name and another schema; delete it with "
                    f"epsilond datasets delete {begun.id}, or choose another name"
                ) from None
            return begun.id, False

    def datasets(self) -> Results[Dataset]:
        return Results([Dataset(one) for one in self.pages("/v1/datasets")])

    def dataset(self, dataset: str) -> Dataset:
        return Dataset(self.request("GET", f"/v1/datasets/{dataset}"))

    def find(self, dataset: str) -> Dataset:
        """The dataset of this id or, if no other that you may see has it, of this name."""
        if dataset.startswith("ds_"):
            return self.dataset(dataset)
        ids = [one.id for one in self.datasets() if one.name == dataset]
        if len(ids) != 1:
            found = (
                f"several have: {', '.join(ids)}; give an id" if ids else "none that you may see"
            )
            raise LookupError(f"which dataset is called {dataset!r}? {found}")
        return self.dataset(ids[0])

    def report(self, dataset: str) -> Result:
        """What ingestion did to the rows; for their owner alone."""
        return Result((self.request("GET", f"/v1/datasets/{dataset}/report"))["report"])

    def delete_dataset(self, dataset: str) -> None:
        """One that never had data."""
        self.request("DELETE", f"/v1/datasets/{dataset}")

    def delete_data(self, dataset: str) -> None:
        self.request("DELETE", f"/v1/datasets/{dataset}/data")

    def share_ledger(self, dataset: str, shared: bool) -> Dataset:
        body = {"shared_ledger": shared}
        return Dataset(self.request("PUT", f"/v1/datasets/{dataset}/sharing", json=body))

    def set_budget(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        epsilon_cap: float | None = None,
        kind: str | None = None,
    ) -> Budget:
        body = {"epsilon": epsilon, "delta": delta, "epsilon_cap": epsilon_cap, "kind": kind}
        return Budget(self.request("PUT", f"/v1/datasets/{dataset}/budget", json=body))

    def budget(self, dataset: str) -> Budget:
        return Budget(self.request("GET", f"/v1/datasets/{dataset}/budget"))

    def _steer(self, dataset: str, act: str, **body: Any) -> Budget:
        at = f"/v1/datasets/{dataset}/budget/{act}"
        return Budget(self.request("POST", at, json=body))

    def top_up(self, dataset: str, epsilon_cap: float, reason: str) -> Budget:
        return self._steer(dataset, "top-ups", epsilon_cap=epsilon_cap, reason=reason)

    def freeze(self, dataset: str, reason: str) -> Budget:
        return self._steer(dataset, "freeze", reason=reason)

    def unfreeze(self, dataset: str, reason: str) -> Budget:
        return self._steer(dataset, "unfreeze", reason=reason)

    def ledger(self, dataset: str) -> Results[Result]:
        return self._list(f"/v1/datasets/{dataset}/ledger", "seq")

    def grant(
        self, dataset: str, principal: str, epsilon_cap: float | EllipsisType | None = ...
    ) -> Result:
        """Without `epsilon_cap` an earlier share stays as it is; None lifts it."""
        body = {} if epsilon_cap is ... else {"epsilon_cap": epsilon_cap}
        at = f"/v1/datasets/{dataset}/grants/{principal}"
        return Result(self.request("PUT", at, json=body))

    def grants(self, dataset: str) -> Results[Result]:
        return self._list(f"/v1/datasets/{dataset}/grants", "principal")

    def revoke_grant(self, dataset: str, principal: str) -> None:
        self.request("DELETE", f"/v1/datasets/{dataset}/grants/{principal}")

    # jobs

    def algorithms(self) -> Results[Result]:
        return self._list("/v1/algorithms", "name")

    def quote(self, spec: Mapping[str, Any]) -> Quote:
        return Quote(self.request("POST", "/v1/quotes", json=spec))

    def compare(self, spec: Mapping[str, Any]) -> Comparison:
        """Every algorithm on one spec, best first."""
        return Comparison(self.request("POST", "/v1/quotes/comparison", json=spec))

    def quote_for_noise(self, spec: Mapping[str, Any], noise: float) -> Quote:
        """The quote at the smallest epsilon with at most this noise, as far as bisection finds it."""
        return Quote(self.request("POST", "/v1/quotes/noise", json={**spec, "noise": noise}))

    def quote_batch(self, specs: Specs) -> Result:
        """Several jobs priced together: which fit, in this order, and whether all do."""
        return Result(self.request("POST", "/v1/quotes/batch", json={"jobs": list(specs)}))

    def submit_group(self, specs: Specs, idempotency_key: str | None = None) -> Group:
        """Several jobs, all reserved or none."""
        headers = http.idempotent(idempotency_key)
        body = {"jobs": list(specs)}
        return Group(self.request("POST", "/v1/groups", json=body, headers=headers))

    def group(self, group: str) -> Group:
        return Group(self.request("GET", f"/v1/groups/{group}"))

    def submit(self, spec: Mapping[str, Any], idempotency_key: str | None = None) -> Job:
        headers = http.idempotent(idempotency_key)
        return Job(self.request("POST", "/v1/jobs", json=spec, headers=headers))

    def jobs(self, dataset: str | None = None, state: str | None = None) -> Results[Job]:
        pages = self.pages("/v1/jobs", dataset=dataset, state=state)
        return Results([Job(one) for one in pages])

    def job(self, job: str) -> Job:
        return Job(self.request("GET", f"/v1/jobs/{job}"))

    def wait(
        self, job: str, on_change: OnChange | None = None, progress: bool | None = None
    ) -> Job:
        """The job once it has ended, however it ended. The service answers when it has changed. With a
        bar on a terminal and in a notebook, unless `progress` says otherwise."""
        headers: dict[str, str] = {}
        with Watch(progress) as watch:
            while True:
                response = self._send("GET", f"/v1/jobs/{job}", headers=headers)
                if response.status_code != 304:
                    view = Job(answer(response))
                    watch.show(view)
                    if on_change is not None:
                        on_change(view)
                    if view.ended:
                        return view
                if headers and "preference-applied" not in response.headers:
                    sleep(1.0)  # what stands between does not know how to wait
                headers = http.when_changed(response)

    def cancel(self, job: str) -> Job:
        return Job(self.request("POST", f"/v1/jobs/{job}/cancel"))

    def events(self, job: str) -> Results[Result]:
        return self._list(f"/v1/jobs/{job}/events")

    def plan(self, job: str) -> Result:
        return Result(self.request("GET", f"/v1/jobs/{job}/plan"))

    def model(self, job: str) -> Model:
        return Model(self.request("GET", f"/v1/jobs/{job}/model"))

    def evaluation(self, job: str) -> Result:
        """How good models are on held-out rows: metrics and curves, each number with its interval."""
        return Result(self.request("GET", f"/v1/jobs/{job}/evaluation"))

    def summary(self, job: str) -> Result:
        """What the job's summaries told, each number with its interval."""
        return Result(self.request("GET", f"/v1/jobs/{job}/summary"))

    def record(self, job: str) -> Result:
        return Result(self.request("GET", f"/v1/jobs/{job}/audit"))

    # audit and access

    def chain(self, dataset: str) -> Results[Result]:
        return self._list(f"/v1/datasets/{dataset}/audit", "body")

    def public_key(self) -> str:
        return str((self.request("GET", "/v1/audit/public-key"))["public_key"])

    def verify(self, dataset: str, seq: int | None = None) -> Result:
        """What the service itself finds in its chain, or in one record."""
        params = {} if seq is None else {"seq": seq}
        at = f"/v1/datasets/{dataset}/audit/verification"
        return Result(self.request("GET", at, params=params))

    def operations(self) -> Result:
        return Result(self.request("GET", "/v1/operations"))

    def me(self) -> Result:
        return Result(self.request("GET", "/v1/me"))

    def principals(self) -> Results[Result]:
        return self._list("/v1/principals")

    def add_principal(self, name: str, role: str) -> Result:
        body = {"name": name, "role": role}
        return Result(self.request("POST", "/v1/principals", json=body))

    def keys(self) -> Results[Result]:
        return self._list("/v1/keys")

    def add_key(
        self,
        principal: str | None = None,
        expires_days: int | None = None,
        outlives: bool | None = None,
    ) -> Result:
        body = {"principal": principal, "expires_days": expires_days, "outlives": outlives}
        return Result(self.request("POST", "/v1/keys", json=body))

    def rotate_key(self, key: str) -> Result:
        return Result(self.request("POST", f"/v1/keys/{key}/rotate"))

    def revoke_key(self, key: str, everything: bool = False) -> None:
        self.request("DELETE", f"/v1/keys/{key}", params={"everything": everything})

    def revoke_keys(self, principal: str) -> None:
        """All keys of a principal."""
        self.request("DELETE", f"/v1/principals/{principal}/keys")
