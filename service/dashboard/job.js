// One job: how far it is, its Plan in words and as a table of releases, its model, its certificate.
import { all, get } from "./client.js";
import { record, verifyButton } from "./audit.js";
import { cancelButton, ended, OPEN } from "./jobs.js";
import { bar, coefficients } from "./plots.js";
import { announce, badge, card, code, empty, facts, h, later, link, num, page, plural, replace, table, when, words } from "./ui.js";

const MECHANISMS = { gaussian: "Gaussian", pure: "Laplace", exponential: "exponential" };

// A Plan's tree of releases as rows: what is released, how often, on how many rows.
export function releases(plan) {
  const { lattice, schedule } = plan;
  const unit = lattice.kind === "sum" ? lattice.step : schedule.lattice_step ?? schedule.phases?.[0]?.lattice_step ?? 1;
  const walk = (node, times, rows, how) => {
    if (node.kind === "repeat") return walk(node.release, times * node.times, rows, how);
    if (node.kind === "sequence") return node.parts.flatMap((part) => walk(part, times, rows, how));
    if (node.kind === "subsample") return walk(node.release, times, node.batch, `sampled from ${num(node.population)}`);
    if (node.kind === "sampled_gaussian") return walk({ ...node, kind: "gaussian" }, times, node.batch, `sampled from ${num(node.population)}`);
    if (node.kind === "disjoint") {
      const own = node.parts.length === 1 && node.copies > 1 ? Math.floor(rows / node.copies) : node.parts.length > 1 ? Math.floor(rows / node.parts.length) : rows;
      return node.parts.flatMap((part, i) => walk(part, times * node.copies, (node.parts.length > 1 && plan.schedule.rounds?.[i].rows) || plan.schedule.batch || own, "disjoint batches: the price of one"));
    }
    if (node.kind === "recursive") {
      return [{ mechanism: MECHANISMS.exponential, sensitivity: node.sensitivities[0], noise: node.scales[0], times: times * node.scales.length, rows, how: "a round of batches; its choices carry earlier batches on" }];
    }
    if (node.kind === "prefixes") {
      const { lattice: first, schedule: { later, first_batch: most, batch: least } } = plan;
      const rows_ = [[first, most], [later, least]].slice(0, node.leaves.length);
      return rows_.map(([on, size], i) => ({ mechanism: node.noise === "gaussian" ? "Gaussian" : "Laplace", sensitivity: node.leaves[i].sensitivity * on.step, noise: node.scale * on.step,
        times: i ? times * (plan.schedule.period - 1) : times, rows: size, how: i ? "fresh rows: differences, as prefix sums" : "fresh rows: whole gradients, as prefix sums" }));
    }
    const step = node.kind === "exponential" ? 1 : unit; // scores are counts, all else is on the lattice
    return [{ mechanism: MECHANISMS[node.kind] || node.kind, sensitivity: node.sensitivity * step, noise: (node.sigma ?? node.scale) * step, times, rows, how: how || "all rows each time" }];
  };
  return walk(plan.release, 1, plan.facts.rows, "");
}

// Of what a job asks, the part that is of the same kind as others: "huber (threshold 0.1)".
const describe = (thing) => {
  const given = Object.entries(thing).filter(([key, value]) => key !== "kind" && typeof value !== "object").map(([key, value]) => `${words(key)} ${num(value)}`);
  return words(thing.kind) + (given.length ? ` (${given.join(", ")})` : "");
};

const noisy = (what) => (r) => [`${what} plus ${r.mechanism} noise of ${r.mechanism === "Gaussian" ? "standard deviation" : "scale"} ${num(r.noise)}. `,
  `Replacing one person’s record moves it by at most ${num(r.sensitivity)}; the noise hides that.`];
const KINDS = {
  sum: noisy("a sum of clipped gradients"),
  point: (r) => noisy(r.times > 1 ? "a point computed from rows of its own (the figures are the first one’s)" : "a point computed from the data")(r),
  score: (r) => [`a choice among the vertices of the set by their scores, a vertex being e times less likely for every ${num(r.noise)} units that it scores worse. `,
    `Replacing one person’s record moves the difference of two scores by at most ${num(r.sensitivity)} units.`],
};

