// One dataset: its budget over time, what each release cost, the ledger, shares; the owner's controls.
import { all, api, get, post, put, query } from "./client.js";
import { budgetOf, schemaTable, seesGrants } from "./datasets.js";
import { burnDown, gauge, shareBar } from "./plots.js";
import { budgetFields, sendData } from "./upload.js";
import { action, badge, card, code, empty, facts, field, form, h, later, link, num, page, percent, plural, replace, select, table, when, words } from "./ui.js";

const KINDS = ["open", "reserve", "post", "void", "top_up", "freeze", "unfreeze"];
const number = (input) => (input.value.trim() === "" ? undefined : Number(input.value));

export async function datasetPage(context) {
  const { root, me, params: [id] } = context;
  const dataset = await get(`/datasets/${id}`);
  const mine = dataset.owner === me.id;
  const parts = Object.fromEntries(["budget", "plot", "costs", "fits", "shares", "ledger", "owner"].map((name) => [name, h("div", { class: "part" })]));
  const names = new Map([[me.id, "you"]]);
  const nameOf = (principal) => names.get(principal) || `${principal.slice(0, 10)}…`;
  document.title = `${dataset.name} · epsilond`;

  const kind = select([["", "all kinds"], ...KINDS.map((k) => [k, words(k)])], "");
  const person = select([["", "everyone"]], "");
  const ledgerList = h("div");
  const download = h("a", { class: "button", download: `ledger-${id}.csv` }, "Export CSV");
  const filters = () => ({ kind: kind.value, principal: person.value });
  const showLedger = async () => {
    const entries = await all(`/datasets/${id}/ledger${query(filters())}`, (e) => e.seq);
    download.href = `/v1/datasets/${id}/ledger.csv${query(filters())}`;
    replace(ledgerList, entries.length ? table("Entries, newest first", ["entry", "kind", "ε", "units", "by", "job", "reason", "at"],
      entries.reverse().slice(0, 200).map((e) => [`#${e.seq}`, badge(e.kind), num(e.epsilon), num(e.units), e.principal ? nameOf(e.principal) : "–",
        e.job ? link(code(e.job, 10), `#/jobs/${e.job}`) : "–", e.reason, when(e.created_at)]), { numbers: [2, 3] })
      : empty("No entry matches", "Choose another filter."));
  };
  for (const control of [kind, person]) control.addEventListener("change", showLedger);

  const refresh = async () => {
    const budget = dataset.state === "empty" ? null : await budgetOf(id);
    if (!context.here()) return;
    if (!budget) {
      replace(parts.budget, card(null, empty(dataset.state === "empty" ? "No data yet" : "No budget yet",
        mine ? "Finish it below." : "Its owner has not finished it; no job can run.")), mine && setUp());
      return;
    }
    const [entries, grants, principals] = await Promise.all([all(`/datasets/${id}/ledger`, (e) => e.seq), seesGrants(me, dataset) ? all(`/datasets/${id}/grants`, (g) => g.principal) : [], mine ? all("/principals") : []]);
    if (!context.here()) return;
    if (mine) drawOwner(budget, principals.filter((p) => p.role === "analyst")); // before what it changed is seen: what is typed next stays
    for (const g of grants) if (g.principal !== me.id) names.set(g.principal, g.name);
    if (dataset.owner !== me.id) names.set(dataset.owner, "the owner");
    drawBudget(budget, entries);
    drawShares(budget, grants);
    const people = [...new Set(entries.map((e) => e.principal).filter(Boolean))];
    const chosen = person.value;
    replace(person, [["", "everyone"], ...people.map((p) => [p, nameOf(p)])].map(([key, text]) => h("option", { value: key }, text)));
    person.value = chosen;
    await showLedger();
    if (!parts.ledger.childElementCount) replace(parts.ledger, card("Ledger", h("div", { class: "row filters" }, field("Kind", kind), field("By", person), h("div", { class: "field end" }, download)), ledgerList));
  };

  function drawBudget(budget, entries) {
    const posts = entries.filter((e) => e.kind === "post");
    const saved = budget.epsilon_summed > budget.epsilon_spent + 1e-9;
    replace(parts.budget, card("Budget", gauge(budget, dataset.name),
      budget.frozen && h("p", { class: "note warn" }, "Frozen: no more jobs are admitted until the owner unfreezes it."),
      facts([
        ["Ceiling", `ε ${num(budget.epsilon)}`, `δ ${num(budget.delta)}, fixed for ever`],
        ["Cap", `ε ${num(budget.epsilon_cap)}`, budget.epsilon_cap < budget.epsilon ? "can be topped up" : "at the ceiling"],
        budget.share && ["Your share", `ε ${num(budget.share.epsilon_remaining)} left`, `of ε ${num(budget.share.epsilon_cap)}`],
        ["Account", budget.kind === "renyi" ? "Rényi" : "pure ε", budget.order ? `order ${budget.order}` : ""]]),
      posts.length > 0 && h("p", { class: "saving" }, "Adding epsilons would read ", h("b", null, num(budget.epsilon_summed)), "; the ledger’s bound is ", h("b", null, num(budget.epsilon_spent)), ". ",
        saved ? `Composition saves ε ${num(budget.epsilon_summed - budget.epsilon_spent)}.` : "With one release there is nothing to save yet.")));
    replace(parts.plot, card("Burn-down", entries.length > 1 ? burnDown(entries, budget.delta, nameOf) : empty("Nothing spent yet", "The plot starts with the first job.")));
    replace(parts.costs, card("What each release cost", posts.length ? table("Releases, newest first", ["job", "by", "ε of it alone", "units", "of the ceiling", "at"],
      [...posts].reverse().slice(0, 50).map((e) => [e.job ? link(code(e.job), `#/jobs/${e.job}`) : "–", e.principal ? nameOf(e.principal) : "–", num(e.epsilon), num(e.units), percent(e.units, budget.units_ceiling), when(e.created_at)]), { numbers: [2, 3, 4] })
      : empty("No release yet", "Every published model appears here with its price.")));
    const left = Math.max(0, budget.share ? budget.share.units_remaining : budget.units_remaining);
    const largest = budget.share ? budget.share.epsilon_remaining : budget.epsilon_remaining;
    const sizes = [...new Map(posts.map((e) => [num(e.epsilon, 2), e.units])).entries()].slice(-4);
    replace(parts.fits, card("What still fits", h("p", null, budget.frozen ? "Nothing while it is frozen. Then: one" : "One", " job of up to ", h("b", null, `ε ${num(largest)}`), sizes.length ? ", or of the sizes seen so far:" : "."),
      sizes.length > 0 && h("ul", null, sizes.map(([size, units]) => h("li", null, `${plural(Math.floor(left / Math.max(1, units)), "job")} of about ε ${size}`)))));
  }

  function drawShares(budget, grants) {
    if (!seesGrants(me, dataset)) return;
    replace(parts.shares, card("Analysts", grants.length ? table("Who may use it, and how much of the budget is theirs", ["analyst", "committed ε", "share ε", "used", ...(mine ? [""] : [])],
      grants.map((g) => [g.name, num(g.epsilon_committed), g.epsilon_cap === null ? "no bound" : num(g.epsilon_cap),
        shareBar(g.units_committed, g.units_cap ?? budget.units_cap, `${g.name} committed ${percent(g.units_committed, g.units_cap ?? budget.units_cap)}`),
        ...(mine ? [action("Revoke", async () => { await api("DELETE", `/datasets/${id}/grants/${g.principal}`); await refresh(); }, "small")] : [])]), { numbers: [1, 2] })
      : empty("Granted to nobody", mine ? "Grant it to an analyst below." : "Its owner has granted it to nobody.")));
  }

  function setUp() {
    if (dataset.state === "empty") {
      const file = h("input", { type: "file", accept: ".csv,.npz,text/csv", required: true });
      return card("Upload its data", form([field("File", file, "CSV with a header, or NPZ; it must match the schema below.")], "Upload",
        async () => { Object.assign(dataset, await sendData(id, file.files[0])); await refresh(); }, { busy: "Uploading and encoding…" }));
    }
    const budget = budgetFields();
    return card("Set its budget", form([budget.fields], "Fix the budget for ever", async () => { await put(`/datasets/${id}/budget`, budget.read()); await refresh(); }));
  }

  let drawn = "";
  function drawOwner(budget, analysts) {
    const state = `${budget.frozen} ${budget.epsilon_cap} ${analysts.length}`;
    if (drawn === state) return; // what is being typed stays
    drawn = state;
    const cap = h("input", { inputmode: "decimal", required: true });
    const why = h("input", { required: true, maxlength: 200 });
    const whyFrozen = h("input", { required: true, maxlength: 200 });
    const who = select(analysts.map((p) => [p.id, p.name]), undefined, { required: true });
    const share = h("input", { inputmode: "decimal", placeholder: "no bound" });
    const done = async (text) => { drawn = ""; await refresh(); return text; };
    const word = budget.frozen ? "Unfreeze" : "Freeze";
    replace(parts.owner, h("h2", { class: "section" }, "For the owner"), h("div", { class: "tiles three" },
      card("Top up", budget.epsilon_cap < budget.epsilon ? form([
        field("New cap ε", cap, `Above ${num(budget.epsilon_cap)}, at most ${num(budget.epsilon)}.`), field("Reason", why, "It stays in the ledger.")],
      "Top up", async () => { await post(`/datasets/${id}/budget/top-ups`, { epsilon_cap: Number(cap.value), reason: why.value }); return done(); })
        : empty("At the ceiling", "The cap is the ceiling, which was fixed for ever.")),
      card("Grant", analysts.length ? form([field("Analyst", who), field("Share ε", share, "The most they may commit. Empty: no bound.")], "Grant", async () => {
        await put(`/datasets/${id}/grants/${who.value}`, { epsilon_cap: number(share) ?? null });
        return done(`Granted to ${who.selectedOptions[0].textContent}.`);
      }) : empty("No analysts", "An administrator makes them.")),
      card(word, form([field("Reason", whyFrozen, budget.frozen ? "Jobs are admitted again." : "No more jobs are admitted; those admitted run on.")], word,
        async () => { await post(`/datasets/${id}/budget/${word.toLowerCase()}`, { reason: whyFrozen.value }); return done(); }, { class: budget.frozen ? "primary" : "danger" }))));
  }

  replace(root, page(dataset.name, badge(dataset.state), ["analyst", "owner"].includes(me.role) && dataset.state === "ready" && link("New job", `#/jobs/new?dataset=${id}`, "button primary")),
    h("p", { class: "help" }, dataset.rows === null ? "no rows yet" : plural(dataset.rows, "row"), `, ${plural(dataset.columns, "feature")}, stored as ${dataset.storage === "fixed" ? "fixed point" : "float64"}, `,
      link(`${plural(dataset.audit_length, "audit record")}`, `#/audit/${id}`), ", ", link("its jobs", `#/jobs?dataset=${id}`), ". ", code(id, 40)),
    parts.budget, parts.plot, h("div", { class: "tiles two" }, parts.fits, parts.shares), parts.costs, parts.ledger, parts.owner,
    card("Schema", schemaTable(dataset.schema)));
  const soon = later(() => context.here() && refresh().catch(() => {}), 300);
  context.onEvent((event) => { if (event.event === "reset" || event.event === "budget" && event.dataset === id) soon(); });
  await refresh();
}
