// Plots drawn by hand in SVG: gauges, the burn-down of a budget, coefficients.
import { h, num, percent, replace, s, table, when } from "./ui.js";

// The epsilon that ledger units read as, by the account's own conversion (service/planning/conversion.py),
// for drawing; what the API says is what counts.
export function epsilonOf(units, delta) {
  if (units <= 0) return 0;
  if (delta === 0) return units / 1e12;
  const rho = units / 1e12;
  const at = (a) => rho * a + Math.log1p(-1 / a) - (Math.log(delta) + Math.log(a)) / (a - 1);
  let low = 2;
  let high = 2 ** 34;
  while (high - low > 2) {
    const third = Math.floor((high - low) / 3);
    if (at(low + third) > at(high - third)) low += third;
    else high -= third;
  }
  return Math.max(0, Math.min(at(low), at(low + 1), at(high)));
}

export function gauge(budget, label = "Budget") {
  const whole = budget.units_ceiling || 1;
  const part = (units) => (100 * units) / whole;
  const [spent, reserved] = [part(budget.units_spent), part(budget.units_reserved)];
  const text = `${label}: epsilon ${num(budget.epsilon_spent)} spent, ${num(budget.epsilon_reserved)} reserved, ` +
    `${num(budget.epsilon_remaining)} remaining of ${num(budget.epsilon)}`;
  return h("div", { class: "gauge" },
    s("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": text },
      s("rect", { class: "track", width: 100, height: 6, rx: 0 }),
      s("rect", { class: "capped", x: part(budget.units_cap), width: 100 - part(budget.units_cap), height: 6 }),
      s("rect", { class: "spent", width: spent, height: 6 }),
      s("rect", { class: "reserved", x: spent, width: reserved, height: 6 })),
    h("dl", null, [["spent", budget.epsilon_spent], ["reserved", budget.epsilon_reserved], ["remaining", budget.epsilon_remaining],
      ...(budget.units_cap < budget.units_ceiling ? [["ceiling", budget.epsilon]] : [])]
      .map(([name, value]) => h("div", { class: name }, h("dt", null, name), h("dd", null, `ε ${num(value)}`)))));
}

// What was left after every entry of the ledger.
export function history(entries, delta) {
  let cap = 0;
  let spent = 0;
  let reserved = 0;
  return entries.map((entry) => {
    if (entry.kind === "open" || entry.kind === "top_up") cap += entry.units;
    if (entry.kind === "reserve") reserved += entry.units;
    if (entry.kind === "void") reserved -= entry.units;
    if (entry.kind === "post") { reserved -= entry.units; spent += entry.units; }
    const left = cap - spent - reserved;
    return { entry, left, remaining: epsilonOf(left, delta), spent: epsilonOf(spent, delta) };
  });
}

const narrow = () => innerWidth < 560; // then the same text needs more of the width

function ticks(most) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

export function burnDown(entries, delta, nameOf) {
  const points = history(entries, delta);
  const [W, H, L, R, T, B] = [narrow() ? 420 : 760, 260, 44, 14, 14, 30];
  const times = points.map((p) => Date.parse(p.entry.created_at));
  const [first, last] = [times[0], Math.max(times.at(-1), times[0] + 1000)];
  const most = Math.max(...points.map((p) => p.remaining), 1e-6) * 1.05;
  const x = (t) => L + ((W - L - R) * (t - first)) / (last - first);
  const y = (v) => H - B - ((H - T - B) * v) / most;
  let path = "";
  points.forEach((p, i) => { path += i ? `H${x(times[i])}V${y(p.remaining)}` : `M${x(times[i])},${y(p.remaining)}`; });
  const read = h("output", { class: "readout", "aria-live": "polite" });
  const guide = s("line", { class: "guide", y1: T, y2: H - B });
  const dot = s("circle", { class: "dot", r: 5 });
  const day = last - first > 2 * 86_400_000;
  const stamp = (t) => new Date(t).toLocaleString("en-GB", day ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img",
    "aria-label": `Budget over time: from epsilon ${num(points[0].remaining)} to ${num(points.at(-1).remaining)} remaining over ${points.length} ledger entries. The table below has every value.` },
  ticks(most).map((v) => [s("line", { class: "grid", x1: L, x2: W - R, y1: y(v), y2: y(v) }),
    s("text", { class: "tick", x: L - 8, y: y(v) + 4, "text-anchor": "end" }, num(v))]),
  (narrow() ? [0, 1] : [0, 0.5, 1]).map((f) => s("text", { class: "tick", x: x(first + f * (last - first)), y: H - 8,
    "text-anchor": ["start", "middle", "end"][f * 2] }, stamp(first + f * (last - first)))),
  s("path", { class: "area", d: `${path}V${y(0)}H${x(times[0])}Z` }),
  s("path", { class: "line", d: path }), guide, dot);
  const slider = h("input", { type: "range", min: 0, max: points.length - 1, step: 1, value: points.length - 1,
    "aria-label": "Ledger entry to read out", oninput: () => show(Number(slider.value)) });
  function show(index) {
    const p = points[index];
    const at = x(times[index]);
    for (const end of ["x1", "x2"]) guide.setAttribute(end, at);
    dot.setAttribute("cx", at);
    dot.setAttribute("cy", y(p.remaining));
    slider.value = index;
    replace(read, h("b", null, `ε ${num(p.remaining)} left`), ` after #${p.entry.seq} ${p.entry.kind.replace("_", " ")}`,
      p.entry.units && p.entry.kind !== "open" ? ` of ε ${num(p.entry.epsilon)}` : "",
      p.entry.principal ? ` by ${nameOf(p.entry.principal)}, ` : ", ", when(p.entry.created_at));
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) * W) / box.width;
    let best = 0;
    times.forEach((t, i) => { if (Math.abs(x(t) - at) <= Math.abs(x(times[best]) - at)) best = i; });
    show(best);
  });
  show(points.length - 1);
  const rows = points.map((p) => [`#${p.entry.seq}`, p.entry.kind.replace("_", " "), num(p.entry.epsilon), num(p.remaining), num(p.spent), when(p.entry.created_at)]);
  return h("div", { class: "plot" }, h("p", { class: "axis" }, "The largest ε that still fits, over time"), svg, slider, read,
    h("details", null, h("summary", null, "The same as a table"),
      table("What remained after each entry", ["entry", "kind", "ε of it", "ε remaining", "ε spent", "at"], rows, { numbers: [2, 3, 4], hideCaption: true })));
}

