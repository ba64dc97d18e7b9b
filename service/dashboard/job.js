// One job: how far it is, its Plan in words and as a table of releases, its model, its certificate.
import { record, verifyButton } from "./audit.js";
import { all, get } from "./client.js";
import { cancelButton, ended, OPEN } from "./jobs.js";
import { modelCard } from "./model.js";
import { expectation, planWords, releaseTable } from "./plan.js";
import { bar } from "./plots.js";
import { evaluationCards } from "./evaluation.js";
import { summaryCards } from "./summaries.js";
import {
  announce,
  badge,
  card,
  code,
  facts,
  h,
  later,
  link,
  num,
  page,
  plural,
  replace,
  when,
  words,
} from "./ui.js";

const help = (...text) => h("p", { class: "help" }, ...text);

export async function jobPage(context) {
  const {
    root,
    params: [id],
  } = context;
  const [job, plan, described, algorithms] = await Promise.all([
    get(`/jobs/${id}`),
    get(`/jobs/${id}/plan`),
    get(`/jobs/${id}/releases`),
    all("/algorithms", (a) => a.name),
  ]);
  const dataset = await get(`/datasets/${job.dataset}`).catch(() => ({ name: job.dataset }));
  const paper = algorithms.find((a) => a.name === plan.algorithm);
  const status = h("div");
  const result = h("div", { class: "part" });

  const about = h("div");
  const drawStatus = () => {
    replace(about, jobFacts(job, plan, dataset)); // it says when the job finished
    replace(status, statusCard(job, context.me, refresh));
  };
  const drawResult = async () =>
    replace(result, await resultCards(job, plan, described, context.me));
  async function refresh() {
    const before = job.state;
    Object.assign(job, await get(`/jobs/${id}`));
    if (!context.here()) return;
    drawStatus();
    if (before !== job.state) announce(`The job is ${job.state}.`);
    if (job.state === "succeeded" && !result.childElementCount) await drawResult();
  }

  drawStatus();
  replace(
    root,
    page("Job", code(id, 40)),
    about,
    status,
    result,
    planCard(job, plan, described, paper),
  );
  if (job.state === "succeeded") await drawResult();
  const soon = later(() => context.here() && refresh().catch(() => {}), 100);
  context.onEvent((event) => {
    if (event.event === "reset") soon();
    if (event.job !== id) return;
    if (event.event === "job") soon();
    if (event.event === "progress" && !ended(job.state)) {
      const { state, progress, data_opened } = event;
      Object.assign(job, { state, progress, data_opened });
      drawStatus();
    }
  });
  if (!ended(job.state)) soon(); // it may have moved on while this was drawn
}

function jobFacts(job, plan, dataset) {
  return facts([
    ["Dataset", link(dataset.name, `#/datasets/${job.dataset}`)],
    ["Algorithm", plan.algorithm],
    ["Loss", words(plan.spec.loss?.kind ?? "–")],
    ["ε", num(plan.guarantee.epsilon), `δ ${num(plan.guarantee.delta)}`],
    ["Submitted", when(job.created_at)],
    ["Finished", when(job.finished_at)],
  ]);
}

function statusCard(job, me, refresh) {
  const { steps_done: done, steps_total: total } = job.progress;
  const percent = Math.floor((100 * done) / (total || 1));
  const progress = h(
    "span",
    { class: "progress wide" },
    bar(done, total, "Progress"),
    h("span", null, `${num(done)} of ${plural(total, "step")}, ${percent} %`),
  );
  const cancellable = OPEN.includes(job.state) && me.role !== "auditor";
  return card(
    "Status",
    h(
      "div",
      { class: "status" },
      badge(job.state),
      progress,
      cancellable && cancelButton(job, refresh),
    ),
    help(whatCancelCosts(job)),
    job.error && h("p", { class: "note warn" }, job.error.message),
  );
}

function whatCancelCosts(job) {
  if (ended(job.state)) return "";
  if (job.data_opened) return "The data has been opened: the price stays even if you cancel.";
  return "The data has not been opened: a cancel is free.";
}

function planCard(job, plan, described, paper) {
  const { prediction } = plan;
  return card(
    "Plan",
    planWords(plan, described),
    releaseTable(described),
    facts([
      ...expectation(plan),
      [
        "Noise of one release",
        num(prediction.our_noise),
        `the paper’s own: ${num(prediction.paper_noise)}`,
      ],
      ["Gradients", num(plan.gradients)],
      ["Price", `${num(plan.price.units)} units`],
    ]),
    job.choice && h("p", { class: "note" }, "Chosen automatically. ", job.choice.reason),
    paper &&
      help(
        `${paper.title}. ${paper.paper}, algorithm ${paper.algorithm}, theorem ${paper.theorem}. `,
        `Prediction: ${prediction.theorem}.`,
      ),
  );
}

async function resultCards(job, plan, described, me) {
  const [model, certificate] = await Promise.all([
    get(`/jobs/${job.id}/model`),
    get(`/jobs/${job.id}/audit`),
  ]);
  return [
    resultOf(model, plan, described),
    downloadsCard(job, model, plan, me),
    certificateCard(job, certificate),
  ];
}

function resultOf(model, plan, described) {
  if (model.summaries) return summaryCards(model.summaries);
  if (model.evaluation) return evaluationCards(model.evaluation, plan);
  return modelCard(model, plan, described);
}

function downloadsCard(job, model, plan, me) {
  const save = (text, path) => {
    const download = `${path}-${job.id}.json`;
    return h("a", { class: "button", href: `/v1/jobs/${job.id}/${path}`, download }, text);
  };
  const mayCertify = model.coef_ && ["analyst", "owner"].includes(me.role);
  const certify = `#/jobs/new?dataset=${job.dataset}&of=${job.id}`;
  return card(
    "Downloads",
    h(
      "div",
      { class: "actions" },
      save("Model (JSON)", "model"),
      save("Plan (JSON)", "plan"),
      save("Certificate (JSON)", "audit"),
      mayCertify && link("Certify this model", certify, "button"),
      mayCertify &&
        plan.facts.held_out &&
        link("Evaluate this model", `${certify}&evaluate=1`, "button"),
    ),
  );
}

function certificateCard(job, certificate) {
  const verify = verifyButton(job.dataset, certificate.body.seq, "Verify", "primary");
  return card(
    "Certificate",
    help(
      "A signed record in the dataset’s hash chain: what was released, with which noise, ",
      "at what charge.",
    ),
    record(certificate),
    h("div", { class: "actions" }, verify),
  );
}
