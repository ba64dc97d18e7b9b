// A form made from the catalog's schemas, with the price of what it says while it is typed.
import { all, get, post } from "./client.js";
import { planWords, releaseTable } from "./job.js";
import { badge, card, empty, facts, field, form, h, later, link, loading, note, num, page, percent, problem, replace, select, table, words } from "./ui.js";

// One control per property of a JSON schema; `read` gives what was filled in.
export function schemaForm(schema, changed) {
  const controls = [];
  const made = Object.entries(schema.properties || {}).filter(([name]) => name !== "kind").map(([name, raw]) => {
    const inner = (raw.anyOf || []).find((option) => option.type !== "null") || raw;
    const optional = !(schema.required || []).includes(name);
    const numeric = ["number", "integer"].includes(inner.type);
    const control = inner.enum ? select([...(optional ? [["", "default"]] : []), ...inner.enum.map((v) => [v, words(v)])])
      : inner.type === "boolean" ? select([["", "default"], ["true", "yes"], ["false", "no"]])
        : inner.type === "array" ? h("textarea", { rows: 3, placeholder: "JSON, for example [[1, 0], [0, 1]]" })
          : h("input", { inputmode: numeric ? "decimal" : undefined, placeholder: raw.default ?? (optional ? "chosen by the algorithm" : "") });
    control.addEventListener("input", changed);
    controls.push([name, () => {
      const text = control.value.trim();
      if (text === "") return undefined;
      if (inner.type === "array") { try { return JSON.parse(text); } catch { return text; } }
      return inner.type === "boolean" ? text === "true" : numeric && !Number.isNaN(Number(text)) ? Number(text) : text;
    }]);
    const bounds = [inner.minimum ?? inner.exclusiveMinimum, inner.maximum ?? inner.exclusiveMaximum];
    const range = numeric && bounds.every((b) => b !== undefined) ? ` From ${num(bounds[0])} to ${num(bounds[1])}.` : "";
    return field(words(name).replace(/^./, (first) => first.toUpperCase()), control, `${raw.description || ""}${range}`.trim());
  });
  return { element: made.length ? h("div", { class: "row" }, made) : null,
    read: () => Object.fromEntries(controls.map(([name, value]) => [name, value()]).filter(([, value]) => value !== undefined)) };
}

