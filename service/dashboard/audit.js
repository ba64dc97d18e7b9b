// A dataset's chain of signed records: its head, verification, any record.
import { all, asWritten, get } from "./client.js";
import {
  action,
  card,
  code,
  empty,
  facts,
  field,
  h,
  link,
  num,
  page,
  plural,
  replace,
  select,
  table,
  when,
} from "./ui.js";

export function verdict(answer) {
  const what = answer.seq === null ? plural(answer.records, "record") : `Record ${answer.seq}`;
  return answer.verified
    ? h(
        "p",
        { class: "note good", role: "status" },
        `✓ ${what} verified: hashes, signatures, links, prices and plans.`,
      )
    : h(
        "div",
        { class: "problem", role: "alert" },
        h("p", null, h("strong", null, "Not verified.")),
        h(
          "ul",
          null,
          answer.findings.map((f) => h("li", null, f)),
        ),
      );
}

export const verifyButton = (dataset, seq, text = "Verify", cls = "") =>
  action(
    text,
    async () =>
      verdict(await get(`/datasets/${dataset}/audit/verification${seq ? `?seq=${seq}` : ""}`)),
    cls,
  );

export function record(item) {
  const { body } = item;
  return h(
    "div",
    null,
    facts([
      ["Record", `#${body.seq}`],
      ["Job", link(code(body.job), `#/jobs/${body.job}`)],
      ["Published", when(body.published_at)],
      ["Charged", `${num(body.charge.units)} units`, `ledger entry ${body.charge.entry}`],
    ]),
    h(
      "dl",
      { class: "hashes" },
      [
        ["Hash", item.hash],
        ["Previous", body.previous],
        ["Plan", body.plan_digest],
        ["Model", body.model_digest],
        ["Data commitment", body.data_commitment],
        ["Signature (Ed25519)", item.signature],
      ].map(([name, value]) =>
        h("div", null, h("dt", null, name), h("dd", null, h("code", null, value))),
      ),
    ),
    h(
      "details",
      null,
      h("summary", null, "The whole record as JSON"),
      h(
        "pre",
        { tabindex: "0", role: "region", "aria-label": "Record as JSON" },
        JSON.stringify(item, null, 2),
      ),
    ),
  );
}

export async function auditPage(context) {
  const { root } = context;
  const datasets = await all("/datasets");
  if (!datasets.length) {
    replace(
      root,
      page("Audit"),
      card(
        null,
        empty("No chain yet", "Every dataset has a chain of signed records, one for each release."),
      ),
    );
    return;
  }
  const chosen = datasets.find((d) => d.id === context.params[0]) || datasets[0];
  const picker = select(
    datasets.map((d) => [d.id, d.name]),
    chosen.id,
    {
      onchange: () => {
        location.hash = `#/audit/${picker.value}`;
      },
    },
  );
  const [head, list] = await Promise.all([
    get(`/datasets/${chosen.id}/audit/head`),
    all(`/datasets/${chosen.id}/audit`, (item) => item.body.seq),
  ]);
  const detail = h("div");
  const open = (item) => {
    replace(
      detail,
      card(
        `Record ${item.body.seq}`,
        record(item),
        verifyButton(chosen.id, item.body.seq, "Verify this record"),
      ),
    );
    detail.scrollIntoView({ block: "nearest" });
  };
  const save = action("Download the chain", async () => {
    const chain = await asWritten(`/datasets/${chosen.id}/audit`, head.length);
    const url = URL.createObjectURL(new Blob([chain], { type: "application/json" }));
    h("a", { href: url, download: `chain-${chosen.id}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  replace(
    root,
    page("Audit"),
    h("div", { class: "row filters" }, field("Dataset", picker)),
    card(
      "Head of the chain",
      h(
        "p",
        { class: "help" },
        "Keep this outside: a chain that no longer contains this hash has lost releases.",
      ),
      h(
        "dl",
        { class: "hashes" },
        [
          ["Length", num(head.length)],
          ["Head", head.hash || "no release yet"],
          ["Public key (Ed25519)", head.public_key],
        ].map(([name, value]) =>
          h("div", null, h("dt", null, name), h("dd", null, h("code", null, value))),
        ),
      ),
      h("div", { class: "actions" }, verifyButton(chosen.id, null, "Verify all", "primary"), save),
      h(
        "p",
        { class: "help" },
        "Verified by the service on what it stores; `epsilond verify` proves the downloaded chain without trusting it.",
      ),
    ),
    card(
      "Records",
      list.length
        ? table(
            "Newest first",
            ["record", "job", "algorithm", "ε", "published", "hash", ""],
            [...list].reverse().map((item) => [
              `#${item.body.seq}`,
              link(code(item.body.job), `#/jobs/${item.body.job}`),
              item.body.plan.algorithm,
              num(item.body.plan.guarantee.epsilon),
              when(item.body.published_at),
              code(item.hash, 12),
              h(
                "button",
                {
                  type: "button",
                  class: "small",
                  onclick: () => open(item),
                  "aria-label": `Show record ${item.body.seq}`,
                },
                "Show",
              ),
            ]),
            { numbers: [3] },
          )
        : empty("No release yet", "The first model that is published starts the chain."),
    ),
    detail,
  );
  const asked = list.find((item) => String(item.body.seq) === context.query.get("record"));
  if (asked) open(asked);
}
