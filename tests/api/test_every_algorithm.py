"""Every algorithm of the catalog over HTTP, on both engines, with either kind of noise."""

import pytest

from service.planning.catalog import CATALOG
from tests.harness import job


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_every_algorithm_runs_over_http_and_its_record_verifies(service, delta):
    scene = service.scene(epsilon=60.0, delta=delta, holdout=0.2)
    fitted = None
    for name, entry in CATALOG.items():
        asked = {**job(scene.dataset, 1.0, name), "parameters": {}, **entry.example}
        if entry.summarises:
            del asked["loss"]
        if entry.certifies:
            asked["of"] = fitted
        before = scene.analyst.budget(scene.dataset)
        quote = scene.analyst.quote(asked)
        done = scene.analyst.wait(scene.analyst.submit(asked)["id"])
        assert done["state"] == "succeeded", name
        model = scene.analyst.model(done["id"])
        if entry.certifies or entry.summarises:
            assert any(model.card.get(told) for told in ("certificate", "summaries", "evaluation"))
        else:
            assert len(model.card["coef_"]) == 4
            fitted = done["id"]
        spent = scene.analyst.budget(scene.dataset)["units_spent"] - before["units_spent"]
        assert spent == quote["plan"]["price"]["units"]
    verified = scene.analyst.verify(scene.dataset)
    assert verified["verified"] and verified["records"] == len(CATALOG)
