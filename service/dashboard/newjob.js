// A form made from the catalog's schemas, with the price of what it says while it is typed.
import { all, get, post } from "./client.js";
import { planWords, releaseTable } from "./job.js";
import { openapi, schemaForm, wholeForm } from "./schema.js";
import { badge, card, empty, facts, field, form, h, later, link, loading, note, num, page, percent, plural, problem, replace, select, table } from "./ui.js";

const CERTIFIES = "stationarity-certificate";
const ELSEWHERE = ["dataset", "algorithm", "privacy", "parameters", "of"]; // fields with a place of their own
const LOSSES = { binary: "logistic", unbounded: "absolute", categorical: "softmax" };
const NOTHING = { element: null, read: () => ({}), fill: () => {} };


export async function newJobPage(context) {
  const { root, me } = context;
  const [datasets, algorithms, document_] = await Promise.all([all("/datasets"), all("/algorithms", (a) => a.name), openapi()]);
  const usable = datasets.filter((d) => d.state === "ready" && (me.role === "analyst" || d.owner === me.id));
  if (!usable.length) {
    replace(root, page("New job"), card(null, empty("No dataset to use", me.role === "owner" ? "Upload one first." : "When an owner grants you a dataset, jobs start here.", me.role === "owner" && link("Upload a dataset", "#/upload", "button primary"))));
    return;
  }
  const changed = () => { refreshQuote(); refreshComparison(); };
  const dataset = select(usable.map((d) => [d.id, d.name]), usable.find((d) => d.id === context.query.get("dataset"))?.id || usable[0].id);
  const algorithm = select([["auto", "auto: the smallest predicted error"], ...algorithms.map((a) => [a.name, `${a.name}: ${a.title}`])], context.query.get("of") ? CERTIFIES : "auto");
  const about = h("p", { class: "help" });
  const what = wholeForm(document_.components.schemas.JobSpec, document_, changed, ELSEWHERE);
  const of = h("input", { value: context.query.get("of") || "", placeholder: "job_…", oninput: changed });
  const ofPlace = h("div", null, field("Model of", of, "The job whose model is certified; it must be on this dataset."));
  const delta = h("input", { inputmode: "decimal", placeholder: "the account’s", oninput: changed });
  const epsilon = h("input", { inputmode: "decimal", value: "0.1" });
  const slider = h("input", { type: "range", min: -3, max: 1, step: 0.01, value: -1, "aria-label": "ε, on a logarithmic scale" });
  const wanted = h("input", { inputmode: "decimal", placeholder: "0.01", "aria-label": "Wanted noise of one mean" });
  const parametersPlace = h("div");
  const quotePart = h("div", { "aria-live": "polite", "aria-atomic": "false" }, loading("Asking the price…"));
  const comparisonPart = h("div");
  const planPart = h("div");
  let parameters = NOTHING;

  const pickAlgorithm = () => {
    const card_ = algorithms.find((a) => a.name === algorithm.value);
    parameters = card_ ? schemaForm(card_.parameters, changed) : NOTHING;
    about.textContent = card_ ? `${card_.problem}. Needs: ${card_.needs.join(", ") || "nothing special"}. ${card_.cost}. ${card_.paper}.` : "Every algorithm is planned; the one with the smallest predicted excess risk is taken.";
    ofPlace.hidden = algorithm.value !== CERTIFIES;
    replace(parametersPlace, parameters.element, card_ && h("button", { type: "button", class: "small", onclick: () => {
      what.fill(card_.example);
      parameters.fill(card_.example.parameters || {});
      changed();
    } }, "Fill in an example that it takes"));
  };
  const pickDataset = async () => {
    const label = (await get(`/datasets/${dataset.value}`)).schema.label.kind;
    what.part.loss.fill(LOSSES[label] || "squared");
  };
  const value = (control) => (control.value.trim() === "" ? undefined : Number.isNaN(Number(control.value)) ? control.value : Number(control.value));
  const spec = () => ({ ...what.read(), dataset: dataset.value, algorithm: algorithm.value, privacy: { epsilon: value(epsilon), delta: value(delta) }, parameters: parameters.read(), of: algorithm.value === CERTIFIES && of.value.trim() ? of.value.trim() : undefined });

  let asking = new AbortController();
  async function quote(path = "/quotes", more = {}) {
    if (!context.here()) return null;
    asking.abort();
    asking = new AbortController();
    quotePart.dataset.stale = "yes";
    try {
      const answer = await post(path, { ...spec(), ...more }, { signal: asking.signal });
      if (context.here()) drawQuote(answer);
      return answer;
    } catch (error) {
      if (error.name === "AbortError" || !context.here()) return null;
      replace(quotePart, problem(error));
      replace(planPart);
      delete quotePart.dataset.stale;
      return null;
    }
  }
  const refreshQuote = later(() => quote(), 150);
  const refreshComparison = later(async () => {
    if (!context.here()) return;
    try {
      const answer = await post("/quotes/comparison", { ...spec(), parameters: {}, of: undefined });
      if (context.here()) drawComparison(answer);
    } catch { replace(comparisonPart, empty("No comparison", "The spec above cannot be planned yet.")); }
  }, 600);

  function drawQuote(q) {
    const { plan, budget } = q;
    delete quotePart.dataset.stale;
    const left = budget.share ? Math.min(budget.share.units_remaining, budget.units_remaining) : budget.units_remaining;
    replace(quotePart, h("p", { class: "verdict" }, badge(q.fits ? "fits" : "refused"), q.fits ? ` ε ${num(q.epsilon)} fits.` : ` ${q.refusal}`),
      facts([
        ["Price", percent(plan.price.units, left), "of what is left to you"],
        ["Noise of one release", num(plan.prediction.our_noise), plan.lattice.kind === "sum" ? "sd, in a step’s mean" : "standard deviation"],
        ["Predicted excess risk", num(plan.prediction.excess_risk), "order of magnitude"],
        ["Steps", num(q.steps), `${num(plan.gradients)} gradients`],
        ["Jobs like this", num(q.jobs_that_fit), "still fit"],
        ["Largest ε", num(q.largest_epsilon), "that fits"]]),
      q.choice && h("p", { class: "help" }, h("b", null, q.choice.algorithm), ". ", q.choice.reason));
    replace(planPart, card("What it would release", planWords(plan), releaseTable(plan)));
  }
  function drawComparison(c) {
    const able = c.data.filter((a) => !a.refusal);
    const others = c.data.filter((a) => a.refusal);
    replace(comparisonPart, table("Every algorithm that can plan this, at its own defaults, best first", ["algorithm", "excess risk", "noise", "steps", "gradients", ""],
      able.map((a) => [a.algorithm, num(a.excess_risk), num(a.noise), num(a.steps), num(a.gradients),
        h("button", { type: "button", class: "small", "aria-label": `Use ${a.algorithm}`, onclick: () => { algorithm.value = a.algorithm; pickAlgorithm(); changed(); } }, "Use")]), { numbers: [1, 2, 3, 4], cards: true }),
    c.choice && h("p", { class: "help" }, `auto: ${c.choice.reason}`),
    others.length > 0 && h("details", null, h("summary", null, `${plural(others.length, "algorithm")} cannot, and why`),
      h("dl", { class: "reasons" }, others.map((a) => h("div", null, h("dt", null, a.algorithm), h("dd", null, a.refusal))))));
  }

  slider.addEventListener("input", () => { epsilon.value = Number((10 ** Number(slider.value)).toPrecision(3)); changed(); });
  epsilon.addEventListener("input", () => { if (Number(epsilon.value) > 0) slider.value = Math.log10(Number(epsilon.value)); changed(); });
  algorithm.addEventListener("change", () => { pickAlgorithm(); changed(); });
  dataset.addEventListener("change", async () => { await pickDataset(); changed(); });
  const find = h("button", { type: "button", class: "small", onclick: async () => {
    const answer = await quote("/quotes/noise", { noise: Number(wanted.value) || 0 });
    if (answer) { epsilon.value = answer.epsilon; slider.value = Math.log10(answer.epsilon); }
  } }, "Find ε");
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  let [sent, tries] = ["", 0];
  const submit = async () => {
    const text = JSON.stringify(spec());
    if (text !== sent) { sent = text; tries += 1; } // the same form sent again is the same job
    const job = await post("/jobs", spec(), { headers: { "Idempotency-Key": `${key}-${tries}` } });
    location.hash = `#/jobs/${job.id}`;
  };
  pickAlgorithm();
  await pickDataset();
  replace(root, page("New job"), h("div", { class: "split" },
    form([
      card("What to fit", field("Dataset", dataset), what.elements),
      card("Algorithm", field("Algorithm", algorithm), about, ofPlace, parametersPlace),
      card("Privacy", h("div", { class: "epsilon" }, field("ε", epsilon, "What the job may cost."), slider),
        h("div", { class: "row" }, field("δ", delta, "0 asks for pure ε (Laplace noise)."), h("div", { class: "field" }, h("span", { class: "label" }, "Or from a wanted noise"), h("div", { class: "inline" }, wanted, find)))),
    ], "Submit the job", submit, { busy: "Reserving…" }),
    h("aside", { class: "sticky", "aria-label": "Live quote" }, card("Quote", quotePart, note("", "A quote is free: nothing is reserved, charged or read.")))),
  card("Comparison", comparisonPart), planPart);
  changed();
}
