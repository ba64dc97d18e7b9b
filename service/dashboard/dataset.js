// One dataset: its budget over time, what each release cost, the ledger, shares; the owner's controls.
import { all, api, get, query } from "./client.js";
import { budgetOf, schemaTable, seesGrants } from "./datasets.js";
import { ownerControls, setUpCard } from "./owner.js";
import { burnDown, gauge, shareBar } from "./plots.js";
import {
  action,
  badge,
  card,
  code,
  empty,
  facts,
  field,
  h,
  later,
  link,
  num,
  page,
  percent,
  plural,
  replace,
  select,
  table,
  when,
  words,
} from "./ui.js";

const KINDS = ["open", "reserve", "post", "void", "top_up", "freeze", "unfreeze"];
const PARTS = ["budget", "plot", "costs", "fits", "shares", "ledger", "owner"];
const ENTRIES_SHOWN = 200;
const RELEASES_SHOWN = 50;
const SIZES_SHOWN = 4;

export async function datasetPage(context) {
  const {
    root,
    me,
    params: [id],
  } = context;
  const dataset = await get(`/datasets/${id}`);
  const mine = dataset.owner === me.id;
  // null: of data that came before there were reports
  const known = mine && dataset.state === "ready" && get(`/datasets/${id}/report`);
  const report = (await Promise.resolve(known).catch(() => null)) || null;
  const parts = Object.fromEntries(PARTS.map((name) => [name, h("div", { class: "part" })]));
  const names = new Map([[me.id, "you"]]);
  const nameOf = (principal) => names.get(principal) || `${principal.slice(0, 10)}…`;
  document.title = `${dataset.name} · epsilond`;

  const ledger = ledgerPart(id, nameOf);
  const controls = ownerControls(id, parts.owner, () => refresh());
  const revoke = async (principal) => {
    await api("DELETE", `/datasets/${id}/grants/${principal}`);
    await refresh();
  };
  async function refresh() {
    const budget = dataset.state === "empty" ? null : await budgetOf(id);
    if (!context.here()) return;
    if (!budget) {
      const next = mine && (await setUpCard(dataset, refresh));
      replace(parts.budget, unfinishedCard(dataset, mine), next);
      return;
    }
    const [entries, grants, principals] = await Promise.all([
      all(`/datasets/${id}/ledger`, (e) => e.seq),
      seesGrants(me, dataset) ? all(`/datasets/${id}/grants`, (g) => g.principal) : [],
      mine ? all("/principals") : [],
    ]);
    if (!context.here()) return;
    // before what it changed is seen, so that what is typed next stays
    if (mine)
      controls.draw(
        budget,
        principals.filter((p) => p.role === "analyst"),
      );
    for (const grant of grants)
      if (grant.principal !== me.id) names.set(grant.principal, grant.name);
    if (!mine) names.set(dataset.owner, "the owner");
    const releases = entries.filter((e) => e.kind === "post");
    replace(parts.budget, budgetCard(dataset, budget, releases));
    replace(parts.plot, plotCard(entries, nameOf));
    replace(parts.costs, costsCard(releases, budget, nameOf));
    replace(parts.fits, fitsCard(budget, releases));
    if (seesGrants(me, dataset)) replace(parts.shares, sharesCard(grants, mine && revoke));
    await ledger.show(entries);
    if (!parts.ledger.childElementCount) replace(parts.ledger, ledger.element);
  }

  replace(
    root,
    page(dataset.name, badge(dataset.state), newJobLink(dataset, me)),
    aboutDataset(dataset),
    parts.budget,
    parts.plot,
    h("div", { class: "tiles two" }, parts.fits, parts.shares),
    parts.costs,
    parts.ledger,
    parts.owner,
    report && card("What became of the rows", reportTable(report.report)),
    card("Schema", schemaTable(dataset.schema)),
  );
  const soon = later(() => context.here() && refresh().catch(() => {}), 300);
  context.onEvent((event) => {
    const own = event.event === "budget" && event.dataset === id;
    if (own || event.event === "reset") soon();
  });
  await refresh();
}

// Exact counts, which the service tells to the owner alone.
function reportTable({ rows, rows_clipped: shortened, columns }) {
  const fits = "Nothing was clipped, filled or unknown, and no column is constant.";
  const long = shortened > 0 && `${num(shortened)} of ${plural(rows, "row")} shortened to l2 or linf.`;
  return [
    h("p", { class: "help" }, "Only you see this: these are exact counts. ", !columns.length && fits),
    long && h("p", { class: "note warn" }, long),
    columns.length > 0 &&
      table(
        `What ingestion changed in ${plural(rows, "row")}`,
        ["Column", "Clipped", "Filled", "No category", "Constant"],
        columns.map((c) => [
          c.name,
          num(c.clipped),
          num(c.filled),
          num(c.other),
          c.constant ? "yes" : "no",
        ]),
        { numbers: [1, 2, 3] },
      ),
  ];
}

