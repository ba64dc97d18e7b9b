// Plots drawn by hand in SVG: gauges, the burn-down of a budget, coefficients.
import { h, num, percent, replace, s, table, when, words } from "./ui.js";

const narrow = () => innerWidth < 560; // then the same text needs more of the width

// --- gauges and bars

export function gauge(budget, label = "Budget") {
  const parts = ["spent", "reserved", "remaining"].map((name) => [name, budget[`fraction_${name}`]]);
  const [spent, reserved] = parts.map(([, fraction]) => 100 * fraction);
  const text = `${label}, of epsilon ${num(budget.epsilon)}: ${parts
    .map(([name, fraction]) => `${percent(fraction, 1)} ${name}`)
    .join(", ")}`;
  return h(
    "div",
    { class: "gauge" },
    s(
      "svg",
      { viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": text },
      s("rect", { class: "track", width: 100, height: 6, rx: 0 }),
      s("rect", { class: "spent", width: spent, height: 6 }),
      s("rect", { class: "reserved", x: spent, width: reserved, height: 6 }),
    ),
    h("dl", null, parts.map(legend)),
  );
}

const legend = ([name, fraction]) =>
  h("div", { class: name }, h("dt", null, name), h("dd", null, percent(fraction, 1)));

export function bar(done, total, label) {
  const title = percent(done, total);
  return h("progress", { value: done, max: total || 1, "aria-label": label, title });
}

export function shareBar(part, whole, label) {
  const width = Math.min(100, (100 * part) / (whole || 1));
  return s(
    "svg",
    {
      class: "share",
      viewBox: "0 0 100 6",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    s("rect", { class: "track", width: 100, height: 6 }),
    s("rect", { class: "spent", width, height: 6 }),
  );
}

// --- the burn-down

// What was left after every entry of the ledger, which each entry says; a step for each.
export function burnDown(entries, nameOf) {
  const frame = burnDownFrame(entries);
  const { x, y, times, left, right, top, bottom, width, height } = frame;
  const remaining = entries.map((entry) => 100 * entry.fraction_remaining);
  const path = remaining.map((value, i) =>
    i ? `H${x(times[i])}V${y(value)}` : `M${x(times[i])},${y(value)}`,
  );
  const guide = s("line", { class: "guide", y1: top, y2: height - bottom });
  const dot = s("circle", { class: "dot", r: 5 });
  const label =
    `Budget over time: from ${num(remaining[0])} % to ${num(remaining.at(-1))} % left over ` +
    `${entries.length} ledger entries. The table below has every value.`;
  const svg = s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    levels(frame, left, width - right),
    dates(frame),
    s("path", { class: "area", d: `${path.join("")}V${y(0)}H${x(times[0])}Z` }),
    s("path", { class: "line", d: path.join("") }),
    guide,
    dot,
  );

  const read = h("output", { class: "readout", "aria-live": "polite" });
  const last = entries.length - 1;
  const slider = h("input", {
    type: "range",
    min: 0,
    max: last,
    step: 1,
    value: last,
    "aria-label": "Ledger entry to read out",
    oninput: () => show(Number(slider.value)),
  });
  function show(index) {
    const at = x(times[index]);
    for (const end of ["x1", "x2"]) guide.setAttribute(end, at);
    dot.setAttribute("cx", at);
    dot.setAttribute("cy", y(remaining[index]));
    slider.value = index;
    replace(read, readOut(entries[index], nameOf));
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) * width) / box.width;
    show(nearest(times.map(x), at));
  });
  show(last);
  return h(
    "div",
    { class: "plot" },
    h("p", { class: "axis" }, "What is left of the ceiling, in percent, over time"),
    svg,
    slider,
    read,
    h("details", null, h("summary", null, "The same as a table"), burnDownTable(entries)),
  );
}

function burnDownFrame(entries) {
  const [width, height] = [narrow() ? 420 : 760, 260];
  const [left, right, top, bottom] = [44, 14, 14, 30];
  const times = entries.map((entry) => Date.parse(entry.created_at));
  const [first, last] = [times[0], Math.max(times.at(-1), times[0] + 1000)];
  const most = 105;
  const x = (time) => left + ((width - left - right) * (time - first)) / (last - first);
  const y = (value) => height - bottom - ((height - top - bottom) * value) / most;
  return { width, height, left, right, top, bottom, times, first, last, most, x, y };
}

function levels({ most, y }, from, to) {
  return ticks(most).map((value) => [
    s("line", { class: "grid", x1: from, x2: to, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: from - 8, y: y(value) + 4, "text-anchor": "end" }, num(value)),
  ]);
}

