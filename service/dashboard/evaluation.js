// How good models are on held-out rows: metrics, curves with bands, groups.
import { h, card, link, num, percent, plural, replace, s, table } from "./ui.js";

const SIZE = { width: 420, height: 320, left: 52, right: 14, top: 12, bottom: 44 };
const NAMES = {
  auc: "AUC",
  f1: "F1",
  mae: "MAE",
  rmse: "RMSE",
  r2: "R²",
  brier: "Brier score",
  log_loss: "Log-loss, clipped",
};
const named = (metric) =>
  NAMES[metric] ?? metric.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());
const help = (...text) => h("p", { class: "help" }, ...text);
const range = ({ low, high }) => `${num(low)} to ${num(high)}`;
const middle = (values) => values.reduce((a, b) => a + b, 0) / values.length;

export function evaluationCards(evaluations, plan) {
  return evaluations.flatMap((one) => [
    metricsCard(one, plan),
    one.curve && curvesCard(one),
    one.calibration && calibrationCard(one.calibration),
    one.classes && classesCard(one.classes),
    one.groups && groupsCard(one.groups),
  ]);
}

function metricsCard(one, plan) {
  const measured = Object.entries(one.metrics);
  const rows = measured.map(([name, told]) => [named(name), num(told.value), range(told)]);
  const { confidence } = measured[0]?.[1] ?? one.curve[0].recall;
  return card(
    "Evaluation",
    table("How good the model is", ["measure", "value", "interval"], rows, { numbers: [1, 2] }),
    help(
      "Of the model of ",
      link(one.of, `#/jobs/${one.of}`),
      `, on ${plural(plan.facts.held_out, "row")} that no fit has read. An interval holds the `,
      `population’s value with probability ${num(confidence)}, over the drawing of the rows and the noise.`,
    ),
  );
}

// --- curves

function curvesCard({ curve }) {
  const bySize = [...curve].sort((a, b) => b.threshold - a.threshold);
  const said = (point) =>
    `above a chance of ${num(point.threshold)}: recall ${percent(point.recall.value, 1)} ` +
    `(${range(point.recall)}), false positives ${percent(point.false_positive_rate.value, 1)}, ` +
    `precision ${percent(point.precision.value, 1)} (${range(point.precision)})`;
  const roc = bySize.map((point) => ({
    x: point.false_positive_rate.value,
    y: point.recall,
    said: said(point),
  }));
  const trade = bySize.map((point) => ({
    x: point.recall.value,
    y: point.precision,
    said: said(point),
  }));
  return card(
    "Curves",
    h(
      "div",
      { class: "pair" },
      curvePlot("ROC", "false positive rate", "recall", roc, { diagonal: true }),
      curvePlot("Precision and recall", "recall", "precision", trade, {}),
    ),
    h("details", null, h("summary", null, "All points as a table"), curveTable(bySize)),
    help("The band is the interval at each point, not for all points at once."),
  );
}

// Where there are next to no rows, nothing is known of them.
const isTold = ({ positive }) => positive.high - positive.low < 0.8;

function calibrationCard(bands) {
  const points = bands.filter(isTold).map((band) => ({
    x: middle([band.above, band.up_to]),
    y: band.positive,
    said:
      `chances from ${num(band.above)} to ${num(band.up_to)}: ${percent(band.positive.value, 1)} ` +
      `positive (${range(band.positive)}), ${percent(band.share.value, 1)} of the rows`,
  }));
  const rows = bands.map(({ above, up_to: upTo, positive, share }) => [
    `${num(above)} to ${num(upTo)}`,
    num(positive.value),
    range(positive),
    percent(share.value, 1),
  ]);
  const heads = ["chance", "positive", "interval", "rows"];
  return card(
    "Calibration",
    h(
      "div",
      { class: "pair" },
      points.length > 0 &&
        curvePlot("Calibration", "chance that the model gives", "share of positives", points, {
          diagonal: true,
          apart: true,
        }),
    ),
    h(
      "details",
      null,
      h("summary", null, "All bands as a table"),
      table("Calibration", heads, rows, { numbers: [1, 2, 3], hideCaption: true }),
    ),
    help(
      "On the dashed line as many rows are positive as the model says. ",
      points.length < bands.length && "Bands with next to no rows are in the table alone.",
    ),
  );
}