// A choice among schemas that are told apart by `kind`.
function union(label, document, property, initial, changed) {
  const mapping = document.components.schemas.JobSpec.properties[property].discriminator.mapping;
  const schemas = Object.fromEntries(Object.entries(mapping).map(([kind, ref]) => [kind, document.components.schemas[ref.split("/").at(-1)]]));
  const kind = select(Object.keys(schemas).map((name) => [name, words(name)]), initial);
  const [help, place] = [h("p", { class: "help" }), h("div")];
  let inner;
  const draw = () => {
    help.textContent = schemas[kind.value].description || "";
    inner = schemaForm(schemas[kind.value], changed);
    replace(place, inner.element);
  };
  kind.addEventListener("change", () => { draw(); changed(); });
  draw();
  return { element: h("div", { class: "union" }, field(label, kind), help, place), kind, draw, read: () => ({ kind: kind.value, ...inner.read() }) };
}

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
  const algorithm = select([["auto", "auto: the smallest predicted error"], ...algorithms.map((a) => [a.name, `${a.name}: ${a.title}`])], "auto");
  const about = h("p", { class: "help" });
  const loss = union("Loss", document_, "loss", "logistic", changed);
  const set = union("Set", document_, "set", "l2_ball", changed);
  const ridge = h("input", { inputmode: "decimal", placeholder: "0", oninput: changed });
  const delta = h("input", { inputmode: "decimal", placeholder: "the account’s", oninput: changed });
  const epsilon = h("input", { inputmode: "decimal", value: "0.1" });
  const slider = h("input", { type: "range", min: -3, max: 1, step: 0.01, value: -1, "aria-label": "ε, on a logarithmic scale" });
  const wanted = h("input", { inputmode: "decimal", placeholder: "0.01", "aria-label": "Wanted noise of one mean" });
  const parametersPlace = h("div");
  const quotePart = h("div", { "aria-live": "polite", "aria-atomic": "false" }, loading("Asking the price…"));
  const comparisonPart = h("div");
  const planPart = h("div");
  let parameters = { element: null, read: () => ({}) };

  const pickAlgorithm = () => {
    const card_ = algorithms.find((a) => a.name === algorithm.value);
    parameters = card_ ? schemaForm(card_.parameters, changed) : { element: null, read: () => ({}) };
    about.textContent = card_ ? `${card_.problem}. Needs: ${card_.needs.join(", ") || "nothing special"}. ${card_.cost}. ${card_.paper}.` : "Every algorithm is planned; the one with the smallest predicted excess risk is taken.";
    replace(parametersPlace, parameters.element);
  };
  const pickDataset = async () => {
    const label = (await get(`/datasets/${dataset.value}`)).schema.label.kind;
    loss.kind.value = { binary: "logistic", numeric: "squared", categorical: "softmax" }[label] || "logistic";
    loss.draw();
  };
  const value = (control) => (control.value.trim() === "" ? undefined : Number.isNaN(Number(control.value)) ? control.value : Number(control.value));
  const spec = () => ({ dataset: dataset.value, algorithm: algorithm.value, loss: loss.read(), set: set.read(), ridge: value(ridge), privacy: { epsilon: value(epsilon), delta: value(delta) }, parameters: parameters.read() });

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
      const answer = await post("/quotes/comparison", { ...spec(), parameters: {} });
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
        ["Noise of one release", num(plan.prediction.our_noise), "standard deviation"],
        ["Predicted excess risk", num(plan.prediction.excess_risk), "order of magnitude"],
        ["Steps", num(plan.schedule.steps), `${num(plan.gradients)} gradients`],
        ["Jobs like this", num(q.jobs_that_fit), "still fit"],
        ["Largest ε", num(q.largest_epsilon), "that fits"]]),
      q.choice && h("p", { class: "help" }, h("b", null, q.choice.algorithm), ". ", q.choice.reason));
    replace(planPart, card("What it would release", planWords(plan), releaseTable(plan)));
  }
  function drawComparison(c) {
    replace(comparisonPart, table("Every algorithm at its own defaults, best first", ["algorithm", "excess risk", "noise", "steps", "gradients", ""],
      c.data.map((a) => [a.algorithm, ...(a.refusal ? [h("span", { class: "help" }, a.refusal), "–", "–", "–"] : [num(a.excess_risk), num(a.noise), num(a.steps), num(a.gradients)]),
        h("button", { type: "button", class: "small", disabled: Boolean(a.refusal), "aria-label": `Use ${a.algorithm}`, onclick: () => { algorithm.value = a.algorithm; pickAlgorithm(); changed(); } }, "Use")]), { numbers: [2, 3, 4] }),
    c.choice && h("p", { class: "help" }, `auto: ${c.choice.reason}`));
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
      card("What to fit", field("Dataset", dataset), loss.element, set.element, field("Ridge", ridge, "λ adds (λ/2)‖w‖², intercept included.")),
      card("Algorithm", field("Algorithm", algorithm), about, parametersPlace),
      card("Privacy", h("div", { class: "epsilon" }, field("ε", epsilon, "What the job may cost."), slider),
        h("div", { class: "row" }, field("δ", delta, "0 asks for pure ε (Laplace noise)."), h("div", { class: "field" }, h("span", { class: "label" }, "Or from a wanted noise"), h("div", { class: "inline" }, wanted, find)))),
    ], "Submit the job", submit, { busy: "Reserving…" }),
    h("aside", { class: "sticky", "aria-label": "Live quote" }, card("Quote", quotePart, note("", "A quote is free: nothing is reserved, charged or read.")))),
  card("Comparison", comparisonPart), planPart);
  changed();
}

let document_ = null;
async function openapi() {
  document_ ??= (await fetch("/openapi.json")).json();
  return document_;
}
