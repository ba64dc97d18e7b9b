// All jobs, live: progress arrives over the event stream.
import { all, post, query } from "./client.js";
import { bar } from "./plots.js";
import {
  action,
  badge,
  card,
  code,
  empty,
  field,
  h,
  later,
  link,
  num,
  page,
  replace,
  select,
  table,
  when,
  words,
} from "./ui.js";

const STATES = ["queued", "running", "cancelling", "succeeded", "failed", "cancelled"];
export const OPEN = ["queued", "running"];
export const ended = (state) => ["succeeded", "failed", "cancelled"].includes(state);

export function progressCell(job) {
  const { steps_done: done, steps_total: total } = job.progress;
  return h(
    "span",
    { class: "progress", "data-job": job.id },
    bar(done, total, `Progress of ${job.id}`),
    h("small", null, `${num(done)} / ${num(total)}`),
  );
}

export const cancelButton = (job, then) =>
  action(
    "Cancel",
    async () => {
      await post(`/jobs/${job.id}/cancel`);
      await then();
    },
    "small",
  );

const PAGE = 25;

const newJobLink = (me) =>
  ["analyst", "owner"].includes(me.role) && link("New job", "#/jobs/new", "button primary");

export async function jobsPage(context) {
  const { root, me } = context;
  const datasets = await all("/datasets");
  const names = new Map(datasets.map((d) => [d.id, d.name]));
  const chosen = (name) => context.query.get(name) || "";
  const dataset = select([["", "all datasets"], ...names], chosen("dataset"));
  const state = select([["", "all states"], ...STATES.map((s) => [s, s])], chosen("state"));
  const list = h("div");
  let shown = PAGE;

  const showMore = () => {
    shown += PAGE;
    refresh();
  };
  async function refresh() {
    const filters = query({ dataset: dataset.value, state: state.value });
    const jobs = (await all(`/jobs${filters}`, undefined, shown)).slice(0, shown);
    if (!context.here()) return;
    if (!jobs.length) {
      replace(list, noJobsCard(filters !== "", me));
      return;
    }
    const more = h("button", { type: "button", onclick: showMore }, "Show more");
    replace(
      list,
      card(null, jobsTable(jobs, names, me, refresh)),
      jobs.length === shown && h("div", { class: "actions" }, more),
    );
  }
  const soon = later(() => context.here() && refresh().catch(() => {}), 200);
  context.onEvent((event) => {
    if (event.event === "progress") {
      const cell = list.querySelector(`[data-job="${event.job}"]`);
      if (cell) {
        cell.replaceWith(progressCell({ id: event.job, progress: event.progress }));
        return;
      }
    }
    if (["job", "reset"].includes(event.event)) soon();
  });
  for (const control of [dataset, state]) control.addEventListener("change", refresh);
  await refresh();
  replace(
    root,
    page("Jobs", newJobLink(me)),
    h("div", { class: "row filters" }, field("Dataset", dataset), field("State", state)),
    list,
  );
}

function noJobsCard(filtered, me) {
  const text = filtered
    ? "None matches these filters."
    : "Jobs that you may see appear here as they are submitted.";
  return card(null, empty("No jobs here", text, newJobLink(me)));
}

function jobsTable(jobs, names, me, refresh) {
  const heads = ["job", "dataset", "algorithm", "loss", "ε", "state", "steps", "submitted", ""];
  const cancellable = (job) => OPEN.includes(job.state) && me.role !== "auditor";
  const rows = jobs.map((job) => [
    link(code(job.id), `#/jobs/${job.id}`),
    names.get(job.dataset) || code(job.dataset, 10),
    job.spec.algorithm,
    words(job.spec.loss?.kind ?? "–"),
    num(job.spec.privacy.epsilon),
    badge(job.state),
    progressCell(job),
    when(job.created_at),
    cancellable(job) ? cancelButton(job, refresh) : "",
  ]);
  return table("Jobs, newest first", heads, rows, { numbers: [4], cards: true });
}
