// The price of a job while it is typed, and every algorithm on the same job.
import { post } from "./client.js";
import { expectation, planWords, releaseTable } from "./plan.js";
import {
  badge,
  card,
  empty,
  facts,
  h,
  num,
  percent,
  plural,
  problem,
  replace,
  table,
} from "./ui.js";

// Asks for a quote of the form as it is, and draws it; a newer question ends an older one.
export function quoter(context, job, quotePart, planPart) {
  let asking = new AbortController();
  const draw = (quote) => {
    delete quotePart.dataset.stale;
    replace(quotePart, quoteWords(quote));
    const words = planWords(quote.plan, quote);
    replace(planPart, card("What it would release", words, releaseTable(quote)));
  };
  const refuse = (error) => {
    delete quotePart.dataset.stale;
    replace(quotePart, problem(error));
    replace(planPart);
  };
  return async (path = "/quotes", more = {}) => {
    if (!context.here()) return null;
    asking.abort();
    asking = new AbortController();
    quotePart.dataset.stale = "yes";
    try {
      const quote = await post(path, { ...job.spec(), ...more }, { signal: asking.signal });
      if (context.here()) draw(quote);
      return quote;
    } catch (error) {
      if (error.name !== "AbortError" && context.here()) refuse(error);
      return null;
    }
  };
}

function quoteWords(quote) {
  const { plan, choice } = quote;
  const { prediction } = plan;
  const verdict = quote.fits ? ` ε ${num(quote.epsilon)} fits.` : ` ${quote.refusal}`;
  const isMean = plan.lattice.kind === "sum";
  return [
    h("p", { class: "verdict" }, badge(quote.fits ? "fits" : "refused"), verdict),
    facts([
      ["Price", percent(plan.price.units, quote.budget.units_ceiling), "of the ceiling"],
      [
        "Noise of one release",
        num(prediction.our_noise),
        isMean ? "sd, in a step’s mean" : "standard deviation",
      ],
      ...expectation(plan),
      ["Steps", num(quote.steps), `${num(plan.gradients)} gradients`],
      ["Jobs like this", num(quote.jobs_that_fit), "still fit"],
      ["Largest ε", num(quote.largest_epsilon), "that fits"],
    ]),
    quote.advice && h("p", { class: "help" }, quote.advice),
    choice && h("p", { class: "help" }, h("b", null, choice.algorithm), ". ", choice.reason),
  ];
}

// Every algorithm at its own defaults, with a button that uses it.
export async function compare(context, job, part) {
  if (!context.here()) return;
  const asked = { ...job.spec(), parameters: {}, of: undefined };
  try {
    const answer = await post("/quotes/comparison", asked);
    if (context.here()) replace(part, comparisonWords(answer, job));
  } catch {
    replace(part, empty("No comparison", "The spec above cannot be planned yet."));
  }
}

function comparisonWords({ data, choice }, job) {
  const able = data.filter((a) => !a.refusal);
  const others = data.filter((a) => a.refusal);
  const use = (name) =>
    h(
      "button",
      { type: "button", class: "small", "aria-label": `Use ${name}`, onclick: () => job.use(name) },
      "Use",
    );
  const rows = able.map((a) => [
    a.algorithm,
    a.expected ? num(a.expected.median) : "",
    num(a.excess_risk),
    num(a.noise),
    num(a.steps),
    num(a.gradients),
    use(a.algorithm),
  ]);
  const caption = "Every algorithm that can plan this, at its own defaults, best first";
  const heads = ["algorithm", "expected error", "bound on it", "noise", "steps", "gradients", ""];
  return [
    table(caption, heads, rows, { numbers: [1, 2, 3, 4, 5], cards: true }),
    choice && h("p", { class: "help" }, `auto: ${choice.reason}`),
    others.length > 0 && refusals(others),
  ];
}

function refusals(others) {
  const reason = (a) => h("div", null, h("dt", null, a.algorithm), h("dd", null, a.refusal));
  return h(
    "details",
    null,
    h("summary", null, `${plural(others.length, "algorithm")} cannot, and why`),
    h("dl", { class: "reasons" }, others.map(reason)),
  );
}
