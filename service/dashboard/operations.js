// For administrators: the queue, the workers, the leases, what failed.
import { get } from "./client.js";
import { bar } from "./plots.js";
import {
  badge,
  card,
  code,
  empty,
  facts,
  h,
  later,
  link,
  num,
  page,
  plural,
  replace,
  table,
  when,
} from "./ui.js";

export async function operationsPage(context) {
  const { root } = context;
  const job = (id) => link(code(id), `#/jobs/${id}`);
  const refresh = async () => {
    const o = await get("/operations");
    if (!context.here()) return;
    const leases = o.leases.map((l) => [
      job(l.job),
      badge(l.state),
      bar(l.progress.steps_done, l.progress.steps_total, `Progress of ${l.job}`),
      num(l.attempt),
      `${num(l.seconds_since_start)} s`,
      `${num(l.seconds_left)} s`,
    ]);
    const failures = o.failures.map((f) => [
      job(f.job),
      f.error ? f.error.message : "–",
      num(f.attempts),
      when(f.finished_at),
    ]);
    const processes = o.processes.map((p) => [
      p.role,
      p.host,
      p.pid,
      when(p.started_at),
      `${num(p.seconds_since_seen)} s ago`,
    ]);
    replace(
      root,
      page("Operations"),
      facts([
        [
          "Queued",
          num(o.jobs.queued),
          o.oldest_queued_seconds === null
            ? "nobody waits"
            : `oldest waits ${num(o.oldest_queued_seconds)} s`,
        ],
        ["Running", num(o.jobs.running + o.jobs.cancelling)],
        [
          "Workers",
          num(o.processes.filter((p) => p.role === "worker").length),
          `engine: ${o.engine}`,
        ],
        ["Succeeded today", num(o.ended_last_day.succeeded)],
        ["Failed today", num(o.ended_last_day.failed)],
        ["Open streams", num(o.streams), `${plural(o.overdue_hints, "overdue hint")}`],
      ]),
      card(
        "Leases",
        leases.length
          ? table(
              "Jobs that a worker holds",
              ["job", "state", "progress", "attempt", "running for", "lease left"],
              leases,
              { numbers: [3, 4, 5], cards: true },
            )
          : empty("No job is running", "A job that a worker holds appears here with its lease."),
      ),
      card(
        "Failures",
        failures.length
          ? table("Newest first", ["job", "why", "attempts", "at"], failures, { numbers: [2] })
          : empty("No failures", "Jobs that failed appear here."),
      ),
      card(
        "Processes",
        table(
          "Seen within the last minute",
          ["role", "host", "pid", "started", "seen"],
          processes,
          { numbers: [2] },
        ),
      ),
    );
  };
  await refresh();
  const soon = later(() => context.here() && refresh().catch(() => {}), 500);
  context.every(5000, soon);
  context.onEvent(soon);
}
