"""Forms are made from the API's document and catalog: what these gain, the pages gain."""

from playwright.sync_api import expect

from tests.dashboard.test_flows import FILE
from tests.harness import until


def kind(kind_, doc, *required, **properties):
    return {
        "type": "object",
        "description": doc,
        "required": list(required),
        "properties": {"kind": {"const": kind_, "default": kind_, "type": "string"}, **properties},
    }


NEW = {
    "Welsch": kind("welsch", "A bounded loss.", scale={"type": "number", "default": 1.0}),
    "LpBall": kind(
        "lp_ball",
        "All w with ||w||_p at most `radius`.",
        "p",
        p={"type": "number", "minimum": 1, "maximum": 2, "description": "The norm's exponent."},
        radius={"type": "number", "exclusiveMinimum": 0, "default": 10.0},
    ),
    "Linear": kind("linear", "<w, x>."),
    "ReluNetwork": kind(
        "relu_network",
        "One hidden layer.",
        "width",
        width={"type": "integer", "exclusiveMinimum": 0},
        freeze={"type": "boolean", "default": False},
    ),
    "UnboundedLabel": kind(
        "unbounded", "y as it is.", name={"type": "string"}, scale={"type": "number"}
    ),
}
FIELDS = {
    "gap": {"anyOf": [{"type": "number"}, {"const": "auto"}, {"type": "null"}]},
    "sizes": {"type": "array", "items": {"type": "integer"}},
    "mode": {"enum": ["slow", "fast"], "default": "slow", "type": "string"},
}


def refer(*names):
    return [{"$ref": f"#/components/schemas/{name}"} for name in names]


def document(route):
    """Another loss, another set, a choice of models and another kind of label."""
    made = route.fetch().json()
    schemas = made["components"]["schemas"]
    spec = schemas["JobSpec"]["properties"]
    schemas |= NEW
    spec["loss"]["oneOf"] += refer("Welsch")
    spec["set"]["oneOf"] += refer("LpBall")
    spec["model"] = {
        "oneOf": refer("Linear", "ReluNetwork"),
        "default": {"kind": "linear"},
        "discriminator": {"propertyName": "kind"},
    }
    schemas["Schema"]["properties"]["label"]["oneOf"] += refer("UnboundedLabel")
    route.fulfill(json=made)


def catalog(route):
    made = route.fetch().json()
    parameters = {"type": "object", "properties": FIELDS}
    made["data"].append({**made["data"][0], "name": "brand-new", "parameters": parameters})
    route.fulfill(json=made)


def test_the_job_form_has_what_the_document_and_the_catalog_have(site, visit):
    visit.refused = {422}
    scene, asked = site.scene(), []

    def quote(route):
        asked.append(route.request.post_data_json)
        route.fulfill(status=422, json={"title": "No plan", "detail": "of this kind"})

    page = visit(scene.analyst)
    page.route("**/openapi.json", document)
    page.route("**/v1/algorithms*", catalog)
    page.route("**/v1/quotes**", quote)
    page.goto(f"{site.url}/#/jobs/new?dataset={scene.dataset}")
    page.get_by_label("Loss", exact=True).select_option("welsch")
    expect(page.get_by_text("A bounded loss.")).to_be_visible()
    page.get_by_label("Set", exact=True).select_option("lp_ball")
    expect(page.get_by_text("The norm's exponent. At least 1, at most 2.")).to_be_visible()
    page.get_by_label("P", exact=True).fill("1.5")
    expect(page.get_by_label("Width")).to_have_count(0)
    page.get_by_label("Model", exact=True).select_option("relu_network")
    page.get_by_label("Width").fill("16")
    page.get_by_label("Freeze").select_option("true")
    page.get_by_label("Algorithm", exact=True).select_option("brand-new")
    page.get_by_label("Gap").fill("auto")
    page.get_by_label("Sizes").fill("3, 4")
    page.get_by_label("Mode", exact=True).select_option("fast")
    wanted = {
        "loss": {"kind": "welsch"},
        "set": {"kind": "lp_ball", "p": 1.5},
        "model": {"kind": "relu_network", "width": 16, "freeze": True},
        "parameters": {"gap": "auto", "sizes": [3, 4], "mode": "fast"},
        "algorithm": "brand-new",
        "dataset": scene.dataset,
        "privacy": {"epsilon": 0.1},
    }
    until(lambda: page.wait_for_timeout(50) or wanted in asked, "the quote of all that")


def test_the_upload_form_has_every_kind_of_column_and_label(site, visit):
    visit.refused = {422}
    declared = []
    page = visit(site.person("owner"))

    def declare(route):
        declared.append(route.request.post_data_json)
        route.fulfill(status=422, json={"title": "Not today", "detail": "but well said"})

    page.route("**/openapi.json", document)
    page.route("**/v1/datasets", declare)
    page.goto(f"{site.url}/#/upload")
    page.get_by_label("File", exact=True).set_input_files(FILE)
    page.get_by_label("lower bound of age").fill("0")
    page.get_by_label("upper bound of age").fill("110")
    page.get_by_label("log scale of age").check()
    page.get_by_label("Kind of ward").select_option("ignored")
    page.get_by_label("Kind of returned").select_option("unbounded")
    page.get_by_label("scale of returned").fill("10")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("but well said")
    age = {"name": "age", "kind": "numeric", "lower": 0, "upper": 110, "log1p": True}
    assert declared[0]["schema"] == {
        "columns": [age, {"name": "ward", "kind": "ignored"}],
        "label": {"name": "returned", "kind": "unbounded", "scale": 10},
    }
    page.get_by_label("Kind of returned").select_option("categorical")
    page.get_by_label("classes, by comma of returned").fill("yes, no, never")
    page.get_by_role("button", name="Upload").click()
    until(lambda: page.wait_for_timeout(50) or len(declared) == 2, "the second declaration")
    assert declared[1]["schema"]["label"]["classes"] == ["yes", "no", "never"]


def test_kinds_that_an_algorithm_does_not_take_cannot_be_chosen(site, visit):
    visit.refused = {422}
    scene = site.scene()
    takes = {"losses": ["logistic", "hinge"], "sets": ["l2_ball"], "models": ["relu_network"]}

    def picky(route):
        made = route.fetch().json()
        card = {**made["data"][0], "name": "picky", "takes": takes}
        made["data"].append(card)
        route.fulfill(json=made)

    page = visit(scene.analyst)
    page.route("**/v1/algorithms*", picky)
    page.goto(f"{site.url}/#/jobs/new?dataset={scene.dataset}")
    loss, set_ = page.get_by_label("Loss", exact=True), page.get_by_label("Set", exact=True)
    expect(loss.locator("option:disabled")).to_have_count(0)
    page.get_by_label("Algorithm", exact=True).select_option("picky")
    expect(loss.locator("option:not(:disabled)")).to_have_text(["logistic", "hinge"])
    expect(set_.locator("option:not(:disabled)")).to_have_text(["default", "l2 ball"])
    model = page.get_by_label("Model", exact=True)
    expect(model.locator("option:not(:disabled)")).to_have_text(["relu network"])
    page.get_by_label("Algorithm", exact=True).select_option("auto")
    expect(loss.locator("option:disabled")).to_have_count(0)