// A curve in the unit square with its band, or points apart with error bars. The slider and the
// pointer read a point out.
function curvePlot(name, across, up, points, { diagonal, apart }) {
  const { width, height, left, right, top, bottom } = SIZE;
  const x = (value) => left + (width - left - right) * value;
  const y = (value) => height - bottom - (height - top - bottom) * value;
  const dot = s("circle", { class: "dot", r: 5 });
  const [first, last] = [points[0], points.at(-1)];
  const label =
    `${name}: ${up} against ${across}, ${plural(points.length, "point")}, ` +
    `from ${num(first.y.value)} at ${num(first.x)} to ${num(last.y.value)} at ${num(last.x)}. ` +
    "The table below has every value.";
  const at = (value, point) => `${x(point.x)},${y(value)}`;
  const upper = points.map((point) => at(point.y.high, point));
  const lower = [...points].reverse().map((point) => at(point.y.low, point));
  const whiskers = points
    .map((point) => `M${at(point.y.low, point)}V${y(point.y.high)}`)
    .join("");
  const svg = s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    square(x, y),
    diagonal && s("line", { class: "guide", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    !apart && s("path", { class: "area", d: `M${[...upper, ...lower].join("L")}Z` }),
    apart && s("path", { class: "error", d: whiskers }),
    apart
      ? points.map((point) =>
          s("circle", { class: "dot", r: 3.5, cx: x(point.x), cy: y(point.y.value) }),
        )
      : s("path", {
          class: "line",
          d: `M${points.map((point) => at(point.y.value, point)).join("L")}`,
        }),
    s("text", { class: "tick", x: x(0.5), y: height - 6, "text-anchor": "middle" }, across),
    dot,
  );
  const read = h("output", { class: "readout", "aria-live": "polite" });
  const slider = h("input", {
    type: "range",
    min: 0,
    max: points.length - 1,
    step: 1,
    value: Math.floor(points.length / 2),
    "aria-label": `Point of ${name} to read out`,
    oninput: () => show(Number(slider.value)),
  });
  function show(index) {
    dot.setAttribute("cx", x(points[index].x));
    dot.setAttribute("cy", y(points[index].y.value));
    slider.value = index;
    replace(read, points[index].said);
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const pointer = ((event.clientX - box.left) * width) / box.width;
    const distances = points.map((point) => Math.abs(x(point.x) - pointer));
    show(distances.indexOf(Math.min(...distances)));
  });
  show(Number(slider.value));
  return h("div", { class: "plot" }, h("p", { class: "axis" }, `${name}: ${up}`), svg, slider, read);
}

function square(x, y) {
  return [0, 0.25, 0.5, 0.75, 1].map((value) => [
    s("line", { class: "grid", x1: x(0), x2: x(1), y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: x(0) - 8, y: y(value) + 4, "text-anchor": "end" }, num(value)),
    s("text", { class: "tick", x: x(value), y: y(0) + 18, "text-anchor": "middle" }, num(value)),
  ]);
}

function curveTable(points) {
  const heads = ["threshold", "recall", "interval", "false positives", "precision", "interval"];
  const rows = points.map((point) => [
    num(point.threshold),
    num(point.recall.value),
    range(point.recall),
    num(point.false_positive_rate.value),
    num(point.precision.value),
    range(point.precision),
  ]);
  return table("Curves", heads, rows, { numbers: [1, 2, 3, 4, 5], hideCaption: true });
}

// --- classes and groups

function classesCard(classes) {
  const heads = ["class", "precision", "recall", "F1"];
  const both = (told) => `${num(told.value)} (${range(told)})`;
  const rows = classes.map((of) => [of.name, both(of.precision), both(of.recall), both(of.f1)]);
  return card("Classes", table("Of each class", heads, rows, { numbers: [1, 2, 3] }));
}

function groupsCard(groups) {
  const metrics = Object.keys(groups[0].metrics);
  const heads = ["group", "measure", "value", "interval", "gap to the others", "interval"];
  const rows = groups.flatMap((group) =>
    metrics.map((metric, index) => [
      index ? "" : `${group.name} (${percent(group.share.value, 1)} of the rows)`,
      named(metric),
      num(group.metrics[metric].value),
      range(group.metrics[metric]),
      num(group.gaps[metric].value),
      range(group.gaps[metric]),
    ]),
  );
  return card(
    "Groups",
    table("Of each group", heads, rows, { numbers: [2, 3, 4, 5], plain: true }),
    help("A gap is what the group has more than all others together."),
  );
}
