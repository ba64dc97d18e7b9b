// What a job told of columns: shares as bars with their intervals, numbers as tables.
import { card, empty, h, num, percent, plural, s, table } from "./ui.js";

const SHOWN = 40; // cells that are drawn; the table has all
const narrow = () => innerWidth < 560;
const help = (...text) => h("p", { class: "help" }, ...text);
const title = (told) =>
  told.columns?.join(", ") ?? (told.by ? `${told.column} by ${told.by}` : told.column);

export function summaryCards(told) {
  return told.map((one) => {
    const [heading, draw] = KINDS[one.kind];
    return card(`${heading}: ${title(one)}`, ...draw(one));
  });
}

const KINDS = {
  counts: ["Counts", (told) => [shares(told), noteOnShares(told)]],
  histogram: ["Histogram", (told) => [shares(told), noteOnShares(told)]],
  quantiles: ["Quantiles", quantiles],
  mean: ["Mean", mean],
  correlations: ["Correlations", correlations],
  bounds: ["Bounds", bounds],
};

const held = (told) =>
  `that holds the population’s with probability ${num(told.confidence)}, over the drawing of rows ` +
  "and the noise";

function noteOnShares(told) {
  return help(
    `Each bar is a share; its line is the interval ${held(told)}, whose standard deviation is `,
    `${num(told.noise)} in a count.`,
  );
}

const HEADS = ["number", "value", "low", "high"];
const NUMBERS = { numbers: [1, 2, 3], hideCaption: true };
const line = (name, { value, low, high }) => [
  name,
  num(value, 4),
  low === null ? "–" : num(low, 4),
  high === null ? "–" : num(high, 4),
];

function quantiles(told) {
  const rows = told.quantiles.map((one) => line(`${num(100 * one.probability)} % below`, one));
  return [
    table("Quantiles", HEADS, rows, NUMBERS),
    help(`Low and high are the interval ${held(told)}. A dash: the end of the range is one of them.`),
  ];
}

function correlations(told) {
  const rows = told.pairs.map((one) => line(`${one.first}, ${one.second}`, one));
  return [
    table("Correlations", HEADS, rows, NUMBERS),
    help(`Low and high are the interval ${held(told)}, for columns that are about normal.`),
  ];
}

function mean(told) {
  const clipped = {
    declared: "the declared range",
    given: "the range that was asked",
    moment: "a range that follows from the bound on a moment",
    private: "a range that was chosen from the data",
  }[told.clip];
  const log = told.log1p ? " All numbers are of log(1 + value)." : "";
  const bias = told.bias
    ? ` The interval allows for ${num(told.bias)} on either side besides: clipping, or resolution.`
    : "";
  return [
    table("Mean", HEADS, [line("mean", told.mean), line("variance", told.variance)], NUMBERS),
    help(
      `Of values clipped to ${clipped}, ${num(told.lower)} to ${num(told.upper)}. Low and high are `,
      `the interval ${held(told)}.${bias}${log}`,
    ),
  ];
}

function bounds(told) {
  return [
    table("Share within the bounds", HEADS, [line("share within", told.inside)], NUMBERS),
    help(
      `Suggested: lower ${num(told.lower, 4)}, upper ${num(told.upper, 4)}. Low and high are the `,
      `interval ${held(told)}.`,
    ),
  ];
}

function nameOf(cell) {
  if (cell.name !== null) return cell.by === null ? cell.name : `${cell.by}, ${cell.name}`;
  if (cell.lower === null) return `below ${num(cell.upper)}`;
  if (cell.upper === null) return `from ${num(cell.lower)}`;
  return `${num(cell.lower)} to ${num(cell.upper)}`;
}

function shares(told) {
  const cells = told.cells.slice(0, SHOWN);
  const [width, left, right, letters] = narrow() ? [420, 150, 350, 16] : [760, 200, 690, 27];
  const most = Math.max(...cells.map((cell) => cell.high), 1e-9);
  const frame = { row: 26, width, left, letters, x: (v) => left + ((right - left) * v) / most };
  const height = cells.length * frame.row + 12;
  const largest = cells.reduce((a, b) => (b.value > a.value ? b : a));
  const label =
    `Shares of ${plural(told.cells.length, "cell")} of ${title(told)}, the largest is ` +
    `${nameOf(largest)} with ${percent(largest.value, 1)}. The table below has every value.`;
  return h(
    "div",
    { class: "plot" },
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      s("line", { class: "grid", x1: left, x2: left, y1: 2, y2: height - 2 }),
      cells.map((cell, line) => drawn(frame, line, cell)),
    ),
    told.cells.length > SHOWN && empty("More cells", "The table has them all."),
    h("details", null, h("summary", null, "All shares as a table"), shareTable(told)),
  );
}

function drawn({ row, width, left, letters, x }, line, cell) {
  const [top, name] = [line * row + 6, nameOf(cell)];
  const centre = top + row / 2;
  const short = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
  const [low, high] = [cell.low, cell.high].map(x);
  const whisker = `M${low},${centre}H${high}M${low},${centre - 4}v8M${high},${centre - 4}v8`;
  return s(
    "g",
    null,
    s("title", null, `${name}: ${percent(cell.value, 1)}`),
    s("text", { class: "name", x: left - 12, y: centre + 4, "text-anchor": "end" }, short),
    s("rect", {
      class: "bar",
      x: left,
      y: top + 4,
      width: Math.max(1, x(cell.value) - left),
      height: row - 8,
      rx: 2,
    }),
    s("path", { class: "error", d: whisker }),
    s("text", { class: "tick", x: width, y: centre + 4, "text-anchor": "end" }, num(cell.value, 3)),
  );
}

function shareTable(told) {
  const heads = ["cell", "share", "low", "high", "noisy count"];
  const rows = told.cells.map((cell) => [
    nameOf(cell),
    num(cell.value, 4),
    num(cell.low, 4),
    num(cell.high, 4),
    num(cell.count, 6),
  ]);
  return table("Shares", heads, rows, { numbers: [1, 2, 3, 4], hideCaption: true });
}
