"""What people do with the dashboard, in a real Chromium against a real service."""

import json
import re
from math import sqrt

import pytest
from playwright.sync_api import expect

from service.audit.verify import verify_chain
from service.planning.catalog import CATALOG
from service.planning.plan import Plan
from tests.harness import job, numbers, numeric_schema, until

ROWS = "\n".join(f"{18 + i % 70},{'ABC'[i % 3]},{'yes' if i % 3 else 'no'}" for i in range(600))
FILE = {
    "name": "visits.csv",
    "mimeType": "text/csv",
    "buffer": f"age,ward,returned\n{ROWS}\n".encode(),
}


def heading(page, name):
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def test_sign_in_refuses_a_wrong_key_and_lets_a_right_one_in(site, visit):
    visit.refused = {401}
    analyst = site.person("analyst")
    page = visit()
    heading(page, "Sign in")
    page.get_by_label("API key").fill("eps_0_0")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("the key is not known")
    page.get_by_label("API key").fill(analyst.key)
    page.keyboard.press("Enter")
    heading(page, "Datasets")
    expect(page.get_by_text("When an owner grants you a dataset")).to_be_visible()
    stored = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    )
    assert analyst.key not in stored and "epsilond_session" not in stored
    page.reload()
    heading(page, "Datasets")
    page.get_by_role("button", name="Sign out").click()
    heading(page, "Sign in")
    page.reload()
    heading(page, "Sign in")


def test_an_owner_uploads_by_form_with_the_schema_filled_in(site, visit):
    visit.refused = {422}
    page = visit(site.person("owner"))
    page.get_by_role("link", name="Upload a dataset").first.click()
    page.get_by_label("File", exact=True).set_input_files(FILE)
    expect(page.get_by_label("Name", exact=True)).to_have_value("visits")
    page.get_by_label("lower bound of age").fill("0")
    page.get_by_label("Kind of ward").select_option("categorical")
    page.get_by_label("categories, by comma of ward").fill("A, B, C")
    page.get_by_label("positive value of returned").fill("yes")
    page.get_by_label("negative value of returned").fill("no")
    page.get_by_label("Ceiling ε").fill("2")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("bounds must be declared")
    page.get_by_label("upper bound of age").fill("110")
    page.get_by_role("button", name="Upload").click()
    heading(page, "visits")
    expect(page.get_by_text("600 rows")).to_be_visible()
    left = re.compile("of epsilon 2: .* 100 % remaining")
    expect(page.get_by_role("img", name=left)).to_be_visible()
    expect(page.get_by_role("table", name=re.compile("Declared schema"))).to_contain_text("A, B, C")
    expect(page.get_by_text("Only you see this: these are exact counts.")).to_be_visible()