export function planWords(plan) {
  const all_ = releases(plan);
  const chosen = plan.lattice.kind === "score" ? [] : all_.filter((r) => r.mechanism === "exponential");
  const rows = all_.filter((r) => !chosen.includes(r));
  const count = rows.reduce((sum, r) => sum + r.times, 0);
  const { spec, guarantee } = plan;
  const more = Object.entries(spec).filter(([name, value]) => value?.kind && !["loss", "set"].includes(name) && !["none", "linear"].includes(value.kind));
  return h("div", { class: "prose" },
    h("p", null, `It fits the ${describe(spec.loss)} loss over ${spec.set.kind === "all" ? "every weight vector" : `the set ${describe(spec.set)}`}`, spec.ridge ? ` with ridge ${num(spec.ridge)}` : "",
      more.map(([name, value]) => `, with the ${words(name)} ${describe(value)}`), ` on ${plural(plan.facts.rows, "row")} and ${plural(plan.dimension, "weight")}, with ${plan.algorithm}.`),
    h("p", null, chosen.length ? "First the clip is chosen from the data by the exponential mechanism. Then what" : "What",
      ` leaves the data is ${count === 1 ? "one release" : `${num(count)} releases`}: ${count === 1 ? "" : "each "}`, ...(KINDS[plan.lattice.kind] ?? noisy("a vector computed from the data"))(rows[0]),
      " Everything after that is post-processing."),
    h("p", null, `${count + chosen.length === 1 ? "It is" : "Together they are"} differentially private with ε ${num(guarantee.epsilon)} and δ ${num(guarantee.delta)} for replacing one record. `,
      `The ledger is charged ${num(plan.price.units)} units; this job alone satisfies ε ${num(guarantee.epsilon_alone)}.`));
}

export function releaseTable(plan) {
  return table("Releases", ["mechanism", "sensitivity", "noise", "times", "rows", "on"],
    releases(plan).map((r) => [r.mechanism, num(r.sensitivity), num(r.noise), num(r.times), num(r.rows), r.how]), { numbers: [1, 2, 3, 4], cards: true });
}

// The noise's standard deviation in a weight, where one release makes it known: the released point itself,
// the point after the last phase, or a single step from zero. After anything else no single figure is.
export function deviation(plan) {
  const { schedule, lattice } = plan;
  const [one, ...others] = releases(plan);
  if (others.length) return null;
  const noise = one.noise * (one.mechanism === "Laplace" ? Math.SQRT2 : 1);
  if (schedule.kind === "minimiser" && one.times === 1) return noise;
  if (schedule.kind === "phased_sgd") return noise * (schedule.phases.at(-1).lattice_step / schedule.phases[0].lattice_step);
  if (schedule.kind === "gradient_descent" && lattice.kind === "sum" && one.times === 1) return (schedule.step_size * noise) / (schedule.batch ?? plan.facts.rows);
  return null;
}

function certificateCard(c) {
  const row = (name, value, noise) => [name, value === null ? "–" : num(value), value === null ? "–" : num(noise)];
  return card("Stationarity", table("How near the model is to a stationary point", ["measure", "value", "noise"], [
    row("Length of the gradient", c.gradient_norm, c.noise_norm),
    row("Length of the projected gradient", c.projected_gradient_norm, c.noise_norm),
    row("Frank-Wolfe gap over the set", c.stationarity_gap, c.gap_noise)], { numbers: [1, 2] }),
  h("p", { class: "help" }, "Of the model of ", link(c.of, `#/jobs/${c.of}`), c.radius ? `, over a ball of radius ${num(c.radius)} about it` : "",
    `. Noise moves a value by at most the number beside it, with probability ${num(c.confidence)}.`));
}

function modelCard(model, plan) {
  if (model.certificate) return certificateCard(model.certificate);
  if (model.location) return card("Centre", coefficients(model.feature_names_in_, model.location, null), h("p", { class: "help" }, "In the columns’ own units."));
  const names = ["(intercept)", ...model.feature_names_in_];
  if (model.network) {
    const { hidden, outer } = model.network;
    const paths = names.map((_, j) => hidden.reduce((sum, unit, k) => sum + Math.abs(outer[k] * unit[j]), 0));
    return card("Model", coefficients(names, paths, null),
      h("p", { class: "help" }, `A network of ${plural(outer.length, "hidden unit")} has no coefficients. Shown is how much weight leads from a feature to the output through all units; download the model for the weights.`));
  }
  const sd = deviation(plan);
  const { feature_step: step, linf_units: units } = plan.facts;
  // the intercept's weight belongs to a column of this constant
  const deviations = sd && names.map((_, i) => (i === 0 && step ? sd * step * units : sd));
  const help = h("p", { class: "help" }, sd ? `Error bars: one standard deviation of the noise (${num(sd)} in a feature’s coefficient), before projection onto the set.` : "Its noise went through several steps, so no single error bar is known.",
    !Array.isArray(model.intercept_) && model.classes_ ? ` Positive coefficients favour “${model.classes_[1]}”.` : "");
  if (Array.isArray(model.intercept_)) {
    return card("Model", ...model.classes_.slice(0, 8).flatMap((name, k) => [h("h3", null, name), coefficients(names, [model.intercept_[k], ...model.coef_[k]], deviations)]),
      model.classes_.length > 8 ? empty("More classes", "Download the model to see them all.") : null, help);
  }
  return card("Model", coefficients(names, [model.intercept_, ...model.coef_], deviations), help);
}