// Horizontal bars about zero, the largest first; `deviations` draws error bars of one standard deviation.
export function coefficients(names, values, deviations, shown = 24) {
  const order = values.map((_, i) => i).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, shown);
  const most = Math.max(...order.map((i) => Math.abs(values[i]) + (deviations?.[i] || 0)), 1e-9);
  const [W, row] = [narrow() ? 420 : 760, 26];
  const [left, right] = narrow() ? [150, 350] : [200, 690];
  const middle = (left + right) / 2;
  const x = (v) => middle + ((right - left) / 2) * (v / most);
  const height = order.length * row + 12;
  const room = narrow() ? 16 : 27;
  const clip = (text) => (text.length > room ? `${text.slice(0, room - 1)}…` : text);
  const svg = s("svg", { viewBox: `0 0 ${W} ${height}`, role: "img",
    "aria-label": `Coefficients of ${order.length} features, the largest is ${names[order[0]]} with ${num(values[order[0]])}. The table below has every value.` },
  s("line", { class: "grid", x1: middle, x2: middle, y1: 2, y2: height - 2 }),
  order.map((i, place) => {
    const [v, top, deviation] = [values[i], place * row + 6, deviations?.[i]];
    const centre = top + row / 2;
    return s("g", null, s("title", null, `${names[i]}: ${num(v, 6)}${deviation ? ` ± ${num(deviation)}` : ""}`),
      s("text", { class: "name", x: left - 12, y: centre + 4, "text-anchor": "end" }, clip(names[i])),
      s("rect", { class: v < 0 ? "bar minus" : "bar", x: Math.min(x(0), x(v)), y: top + 4, width: Math.max(1, Math.abs(x(v) - x(0))), height: row - 8, rx: 2 }),
      deviation && s("path", { class: "error", d: `M${x(v - deviation)},${centre}H${x(v + deviation)}M${x(v - deviation)},${centre - 4}v8M${x(v + deviation)},${centre - 4}v8` }),
      s("text", { class: "tick", x: W, y: centre + 4, "text-anchor": "end" }, num(v, 3)));
  }));
  const rows = values.map((v, i) => [names[i], num(v, 6), ...(deviations ? [num(deviations[i])] : [])]);
  return h("div", { class: "plot" }, svg,
    values.length > order.length && h("p", { class: "help" }, `The ${order.length} largest of ${values.length}.`),
    h("details", null, h("summary", null, "All coefficients as a table"),
      table("Coefficients", ["feature", "coefficient", ...(deviations ? ["noise, 1 sd"] : [])], rows, { numbers: [1, 2], hideCaption: true })));
}

export function bar(done, total, label) {
  return h("progress", { value: done, max: total || 1, "aria-label": label, title: percent(done, total) });
}

export function shareBar(part, whole, label) {
  return s("svg", { class: "share", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", width: 100, height: 6 }),
    s("rect", { class: "spent", width: Math.min(100, (100 * part) / (whole || 1)), height: 6 }));
}