function dates({ first, last, x, height }) {
  const days = last - first > 2 * 86_400_000;
  const format = days
    ? { day: "numeric", month: "short" }
    : { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const shown = [
    [first, "start"],
    [(first + last) / 2, "middle"],
    [last, "end"],
  ].filter(([, anchor]) => anchor !== "middle" || !narrow());
  return shown.map(([time, anchor]) => {
    const text = new Date(time).toLocaleString("en-GB", format);
    return s("text", { class: "tick", x: x(time), y: height - 8, "text-anchor": anchor }, text);
  });
}

function ticks(most) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((multiple) => multiple * power >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

// The index of the point that is nearest to another; of equals the last.
function nearest(points, at) {
  let best = 0;
  points.forEach((point, i) => {
    if (Math.abs(point - at) <= Math.abs(points[best] - at)) best = i;
  });
  return best;
}

function readOut(entry, nameOf) {
  const moved = entry.epsilon !== null && entry.kind !== "open";
  return [
    h("b", null, `${percent(entry.fraction_remaining, 1)} left`),
    ` after #${entry.seq} ${words(entry.kind)}`,
    moved ? ` of ε ${num(entry.epsilon)}` : "",
    entry.principal ? ` by ${nameOf(entry.principal)}, ` : ", ",
    when(entry.created_at),
  ];
}

function burnDownTable(entries) {
  const heads = ["entry", "kind", "ε asked", "units", "left", "at"];
  const rows = entries.map((entry) => [
    `#${entry.seq}`,
    words(entry.kind),
    entry.epsilon === null ? "–" : num(entry.epsilon),
    num(entry.units),
    percent(entry.fraction_remaining, 1),
    when(entry.created_at),
  ]);
  const options = { numbers: [2, 3, 4], hideCaption: true };
  return table("What remained after each entry", heads, rows, options);
}

// --- coefficients

// Horizontal bars about zero, the largest first; `deviations` draws error bars of one standard deviation.
export function coefficients(names, values, deviations, shown = 24) {
  const bySize = values.map((_, i) => i).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
  const order = bySize.slice(0, shown);
  const largest = order[0];
  const frame = coefficientFrame(order.map((i) => Math.abs(values[i]) + (deviations?.[i] || 0)));
  const label =
    `Coefficients of ${order.length} features, the largest is ${names[largest]} with ` +
    `${num(values[largest])}. The table below has every value.`;
  const { width, height, middle } = frame;
  const svg = s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    s("line", { class: "grid", x1: middle, x2: middle, y1: 2, y2: height - 2 }),
    order.map((i, line) => coefficient(frame, line, names[i], values[i], deviations?.[i])),
  );
  const more = values.length > order.length;
  return h(
    "div",
    { class: "plot" },
    svg,
    more && h("p", { class: "help" }, `The ${order.length} largest of ${values.length}.`),
    h(
      "details",
      null,
      h("summary", null, "All coefficients as a table"),
      coefficientTable(names, values, deviations),
    ),
  );
}

function coefficientFrame(sizes) {
  const row = 26;
  const [width, left, right, letters] = narrow() ? [420, 150, 350, 16] : [760, 200, 690, 27];
  const middle = (left + right) / 2;
  const most = Math.max(...sizes, 1e-9);
  const x = (value) => middle + ((right - left) / 2) * (value / most);
  return { row, width, left, middle, letters, x, height: sizes.length * row + 12 };
}

function coefficient({ row, width, left, letters, x }, line, name, value, deviation) {
  const top = line * row + 6;
  const centre = top + row / 2;
  const short = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
  const title = `${name}: ${num(value, 6)}${deviation ? ` ± ${num(deviation)}` : ""}`;
  const ends = [value - deviation, value + deviation].map(x);
  const whisker = `M${ends[0]},${centre}H${ends[1]}M${ends[0]},${centre - 4}v8M${ends[1]},${centre - 4}v8`;
  return s(
    "g",
    null,
    s("title", null, title),
    s("text", { class: "name", x: left - 12, y: centre + 4, "text-anchor": "end" }, short),
    s("rect", {
      class: value < 0 ? "bar minus" : "bar",
      x: Math.min(x(0), x(value)),
      y: top + 4,
      width: Math.max(1, Math.abs(x(value) - x(0))),
      height: row - 8,
      rx: 2,
    }),
    deviation && s("path", { class: "error", d: whisker }),
    s("text", { class: "tick", x: width, y: centre + 4, "text-anchor": "end" }, num(value, 3)),
  );
}

function coefficientTable(names, values, deviations) {
  const heads = ["feature", "coefficient", ...(deviations ? ["noise, 1 sd"] : [])];
  const rows = values.map((value, i) => [
    names[i],
    num(value, 6),
    ...(deviations ? [num(deviations[i])] : []),
  ]);
  return table("Coefficients", heads, rows, { numbers: [1, 2], hideCaption: true });
}