export async function jobPage(context) {
  const { root, me, params: [id] } = context;
  const [job, plan, algorithms] = await Promise.all([get(`/jobs/${id}`), get(`/jobs/${id}/plan`), all("/algorithms", (a) => a.name)]);
  const dataset = await get(`/datasets/${job.dataset}`).catch(() => ({ name: job.dataset }));
  const paper = algorithms.find((a) => a.name === plan.algorithm);
  const status = h("div");
  const result = h("div", { class: "part" });
  const percentOf = (p) => Math.floor((100 * p.steps_done) / (p.steps_total || 1));

  const drawStatus = (now) => {
    replace(status, card("Status", h("div", { class: "status" }, badge(now.state), h("span", { class: "progress wide" }, bar(now.progress.steps_done, now.progress.steps_total, "Progress"),
      h("span", null, `${num(now.progress.steps_done)} of ${plural(now.progress.steps_total, "step")}, ${percentOf(now.progress)} %`)),
    OPEN.includes(now.state) && me.role !== "auditor" && cancelButton(now, refresh)),
    h("p", { class: "help" }, ended(now.state) ? "" : now.data_opened ? "The data has been opened: the price stays even if you cancel." : "The data has not been opened: a cancel is free."),
    now.error && h("p", { class: "note warn" }, now.error.message)));
  };
  async function refresh() {
    const before = job.state;
    Object.assign(job, await get(`/jobs/${id}`));
    if (!context.here()) return;
    drawStatus(job);
    if (before !== job.state) announce(`The job is ${job.state}.`);
    if (job.state === "succeeded" && !result.childElementCount) await drawResult();
  }
  async function drawResult() {
    const [model, certificate] = await Promise.all([get(`/jobs/${id}/model`), get(`/jobs/${id}/audit`)]);
    const save = (text, path) => h("a", { class: "button", href: `/v1/jobs/${id}/${path}`, download: `${path}-${id}.json` }, text);
    replace(result, modelCard(model, plan),
      card("Downloads", h("div", { class: "actions" }, save("Model (JSON)", "model"), save("Plan (JSON)", "plan"), save("Certificate (JSON)", "audit"),
        model.coef_ && me.role !== "auditor" && me.role !== "admin" && link("Certify this model", `#/jobs/new?dataset=${job.dataset}&of=${id}`, "button"))),
      card("Certificate", h("p", { class: "help" }, "A signed record in the dataset’s hash chain: what was released, with which noise, at what charge."),
        record(certificate), h("div", { class: "actions" }, verifyButton(job.dataset, certificate.body.seq, "Verify", "primary"))));
  }

  drawStatus(job);
  replace(root, page("Job", code(id, 40)),
    facts([["Dataset", link(dataset.name, `#/datasets/${job.dataset}`)], ["Algorithm", plan.algorithm], ["Loss", words(plan.spec.loss.kind)], ["ε", num(plan.guarantee.epsilon), `δ ${num(plan.guarantee.delta)}`],
      ["Submitted", when(job.created_at)], ["Finished", when(job.finished_at)]]),
    status, result,
    card("Plan", planWords(plan), releaseTable(plan),
      facts([["Predicted excess risk", num(plan.prediction.excess_risk), "order of magnitude"], ["Noise of one release", num(plan.prediction.our_noise), `the paper’s own: ${num(plan.prediction.paper_noise)}`],
        ["Gradients", num(plan.gradients)], ["Price", `${num(plan.price.units)} units`]]),
      job.choice && h("p", { class: "note" }, "Chosen automatically. ", job.choice.reason),
      paper && h("p", { class: "help" }, `${paper.title}. ${paper.paper}, algorithm ${paper.algorithm}, theorem ${paper.theorem}. Prediction: ${plan.prediction.theorem}.`)));
  if (job.state === "succeeded") await drawResult();
  const soon = later(() => context.here() && refresh().catch(() => {}), 100);
  context.onEvent((event) => {
    if (event.event === "reset") soon();
    if (event.job !== id) return;
    if (event.event === "job") soon();
    if (event.event === "progress" && !ended(job.state)) {
      Object.assign(job, { state: event.state, progress: event.progress, data_opened: event.data_opened });
      drawStatus(job);
    }
  });
  if (!ended(job.state)) soon(); // it may have moved on while this was drawn
}
