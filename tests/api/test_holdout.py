"""The held-out share, from the declaration to the facts of a Plan, over HTTP."""

import numpy as np
import pytest

from epsilond import ApiError
from tests.harness import job, numbers, numeric_schema


def declared(**changes):
    schema = numeric_schema()
    del schema["holdout"]
    return schema | changes


@pytest.mark.parametrize(("share", "held_out"), [(None, 200), (0, 0), (0.5, 500)])
def test_the_numbers_of_both_parts_are_public(service, share, held_out):
    owner = service.person("owner")
    schema = declared() if share is None else declared(holdout=share)
    made = owner.declare_dataset("rows", schema)
    assert made["schema"]["holdout"] == (0.2 if share is None else share)
    assert (made["rows"], made["fit_rows"], made["held_out_rows"]) == (None, None, None)
    view = owner.upload(made["id"], numbers(service.folder, 1000, 4))
    counts = (view["rows"], view["fit_rows"], view["held_out_rows"])
    assert counts == (1000, 1000 - held_out, held_out)
    assert view["report"]["rows"] == 1000
    owner.set_budget(made["id"], 1.0, 1e-6)
    submitted = owner.submit(job(made["id"], 0.5))
    assert owner.wait(submitted["id"])["state"] == "succeeded"
    facts = owner.plan(submitted["id"])["facts"]
    assert (facts["rows"], facts.get("held_out", 0)) == (1000 - held_out, held_out)


def test_too_few_rows_for_the_share_are_refused_with_what_works(service):
    owner = service.person("owner")
    file = service.folder / "few.npz"
    np.savez(file, X=np.zeros((2, 4)), y=np.array([0, 1]))
    dataset = owner.declare_dataset("few", declared())["id"]
    with pytest.raises(ApiError, match='"holdout": 0, or send at least 5 rows') as refused:
        owner.upload(dataset, file)
    assert refused.value.status == 422
    owner.delete_dataset(dataset)
    dataset = owner.declare_dataset("few", declared(holdout=0))["id"]
    assert owner.upload(dataset, file)["held_out_rows"] == 0
