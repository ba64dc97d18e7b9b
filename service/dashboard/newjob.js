// A form made from the catalog's schemas, with the price of what it says while it is typed.
import { all, get, post } from "./client.js";
import { compare, quoter } from "./quote.js";
import { openapi, schemaForm, wholeForm } from "./schema.js";
import {
  card,
  empty,
  field,
  form,
  h,
  later,
  link,
  loading,
  note,
  page,
  replace,
  select,
} from "./ui.js";

const AUTO = "auto";
// have controls of their own
const ELSEWHERE = ["summaries", "evaluate", "dataset", "algorithm", "privacy", "parameters", "of"];
// Parts of a job whose kinds an algorithm's card lists, by the name of the list.
const TAKEN = { loss: "losses", set: "sets", model: "models", regulariser: "regularisers" };
const NOTHING = { element: null, read: () => ({}), fill: () => {} };

// Whether an algorithm is about a model that another job published.
const isAboutAModel = (algorithm) => algorithm?.example.of !== undefined;

export async function newJobPage(context) {
  const { root, me } = context;
  const [datasets, algorithms, document_] = await Promise.all([
    all("/datasets"),
    all("/algorithms", (a) => a.name),
    openapi(),
  ]);
  const usable = datasets.filter(
    (d) => d.state === "ready" && (me.role === "analyst" || d.owner === me.id),
  );
  if (!usable.length) {
    replace(root, page("New job"), noDatasetCard(me));
    return;
  }
  const quotePart = h(
    "div",
    { "aria-live": "polite", "aria-atomic": "false" },
    loading("Asking the price…"),
  );
  const comparisonPart = h("div");
  const planPart = h("div");
  const changed = () => {
    refreshQuote();
    refreshComparison();
  };
  const job = jobForm(context, usable, algorithms, document_, changed);
  const quote = quoter(context, job, quotePart, planPart);
  const refreshQuote = later(() => quote(), 150);
  const refreshComparison = later(() => compare(context, job, comparisonPart), 600);

  const wanted = h("input", {
    inputmode: "decimal",
    placeholder: "0.01",
    "aria-label": "Wanted noise of one mean",
  });
  const findEpsilon = async () => {
    const answer = await quote("/quotes/noise", { noise: Number(wanted.value) || 0 });
    if (answer) job.privacy.set(answer.epsilon);
  };
  await job.start();
  replace(
    root,
    page("New job"),
    h(
      "div",
      { class: "split" },
      form(job.cards(wanted, findEpsilon), "Submit the job", submitter(job), {
        busy: "Reserving…",
      }),
      h(
        "aside",
        { class: "sticky", "aria-label": "Live quote" },
        card(
          "Quote",
          quotePart,
          note("", "A quote is free: nothing is reserved, charged or read."),
        ),
      ),
    ),
    card("Comparison", comparisonPart),
    planPart,
  );
  changed();
}

function noDatasetCard(me) {
  const owner = me.role === "owner";
  const text = owner ? "Upload one first." : "When an owner grants you a dataset, jobs start here.";
  const upload = owner && link("Upload a dataset", "#/upload", "button primary");
  return card(null, empty("No dataset to use", text, upload));
}

// --- the form

function jobForm(context, usable, algorithms, document_, changed) {
  const asked = (name) => context.query.get(name);
  const known = usable.find((d) => d.id === asked("dataset")) ?? usable[0];
  const dataset = select(
    usable.map((d) => [d.id, d.name]),
    known.id,
  );
  const algorithm = algorithmSelect(algorithms, asked("of"), asked("evaluate"));
  const about = h("p", { class: "help" });
  const what = wholeForm(document_.components.schemas.JobSpec, document_, changed, ELSEWHERE);
  const of = h("input", { value: asked("of") || "", placeholder: "job_…", oninput: changed });
  const ofPlace = h(
    "div",
    null,
    field("Model of", of, "The job whose model is certified or evaluated; it must be on this dataset."),
  );
  const parametersPlace = h("div");
  const privacy = privacyFields(changed);
  let parameters = NOTHING;

  const chosen = () => algorithms.find((a) => a.name === algorithm.value);
  const fillExample = () => {
    const { example } = chosen();
    what.fill(example);
    parameters.fill(example.parameters || {});
    changed();
  };
  const pickAlgorithm = () => {
    const entry = chosen();
    parameters = entry ? schemaForm(entry.parameters, changed) : NOTHING;
    about.textContent = aboutAlgorithm(entry);
    ofPlace.hidden = !isAboutAModel(entry);
    for (const [part, list] of Object.entries(TAKEN))
      what.part[part]?.allow?.(entry?.takes?.[list]);
    const example = h(
      "button",
      { type: "button", class: "small", onclick: fillExample },
      "Fill in an example that it takes",
    );
    replace(parametersPlace, parameters.element, entry && example);
  };
  const pickDataset = async () => {
    const { losses } = await get(`/datasets/${dataset.value}`);
    what.part.loss.fill(losses[0]);
  };
  algorithm.addEventListener("change", () => {
    pickAlgorithm();
    changed();
  });
  dataset.addEventListener("change", async () => {
    await pickDataset();
    changed();
  });

  return {
    privacy,
    start: async () => {
      pickAlgorithm();
      await pickDataset();
    },
    use: (name) => {
      algorithm.value = name;
      pickAlgorithm();
      changed();
    },
    cards: (wanted, findEpsilon) => [
      card("What to fit", field("Dataset", dataset), what.elements),
      card("Algorithm", field("Algorithm", algorithm), about, ofPlace, parametersPlace),
      privacyCard(privacy, wanted, findEpsilon),
    ],
    spec: () => ({
      ...what.read(),
      dataset: dataset.value,
      algorithm: algorithm.value,
      privacy: privacy.read(),
      parameters: parameters.read(),
      of: (isAboutAModel(chosen()) && of.value.trim()) || undefined,
    }),
  };
}

