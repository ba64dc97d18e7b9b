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

const hashes = (pairs) =>
  h(
    "dl",
    { class: "hashes" },
    pairs.map(([name, value]) =>
      h("div", null, h("dt", null, name), h("dd", null, h("code", null, value))),
    ),
  );

export function record(item) {
  const { body } = item;
  const text = JSON.stringify(item, null, 2);
  const label = "Record as JSON";
  return h(
    "div",
    null,
    facts([
      ["Record", `#${body.seq}`],
      ["Job", link(code(body.job), `#/jobs/${body.job}`)],
      ["Published", when(body.published_at)],
      ["Charged", `${num(body.charge.units)} units`, `ledger entry ${body.charge.entry}`],
    ]),
    hashes([
      ["Hash", item.hash],
      ["Previous", body.previous],
      ["Plan", body.plan_digest],
      ["Model", body.model_digest],
      ["Data commitment", body.data_commitment],
      ["Signature (Ed25519)", item.signature],
    ]),
    h(
      "details",
      null,
      h("summary", null, "The whole record as JSON"),
      h("pre", { tabindex: "0", role: "region", "aria-label": label }, text),
    ),
  );
}

export async function auditPage(context) {
  const { root } = context;
  const datasets = await all("/datasets");
  if (!datasets.length) {
    const text = "Every dataset has a chain of signed records, one for each release.";
    replace(root, page("Audit"), card(null, empty("No chain yet", text)));
    return;
  }
  const { id } = datasets.find((d) => d.id === context.params[0]) || datasets[0];
  const picker = datasetPicker(datasets, id);
  const [head, list] = await Promise.all([
    get(`/datasets/${id}/audit/head`),
    all(`/datasets/${id}/audit`, (item) => item.body.seq),
  ]);
  const detail = h("div");
  const open = (item) => {
    const { seq } = item.body;
    const verify = verifyButton(id, seq, "Verify this record");
    replace(detail, card(`Record ${seq}`, record(item), verify));
    detail.scrollIntoView({ block: "nearest" });
  };
  replace(
    root,
    page("Audit"),
    h("div", { class: "row filters" }, field("Dataset", picker)),
    headCard(id, head),
    recordsCard(list, open),
    detail,
  );
  const asked = list.find((item) => String(item.body.seq) === context.query.get("record"));
  if (asked) open(asked);
}

function datasetPicker(datasets, id) {
  const picker = select(
    datasets.map((d) => [d.id, d.name]),
    id,
  );
  picker.addEventListener("change", () => {
    location.hash = `#/audit/${picker.value}`;
  });
  return picker;
}

function headCard(id, head) {
  const help = (text) => h("p", { class: "help" }, text);
  const actions = [verifyButton(id, null, "Verify all", "primary"), saveButton(id, head)];
  return card(
    "Head of the chain",
    help("Keep this outside: a chain that no longer contains this hash has lost releases."),
    hashes([
      ["Length", num(head.length)],
      ["Head", head.hash || "no release yet"],
      ["Public key (Ed25519)", head.public_key],
    ]),
    h("div", { class: "actions" }, actions),
    help(
      "Verified by the service on what it stores; `epsilond verify` proves the downloaded chain " +
        "without trusting it.",
    ),
  );
}

function saveButton(id, head) {
  return action("Download the chain", async () => {
    const chain = await asWritten(`/datasets/${id}/audit`, head.length);
    const url = URL.createObjectURL(new Blob([chain], { type: "application/json" }));
    h("a", { href: url, download: `chain-${id}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
}

function recordsCard(list, open) {
  if (!list.length) {
    const text = "The first model that is published starts the chain.";
    return card("Records", empty("No release yet", text));
  }
  const showButton = (item) => {
    const label = `Show record ${item.body.seq}`;
    const props = {
      type: "button",
      class: "small",
      onclick: () => open(item),
      "aria-label": label,
    };
    return h("button", props, "Show");
  };
  const heads = ["record", "job", "algorithm", "ε", "published", "hash", ""];
  const rows = [...list]
    .reverse()
    .map((item) => [
      `#${item.body.seq}`,
      link(code(item.body.job), `#/jobs/${item.body.job}`),
      item.body.plan.algorithm,
      num(item.body.plan.guarantee.epsilon),
      when(item.body.published_at),
      code(item.hash, 12),
      showButton(item),
    ]);
  return card("Records", table("Newest first", heads, rows, { numbers: [3] }));
}