function newJobLink(dataset, me) {
  const may = ["analyst", "owner"].includes(me.role) && dataset.state === "ready";
  return may && link("New job", `#/jobs/new?dataset=${dataset.id}`, "button primary");
}

function aboutDataset(dataset) {
  const storage = dataset.storage === "fixed" ? "fixed point" : dataset.storage;
  return h(
    "p",
    { class: "help" },
    dataset.rows === null ? "no rows yet" : plural(dataset.rows, "row"),
    dataset.held_out_rows ? ` (${num(dataset.held_out_rows)} held out)` : null,
    `, ${plural(dataset.columns, "feature")}, stored as ${storage}, `,
    link(`${plural(dataset.audit_length, "audit record")}`, `#/audit/${dataset.id}`),
    ", ",
    link("its jobs", `#/jobs?dataset=${dataset.id}`),
    ". ",
    code(dataset.id, 40),
  );
}

function unfinishedCard(dataset, mine) {
  const what = dataset.state === "empty" ? "No data yet" : "No budget yet";
  const next = mine ? "Finish it below." : "Its owner has not finished it; no job can run.";
  return card(null, empty(what, next));
}

// --- the budget

function budgetCard(dataset, budget, releases) {
  const frozen = "Frozen: no more jobs are admitted until the owner unfreezes it.";
  return card(
    "Budget",
    gauge(budget, dataset.name),
    budget.frozen && h("p", { class: "note warn" }, frozen),
    facts([
      ["Ceiling", `ε ${num(budget.epsilon)}`, `δ ${num(budget.delta)}, fixed for ever`],
      ["Spent", `ε ${num(budget.epsilon_spent)}`, "proved for all posted jobs together"],
      ["One more job", `ε ${num(budget.epsilon_remaining)}`, "is the largest that fits"],
      ["Account", ACCOUNTS[budget.kind], budget.order ? `order ${budget.order}` : ""],
    ]),
    h("p", { class: "help" }, budget.words),
    limitsTable(budget),
    releases.length > 0 && savingWords(budget),
  );
}

const ACCOUNTS = { renyi: "Rényi", gaussian: "Gaussian", pure: "pure ε" };
const LIMITS = { ceiling: "the ceiling", cap: "the cap", share: "your share" };

// Every limit counts at an order of its own, so their units cannot be compared.
function limitsTable({ limits }) {
  if (limits.length < 2) return null;
  const heads = ["limit", "ε", "order", "spent", "reserved", "left", "largest job", "claim"];
  const rows = limits.map((limit) => [
    LIMITS[limit.limit],
    num(limit.epsilon),
    limit.order ?? "–",
    percent(limit.fraction_spent, 1),
    percent(limit.fraction_reserved, 1),
    percent(Math.max(0, limit.fraction_remaining), 1),
    `ε ${num(limit.epsilon_remaining)}`,
    limit.in_advance ? "guaranteed" : "the owner’s caution",
  ]);
  return table("Limits that apply to your jobs", heads, rows, { numbers: [1, 2, 3, 4, 5, 6] });
}

function savingWords({ epsilon_summed: summed, epsilon_spent: spent }) {
  const saves = summed > spent + 1e-9;
  return h(
    "p",
    { class: "saving" },
    "The jobs’ own epsilons add up to ",
    h("b", null, num(summed)),
    "; together the jobs are proved to have ε ",
    h("b", null, num(spent)),
    ". ",
    saves
      ? `Composition saves ε ${num(summed - spent)}.`
      : "With one release there is nothing to save yet.",
  );
}

function plotCard(entries, nameOf) {
  const plot =
    entries.length > 1
      ? burnDown(entries, nameOf)
      : empty("Nothing spent yet", "The plot starts with the first job.");
  return card("Burn-down", plot);
}