const fits = (algorithm) => algorithm.takes.losses.length > 0; // summaries are asked by the API

const evaluates = (algorithm) => algorithm.example.evaluate !== undefined;

function algorithmSelect(algorithms, of, evaluate) {
  const options = algorithms.filter(fits).map((a) => [a.name, `${a.name}: ${a.title}`]);
  const about = evaluate ? evaluates : (each) => isAboutAModel(each) && !evaluates(each);
  const first = of ? algorithms.find(about).name : AUTO;
  return select([[AUTO, "auto: the smallest predicted error"], ...options], first);
}

function aboutAlgorithm(entry) {
  if (!entry) {
    return "Every algorithm is planned; the one that is expected to have the smallest excess risk is taken.";
  }
  const needs = entry.needs.join(", ") || "nothing special";
  return `${entry.problem}. Needs: ${needs}. ${entry.cost}. ${entry.paper}.`;
}

// ε as text and on a logarithmic scale, which move together; and δ.
function privacyFields(changed) {
  const delta = h("input", {
    inputmode: "decimal",
    placeholder: "the account’s",
    oninput: changed,
  });
  const epsilon = h("input", { inputmode: "decimal", value: "0.1" });
  const slider = h("input", {
    type: "range",
    min: -3,
    max: 1,
    step: 0.01,
    value: -1,
    "aria-label": "ε, on a logarithmic scale",
  });
  slider.addEventListener("input", () => {
    epsilon.value = Number((10 ** Number(slider.value)).toPrecision(3));
    changed();
  });
  epsilon.addEventListener("input", () => {
    if (Number(epsilon.value) > 0) slider.value = Math.log10(Number(epsilon.value));
    changed();
  });
  return {
    delta,
    epsilon,
    slider,
    set: (value) => {
      epsilon.value = value;
      slider.value = Math.log10(value);
    },
    read: () => ({ epsilon: numberOrText(epsilon), delta: numberOrText(delta) }),
  };
}

// What was typed; a text that is no number is sent as it is, and the service says what is wrong.
function numberOrText(control) {
  const text = control.value.trim();
  if (text === "") return undefined;
  return Number.isNaN(Number(text)) ? text : Number(text);
}

function privacyCard({ epsilon, delta, slider }, wanted, findEpsilon) {
  const find = h("button", { type: "button", class: "small", onclick: findEpsilon }, "Find ε");
  return card(
    "Privacy",
    h("div", { class: "epsilon" }, field("ε", epsilon, "What the job may cost."), slider),
    h(
      "div",
      { class: "row" },
      field("δ", delta, "0 asks for pure ε (Laplace noise)."),
      h(
        "div",
        { class: "field" },
        h("span", { class: "label" }, "Or from a wanted noise"),
        h("div", { class: "inline" }, wanted, find),
      ),
    ),
  );
}

// The same form sent again is the same job.
function submitter(job) {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  let [sent, tries] = ["", 0];
  return async () => {
    const spec = job.spec();
    const text = JSON.stringify(spec);
    if (text !== sent) {
      sent = text;
      tries += 1;
    }
    const headers = { "Idempotency-Key": `${key}-${tries}` };
    const made = await post("/jobs", spec, { headers });
    location.hash = `#/jobs/${made.id}`;
  };
}
