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

export async function jobsPage(context) {
  const { root, me } = context;
  const datasets = await all("/datasets");
  const names = new Map(datasets.map((d) => [d.id, d.name]));
  const dataset = select(
    [["", "all datasets"], ...datasets.map((d) => [d.id, d.name])],
    context.query.get("dataset") || "",
  );
  const state = select(
    [["", "all states"], ...STATES.map((s) => [s, s])],
    context.query.get("state") || "",
  );
  const list = h("div");
  let shown = 25;

  const refresh = async () => {
    const jobs = (
      await all(`/jobs${query({ dataset: dataset.value, state: state.value })}`, undefined, shown)
    ).slice(0, shown);
    if (!context.here()) return;
    if (!jobs.length) {
      replace(
        list,
        card(
          null,
          empty(
            "No jobs here",
            dataset.value || state.value
              ? "None matches these filters."
              : "Jobs that you may see appear here as they are submitted.",
            ["analyst", "owner"].includes(me.role) &&
              link("New job", "#/jobs/new", "button primary"),
          ),
        ),
      );
      return;
    }
    const rows = jobs.map((job) => [
      link(code(job.id), `#/jobs/${job.id}`),
      names.get(job.dataset) || code(job.dataset, 10),
      job.spec.algorithm,
      words(job.spec.loss.kind),
      num(job.spec.privacy.epsilon),
      badge(job.state),
      progressCell(job),
      when(job.created_at),
      OPEN.includes(job.state) && me.role !== "auditor" ? cancelButton(job, refresh) : "",
    ]);
    replace(
      list,
      card(
        null,
        table(
          "Jobs, newest first",
          ["job", "dataset", "algorithm", "loss", "ε", "state", "steps", "submitted", ""],
          rows,
          { numbers: [4], cards: true },
        ),
      ),
      jobs.length === shown &&
        h(
          "div",
          { class: "actions" },
          h(
            "button",
            {
              type: "button",
              onclick: () => {
                shown += 25;
                refresh();
              },
            },
            "Show more",
          ),
        ),
    );
  };
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
    page(
      "Jobs",
      ["analyst", "owner"].includes(me.role) && link("New job", "#/jobs/new", "button primary"),
    ),
    h("div", { class: "row filters" }, field("Dataset", dataset), field("State", state)),
    list,
  );
}