def test_submit_with_a_live_quote_and_watch_it_succeed(site, visit):
    scene = site.scene()
    page = visit(scene.analyst, f"#/jobs/new?dataset={scene.dataset}")
    quote = page.get_by_label("Live quote")
    expect(quote.get_by_text("fits.")).to_contain_text("ε 0.1")
    noise = quote.locator("dl div").filter(has_text="Noise of one release").locator("dd")
    before = noise.inner_text()
    page.get_by_label("ε", exact=True).fill("0.5")
    expect(quote.get_by_text("fits.")).to_contain_text("ε 0.5")
    expect(noise).not_to_have_text(before)
    slider = page.get_by_label("ε, on a logarithmic scale")
    slider.focus()
    slider.press("ArrowLeft")
    expect(page.get_by_label("ε", exact=True)).to_have_value("0.49")
    expect(quote.get_by_text("fits.")).to_contain_text("ε 0.49")
    expect(page.get_by_role("table", name=re.compile("Every algorithm"))).to_contain_text(
        "clipped-sgd"
    )
    page.get_by_label("Algorithm", exact=True).select_option("gradient-descent")
    page.get_by_label("Steps", exact=True).fill("7")
    expect(quote).to_contain_text(re.compile(r"Steps\s*7"))
    page.get_by_label("Wanted noise of one mean").fill("0.05")
    page.get_by_role("button", name="Find ε").click()
    expect(page.get_by_label("ε", exact=True)).not_to_have_value("0.49")
    page.get_by_role("button", name="Submit the job").click()
    heading(page, "Job")
    expect(page.locator(".badge.succeeded")).to_be_visible()
    expect(page.get_by_text("7 of 7 steps, 100 %")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Coefficients of 5 features"))).to_be_visible()
    expect(page.get_by_text("What leaves the data is 7 releases")).to_be_visible()
    expect(page.get_by_role("table", name="Releases")).to_contain_text("Gaussian")


def test_progress_is_live_in_two_tabs_that_share_one_stream(site, visit):
    scene = site.scene(rows=20_000)
    page = visit(scene.analyst, "#/jobs")
    other = page.context.new_page()
    other.goto(f"{site.url}/#/jobs")
    expect(other.get_by_text("No jobs here")).to_be_visible()
    until(lambda: site.admin.operations()["streams"] >= 1, "the stream")
    submitted = scene.analyst.submit(job(scene.dataset, 0.5, parameters={"steps": 4000}))["id"]
    for tab in (page, other):
        row = tab.get_by_role("row").filter(has_text=submitted[:16])
        expect(row.locator(".badge.running, .badge.succeeded")).to_be_visible()
        expect(row.locator(".badge.succeeded")).to_be_visible(timeout=60_000)
    assert site.admin.operations()["streams"] == 1
    page.close()  # the stream's keeper leaves, and the other tab takes over
    until(lambda: site.admin.operations()["streams"] == 1, "the other tab's stream")
    again = scene.analyst.submit(job(scene.dataset, 0.1))["id"]
    row = other.get_by_role("row").filter(has_text=again[:16])
    expect(row.locator(".badge.succeeded")).to_be_visible()


def test_over_budget_is_quoted_as_such_and_refused(site, visit):
    visit.refused = {409}
    scene = site.scene(epsilon=0.5)
    page = visit(scene.analyst, f"#/jobs/new?dataset={scene.dataset}")
    quote = page.get_by_label("Live quote")
    page.get_by_label("ε", exact=True).fill("0.9")
    expect(quote.locator(".badge.refused")).to_be_visible()
    expect(quote).to_contain_text("the budget has")
    page.get_by_role("button", name="Submit the job").click()
    expect(page.get_by_role("alert")).to_contain_text("The job does not fit the budget")
    assert scene.analyst.jobs() == []


def test_cancel(site, visit):
    scene = site.scene(rows=20_000)
    submitted = scene.analyst.submit(job(scene.dataset, 0.5, parameters={"steps": 300_000}))["id"]
    page = visit(scene.analyst, f"#/jobs/{submitted}")
    finished = page.locator("dl div").filter(has_text="Finished").locator("dd")
    expect(finished).not_to_have_text(re.compile(r"\d"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".badge.cancelled")).to_be_visible()
    expect(finished).to_have_text(re.compile(r"\d"))
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert scene.analyst.job(submitted)["state"] == "cancelled"


def test_verify_one_certificate_and_the_whole_chain(site, visit, tmp_path):
    scene = site.scene()
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])["id"]
    page = visit(scene.analyst, f"#/jobs/{done}")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("Record 1 verified")).to_be_visible()
    page.goto(f"{site.url}/#/audit/{scene.dataset}")
    page.get_by_role("button", name="Verify all").click()
    expect(page.get_by_text("1 record verified")).to_be_visible()
    page.get_by_role("button", name="Show record 1").click()
    page.get_by_role("button", name="Verify this record").click()
    expect(page.get_by_text("Record 1 verified")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the chain").click()
    download.value.save_as(tmp_path / "chain.json")
    exported = (tmp_path / "chain.json").read_text()
    assert verified_offline(site, exported) == []
    forged = {"seq": None, "records": 1, "verified": False, "findings": ["record 1: forged"]}
    page.route("**/audit/verification", lambda route: route.fulfill(json=forged))
    page.get_by_role("button", name="Verify all").click()
    expect(page.get_by_role("alert")).to_contain_text("record 1: forged")


def verified_offline(site, exported):
    return verify_chain(json.loads(exported), site.settings.keys.public_hex())


def test_an_owner_tops_up_grants_and_freezes(site, visit):
    visit.refused = {409}
    scene = site.scene()
    other = site.person("analyst")
    second = scene.owner.declare_dataset("capped", numeric_schema())["id"]
    scene.owner.upload(second, numbers(site.folder, 500, 4))
    cap = {"epsilon": 2.0, "delta": 1e-6, "epsilon_cap": 0.5}
    scene.owner.request("PUT", f"/v1/datasets/{second}/budget", json=cap)
    page = visit(scene.owner, f"#/datasets/{second}")
    page.get_by_label("New cap ε").fill("3")
    page.get_by_label("Reason").first.fill("approved")
    page.get_by_role("button", name="Top up").click()
    expect(page.get_by_role("alert")).to_contain_text("A cap cannot pass the ceiling")
    page.get_by_label("New cap ε").fill("1.5")
    page.get_by_role("button", name="Top up").click()
    ledger = page.get_by_role("table", name="Entries, newest first")
    expect(ledger).to_contain_text("approved")
    assert scene.owner.budget(second)["epsilon_cap"] == 1.5
    page.get_by_label("Analyst", exact=True).select_option(other.id)
    page.get_by_label("Share ε").fill("0.4")
    page.get_by_role("button", name="Grant", exact=True).click()
    shares = page.get_by_role("table", name=re.compile("Who may use it"))
    expect(shares).to_contain_text("0.4")
    page.get_by_label("Reason").last.fill("under review")
    page.get_by_role("button", name="Freeze", exact=True).click()
    expect(page.get_by_role("button", name="Unfreeze")).to_be_visible()
    expect(page.get_by_text("Frozen: no more jobs are admitted")).to_be_visible()
    page.get_by_label("Kind", exact=True).select_option("freeze")
    expect(ledger.get_by_role("row")).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    assert "under review" in download.value.path().read_text()


def test_the_dataset_page_follows_the_ledger(site, visit):
    scene = site.scene()
    page = visit(scene.analyst, f"#/datasets/{scene.dataset}")
    expect(page.get_by_text("Nothing spent yet")).to_be_visible()
    for epsilon in (0.3, 0.3):
        scene.analyst.wait(scene.analyst.submit(job(scene.dataset, epsilon))["id"])
    saving = page.locator(".saving")
    expect(saving).to_contain_text(
        re.compile("own epsilons add up to 0.6; together the jobs are proved to have ε 0.4")
    )
    plot = page.get_by_role("img", name=re.compile("^Budget over time"))
    plot.hover(position={"x": 50, "y": 60})
    expect(page.locator(".readout")).to_contain_text(re.compile("% left after #"))
    page.get_by_label("Ledger entry to read out").press("Home")
    expect(page.locator(".readout")).to_contain_text("after #1 open")


def test_one_step_from_zero_has_error_bars_and_two_steps_have_none(site, visit):
    scene = site.scene()
    page = visit(scene.analyst)
    for steps, bars in ((1, 5), (2, 0)):
        asked = job(scene.dataset, 0.3, parameters={"steps": steps})
        done = scene.analyst.wait(scene.analyst.submit(asked)["id"])["id"]
        page.goto(f"{site.url}/#/jobs/{done}")
        expect(page.get_by_role("heading", name="Model")).to_be_visible()
        expect(page.locator(".error")).to_have_count(bars)


def test_a_regulariser_from_an_algorithms_example_is_quoted_and_submitted(site, visit):
    visit.refused = {422}  # the quote without it
    scene = site.scene()
    page = visit(scene.analyst, f"#/jobs/new?dataset={scene.dataset}")
    page.get_by_label("Algorithm", exact=True).select_option("proximal-sgd")
    page.get_by_role("button", name="Fill in an example").click()
    expect(page.get_by_label("Regulariser", exact=True)).to_have_value("l1")
    expect(page.get_by_label("Strength")).to_have_value("0.001")
    expect(page.get_by_label("Live quote").get_by_text("fits.")).to_be_visible()
    page.get_by_role("button", name="Submit the job").click()
    expect(page.locator(".badge.succeeded")).to_be_visible()
    expect(page.get_by_text("with the regulariser l1 (strength 0.001)")).to_be_visible()


def test_roles_see_what_they_may(site, visit):
    scene = site.scene()
    auditor, admin = site.person("auditor"), site.person("admin")
    expected = {
        scene.analyst: ["Datasets", "Jobs", "New job", "Audit"],
        scene.owner: ["Datasets", "Jobs", "New job", "Audit"],
        auditor: ["Datasets", "Jobs", "Audit"],
        admin: ["Datasets", "Jobs", "Audit", "Operations"],
    }
    for person, links in expected.items():
        page = visit(person, f"#/datasets/{scene.dataset}")
        assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == links
        heading(page, "numbers")
        expect(page.get_by_role("table", name="Entries, newest first")).to_be_visible()
        own = person is scene.owner
        expect(page.get_by_text("For the owner")).to_have_count(int(own))
        sees = person is not scene.analyst
        expect(page.get_by_role("table", name=re.compile("Who may use it"))).to_have_count(
            int(sees)
        )
    page.goto(f"{site.url}/#/operations")
    expect(page.get_by_role("table", name="Seen within the last minute")).to_contain_text("worker")
    page = visit(scene.analyst, "#/operations")
    heading(page, "Not for your role")
    page.goto(f"{site.url}/#/upload")
    expect(page.get_by_text("This page is for the role owner")).to_be_visible()


def test_an_expired_session_asks_to_sign_in_and_returns_to_the_page(site, visit):
    visit.refused = {401}
    scene = site.scene()
    page = visit(scene.analyst, f"#/datasets/{scene.dataset}")
    heading(page, "numbers")
    with site.db.write() as connection:
        connection.exec_driver_sql("UPDATE sessions SET expires_ms = 1")
    heading(page, "Sign in")  # by itself: the event stream ends with the session
    expect(page.get_by_text("Your session has ended")).to_be_visible()
    page.get_by_label("API key").fill(scene.analyst.key)
    page.get_by_role("button", name="Sign in").click()
    heading(page, "numbers")


def known_noise(plan):
    """The standard deviation of the noise in a weight, where the model is one noisy point."""
    made = Plan.model_validate(plan)
    last = {
        "minimiser": lambda schedule: schedule.lattice_step,
        "phased_sgd": lambda schedule: schedule.phases[-1].lattice_step,
    }.get(made.schedule.kind)
    return last and sqrt(made.lattice.variance_of(last(made.schedule)))


def test_every_algorithm_has_a_page_for_its_job(site, visit):
    scene = site.scene(epsilon=60.0, holdout=0.2)
    page = visit(scene.analyst)
    fitted = None
    for name, entry in CATALOG.items():
        if entry.needs.evaluates:  # on the rows that were held out: curves, not coefficients
            continue
        asked = {**job(scene.dataset, 1.0, name), "parameters": {}, **entry.example}
        if entry.certifies:
            asked["of"] = fitted
        if entry.summarises:
            del asked["loss"]
        done = scene.analyst.wait(scene.analyst.submit(asked)["id"])
        assert done["state"] == "succeeded", name
        page.goto(f"{site.url}/#/jobs/{done['id']}")
        fitted = fitted if entry.certifies or entry.summarises else done["id"]
        expect(page.get_by_text(entry.title)).to_be_visible()
        shown = "Stationarity" if entry.certifies else "Model"
        shown = "Counts: y" if entry.summarises else shown
        expect(page.get_by_role("heading", name=shown)).to_be_visible()
        known = known_noise(scene.analyst.request("GET", f"/v1/jobs/{done['id']}/plan"))
        bars = 2 if entry.summarises else 0
        expect(page.locator(".error")).to_have_count(5 if known else bars)
        if known:
            said = page.get_by_text("Error bars").inner_text()
            assert float(re.search(r"\(([\d.e-]+) in", said)[1]) == pytest.approx(known, rel=1e-3)
    centre = {**job(scene.dataset, 1.0), "loss": "geometric_median", "set": {"radius": 1.0}}
    done = scene.analyst.wait(scene.analyst.submit(centre)["id"])
    page.goto(f"{site.url}/#/jobs/{done['id']}")
    expect(page.get_by_role("heading", name="Centre")).to_be_visible()


def test_summaries_are_drawn_and_told_with_their_intervals(site, visit):
    scene = site.scene(epsilon=50.0)
    kinds = ["histogram", "quantiles", "mean", "bounds"]
    asked = {
        "dataset": scene.dataset,
        "algorithm": "column-summaries",
        "privacy": {"epsilon": 5.0},
        "summaries": [
            *({"kind": kind, "column": "x0"} for kind in kinds),
            {"kind": "counts"},
            {"kind": "correlations", "columns": ["x0", "y"]},
        ],
    }
    page, done = visit(scene.analyst), scene.analyst.wait(scene.analyst.submit(asked)["id"])
    told = {one["kind"]: one for one in scene.analyst.summary(done["id"])["data"]}
    page.goto(f"{site.url}/#/jobs/{done['id']}")
    for name in ("Histogram: x0", "Quantiles: x0", "Mean: x0", "Bounds: x0", "Correlations: x0, y"):
        expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.locator(".error")).to_have_count(20 + 2)  # a whisker for every share
    expect(page.get_by_role("row", name=re.compile("^50 % below"))).to_have_count(1)
    expect(page.get_by_role("row", name=re.compile("^x0, y"))).to_have_count(1)
    suggested = f"{told['bounds']['upper']:.4g}".replace("-", "−")
    expect(page.get_by_text(re.compile(f"Suggested: lower .*, upper {suggested}"))).to_be_visible()


