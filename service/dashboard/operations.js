// For administrators: the queue, the workers, the leases, what failed.
import { get } from "./client.js";
import { bar } from "./plots.js";
import {
  badge,
  card,
  code,
  empty,
  facts,
  later,
  link,
  num,
  page,
  plural,
  replace,
  table,
  when,
} from "./ui.js";

const jobLink = (id) => link(code(id), `#/jobs/${id}`);

export async function operationsPage(context) {
  const { root } = context;
  const refresh = async () => {
    const state = await get("/operations");
    if (!context.here()) return;
    replace(
      root,
      page("Operations"),
      overview(state),
      leasesCard(state.leases),
      failuresCard(state.failures),
      processesCard(state.processes),
    );
  };
  await refresh();
  const soon = later(() => context.here() && refresh().catch(() => {}), 500);
  context.every(5000, soon);
  context.onEvent(soon);
}

function overview(state) {
  const { jobs, oldest_queued_seconds: oldest, ended_last_day: today } = state;
  const workers = state.processes.filter((p) => p.role === "worker").length;
  return facts([
    [
      "Queued",
      num(jobs.queued),
      oldest === null ? "nobody waits" : `oldest waits ${num(oldest)} s`,
    ],
    ["Running", num(jobs.running + jobs.cancelling)],
    ["Workers", num(workers), `engine: ${state.engine}`],
    ["Succeeded today", num(today.succeeded)],
    ["Failed today", num(today.failed)],
    ["Open streams", num(state.streams), `${plural(state.overdue_hints, "overdue hint")}`],
  ]);
}

function leasesCard(leases) {
  if (!leases.length) {
    const text = "A job that a worker holds appears here with its lease.";
    return card("Leases", empty("No job is running", text));
  }
  const heads = ["job", "state", "progress", "attempt", "running for", "lease left"];
  const rows = leases.map((lease) => [
    jobLink(lease.job),
    badge(lease.state),
    bar(lease.progress.steps_done, lease.progress.steps_total, `Progress of ${lease.job}`),
    num(lease.attempt),
    `${num(lease.seconds_since_start)} s`,
    `${num(lease.seconds_left)} s`,
  ]);
  const options = { numbers: [3, 4, 5], cards: true };
  return card("Leases", table("Jobs that a worker holds", heads, rows, options));
}

function failuresCard(failures) {
  if (!failures.length) {
    return card("Failures", empty("No failures", "Jobs that failed appear here."));
  }
  const rows = failures.map((failure) => [
    jobLink(failure.job),
    failure.error ? failure.error.message : "–",
    num(failure.attempts),
    when(failure.finished_at),
  ]);
  const heads = ["job", "why", "attempts", "at"];
  return card("Failures", table("Newest first", heads, rows, { numbers: [2] }));
}

function processesCard(processes) {
  const rows = processes.map((process) => [
    process.role,
    process.host,
    process.pid,
    when(process.started_at),
    `${num(process.seconds_since_seen)} s ago`,
  ]);
  const heads = ["role", "host", "pid", "started", "seen"];
  const caption = "Seen within the last minute";
  return card("Processes", table(caption, heads, rows, { numbers: [2] }));
}
