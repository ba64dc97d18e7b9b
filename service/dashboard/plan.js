// A Plan as the service describes it: in a few sentences, and as a table of its releases.
import { h, num, plural, table } from "./ui.js";

const SENTENCES = 4; // the table has the rest

// `described` is what the service says of the Plan: of a quote, the quote itself.
// What jobs like this were seen to do, where it is known, and the theorem's bound.
export function expectation({ expected, prediction }) {
  const bound = ["Bound on excess risk", num(prediction.excess_risk), "order of magnitude"];
  if (!expected) return [bound];
  const band = `nine in ten within ${num(expected.low)} to ${num(expected.high)}`;
  return [["Expected excess risk", num(expected.median), band], bound];
}

export function planWords(plan, described) {
  const { releases, release_count: count, summary } = described;
  const shown = releases.slice(0, SENTENCES);
  return h(
    "div",
    { class: "prose" },
    h("p", null, summary),
    h("p", null, `What leaves the data is ${plural(count, "release")}:`),
    h(
      "ul",
      null,
      shown.map((release) => h("li", null, release.words)),
    ),
    releases.length > shown.length && h("p", null, "The table below has the others."),
    h("p", null, "Everything after that is post-processing. ", guaranteeWords(plan, count)),
  );
}

function guaranteeWords({ guarantee, price }, count) {
  const subject = count === 1 ? "The release is" : "Together the releases are";
  return [
    `${subject} differentially private with ε ${num(guarantee.epsilon)} and δ ${num(guarantee.delta)} `,
    "for replacing one record. ",
    `The ledger is charged ${num(price.units)} units; `,
    `this job alone satisfies ε ${num(guarantee.epsilon_alone)}.`,
  ];
}

export function releaseTable(described) {
  const heads = ["mechanism", "what", "sensitivity", "noise", "in units of", "times", "rows"];
  const rows = described.releases.map((release) => [
    release.mechanism,
    release.released,
    num(release.sensitivity),
    num(release.noise),
    release.unit,
    num(release.times),
    release.reading,
  ]);
  return table("Releases", heads, rows, { numbers: [2, 3, 5], cards: true });
}