def test_a_model_is_evaluated_and_its_curves_are_read_out_by_keys(site, visit):
    scene = site.scene(rows=4000, holdout=0.25)
    analyst = scene.analyst
    fit = analyst.wait(analyst.submit(job(scene.dataset, 0.6))["id"])["id"]
    page = visit(analyst, f"#/jobs/{fit}")
    page.get_by_role("link", name="Evaluate this model").click()
    expect(page.get_by_label("Algorithm", exact=True)).to_have_value("model-evaluation")
    expect(page.get_by_label("Model of")).to_have_value(fit)
    asked = {"dataset": scene.dataset, "algorithm": "model-evaluation", "of": fit}
    done = analyst.wait(analyst.submit(asked | {"privacy": {"epsilon": 1.0}})["id"])["id"]
    page.goto(f"{site.url}/#/jobs/{done}")
    expect(page.get_by_role("region", name="How good the model is")).to_contain_text("Accuracy")
    expect(page.get_by_role("img", name=re.compile("^ROC: recall against false"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Precision and recall"))).to_be_visible()
    slider, read = page.get_by_label("Point of ROC to read out"), page.locator(".readout").first
    slider.press("Home")
    expect(read).to_contain_text("recall")
    before = read.inner_text()
    slider.press("ArrowRight")
    expect(read).not_to_have_text(before)