function costsCard(releases, budget, nameOf) {
  const title = "What each release cost";
  if (!releases.length) {
    return card(
      title,
      empty("No release yet", "Every published model appears here with its price."),
    );
  }
  const heads = ["job", "by", "ε asked", "units", "of the ceiling", "at"];
  const newest = [...releases].reverse().slice(0, RELEASES_SHOWN);
  const rows = newest.map((e) => [
    e.job ? link(code(e.job), `#/jobs/${e.job}`) : "–",
    e.principal ? nameOf(e.principal) : "–",
    num(e.epsilon),
    num(e.units),
    percent(e.units, budget.units_ceiling),
    when(e.created_at),
  ]);
  return card(title, table("Releases, newest first", heads, rows, { numbers: [2, 3, 4] }));
}

function fitsCard(budget, releases) {
  const left = Math.max(0, budget.units_remaining);
  const seen = new Map(releases.map((e) => [num(e.epsilon, 2), e.units]));
  const sizes = [...seen.entries()].slice(-SIZES_SHOWN);
  const count = (units) => Math.floor(left / Math.max(1, units));
  return card(
    "What still fits",
    h(
      "p",
      null,
      budget.frozen ? "Nothing while it is frozen. Then: one" : "One",
      " job of up to ",
      h("b", null, `ε ${num(budget.epsilon_remaining)}`),
      sizes.length ? ", or, within the ceiling, of the sizes seen so far:" : ".",
    ),
    sizes.length > 0 &&
      h(
        "ul",
        null,
        sizes.map(([size, units]) =>
          h("li", null, `${plural(count(units), "job")} of about ε ${size}`),
        ),
      ),
  );
}

// --- shares

// `revoke` is there for the owner only.
function sharesCard(grants, revoke) {
  if (!grants.length) {
    const text = revoke ? "Grant it to an analyst below." : "Its owner has granted it to nobody.";
    return card("Analysts", empty("Granted to nobody", text));
  }
  const heads = ["analyst", "of the ceiling", "share ε", "used", ...(revoke ? [""] : [])];
  const rows = grants.map((grant) => [
    grant.name,
    percent(grant.fraction_committed, 1),
    grant.epsilon_cap === null ? "no bound" : num(grant.epsilon_cap),
    usedBar(grant),
    ...(revoke ? [action("Revoke", () => revoke(grant.principal), "small")] : []),
  ]);
  const caption = "Who may use it, and how much of the budget is theirs";
  return card("Analysts", table(caption, heads, rows, { numbers: [1, 2] }));
}

function usedBar({ name, share, fraction_committed }) {
  const used = share ? 1 - share.fraction_remaining : fraction_committed;
  return shareBar(used, 1, `${name} committed ${percent(used, 1)}`);
}

// --- the ledger

function ledgerPart(id, nameOf) {
  const kind = select([["", "all kinds"], ...KINDS.map((k) => [k, words(k)])], "");
  const person = select([["", "everyone"]], "");
  const list = h("div");
  const download = h("a", { class: "button", download: `ledger-${id}.csv` }, "Export CSV");
  const refresh = async () => {
    const filters = query({ kind: kind.value, principal: person.value });
    const entries = await all(`/datasets/${id}/ledger${filters}`, (e) => e.seq);
    download.href = `/v1/datasets/${id}/ledger.csv${filters}`;
    replace(list, ledgerTable(entries, nameOf));
  };
  for (const control of [kind, person]) control.addEventListener("change", refresh);
  return {
    element: card(
      "Ledger",
      h(
        "div",
        { class: "row filters" },
        field("Kind", kind),
        field("By", person),
        h("div", { class: "field end" }, download),
      ),
      list,
    ),
    show: async (entries) => {
      const people = [...new Set(entries.map((e) => e.principal).filter(Boolean))];
      const chosen = person.value;
      const options = [["", "everyone"], ...people.map((p) => [p, nameOf(p)])];
      replace(
        person,
        options.map(([value, text]) => h("option", { value }, text)),
      );
      person.value = chosen;
      await refresh();
    },
  };
}

function ledgerTable(entries, nameOf) {
  if (!entries.length) return empty("No entry matches", "Choose another filter.");
  const heads = ["entry", "kind", "ε asked", "units", "by", "job", "reason", "at"];
  const newest = [...entries].reverse().slice(0, ENTRIES_SHOWN);
  const rows = newest.map((e) => [
    `#${e.seq}`,
    badge(e.kind),
    e.epsilon === null ? "–" : num(e.epsilon),
    num(e.units),
    e.principal ? nameOf(e.principal) : "–",
    e.job ? link(code(e.job, 10), `#/jobs/${e.job}`) : "–",
    e.reason,
    when(e.created_at),
  ]);
  return table("Entries, newest first", heads, rows, { numbers: [2, 3] });
}
