// Upload by form: the schema is filled in here. Of the file only the names of its columns are read.
import { api, post, put } from "./client.js";
import { openapi, options, typed, variants } from "./schema.js";
import { card, field, form, h, num, page, replace, select, words } from "./ui.js";

const KINDS = {
  numeric: "number with bounds",
  unbounded: "number without bounds",
  categorical: "one of several values",
  binary: "one of two values",
};
const FIELDS = {
  lower: "lower bound",
  upper: "upper bound",
  fill: "if missing",
  categories: "categories, by comma",
  classes: "classes, by comma",
  positive: "positive value",
  negative: "negative value",
  log1p: "log scale",
};

// The header of a CSV, quotes included.
export function header(text) {
  const names = [];
  let [name, quoted] = ["", false];
  for (const [place, sign] of [...text.replace(/^\ufeff/, "")].entries()) {
    if (sign === '"') quoted = !quoted;
    else if (sign === "," && !quoted) {
      names.push(name.trim());
      name = "";
    } else if ((sign === "\n" || sign === "\r") && !quoted) {
      if (place) break;
    } else name += sign;
  }
  return [...names, name.trim()].filter(Boolean);
}

const list = (text) =>
  String(text)
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);

// One column of the file: its kind, and the public facts that a column or label of that kind has.
function columnRow(name, schemas, isLabel, relabel) {
  const kind = select(
    Object.keys(schemas).map((key) => [key, KINDS[key] || words(key)]),
    undefined,
    { "aria-label": `Kind of ${name}` },
  );
  const cells = h("td", { class: "inputs" });
  let reads = [];
  const draw = () => {
    reads = [];
    replace(
      cells,
      Object.entries(schemas[kind.value].properties)
        .filter(([key]) => !["name", "kind"].includes(key))
        .map(([key, raw]) => {
          const one = options(raw);
          const text = FIELDS[key] || words(key);
          const flag = one.type === "boolean";
          const input = h("input", {
            "aria-label": `${text} of ${name}`,
            type: flag ? "checkbox" : undefined,
            placeholder: flag ? undefined : text,
            class: one.type === "array" ? "wide" : flag ? undefined : "small",
            inputmode: one.type === "number" ? "decimal" : undefined,
          });
          reads.push([key, () => (flag ? input.checked || undefined : typed(input.value, one))]);
          return flag ? h("label", { class: "check" }, input, text) : input;
        }),
    );
  };
  kind.addEventListener("change", draw);
  draw();
  const radio = h("input", {
    type: "radio",
    name: "label",
    value: name,
    checked: isLabel,
    "aria-label": `${name} is the label`,
    onchange: relabel,
  });
  const row = h(
    "tr",
    null,
    h("th", { scope: "row" }, name),
    h("td", null, radio),
    h("td", null, kind),
    cells,
  );
  row.read = () => ({
    name,
    kind: kind.value,
    ...Object.fromEntries(reads.map(([key, read]) => [key, read()])),
  });
  row.isLabel = isLabel;
  return row;
}

export const mediaOf = (file) => (file.name.endsWith(".npz") ? "application/x-npz" : "text/csv");
export const sendData = (dataset, file) =>
  api("PUT", `/datasets/${dataset}/data`, file, { headers: { "Content-Type": mediaOf(file) } });

export function budgetFields() {
  const epsilon = h("input", { name: "epsilon", inputmode: "decimal", required: true, value: "1" });
  const delta = h("input", { name: "delta", inputmode: "decimal", required: true, value: "1e-6" });
  const cap = h("input", { name: "cap", inputmode: "decimal", placeholder: "the ceiling" });
  return {
    fields: h(
      "div",
      { class: "row" },
      field("Ceiling ε", epsilon, "For all jobs together, for ever. It cannot be changed."),
      field("δ", delta, "Far below 1 / rows; 0 opens a pure account."),
      field("Operate up to ε", cap, "A cap below the ceiling, to be topped up later."),
    ),
    read: () => ({
      epsilon: Number(epsilon.value),
      delta: Number(delta.value),
      epsilon_cap: cap.value === "" ? undefined : Number(cap.value),
    }),
  };
}

export async function uploadPage(context) {
  const document_ = await openapi();
  const declared_ = document_.components.schemas.Schema.properties;
  const kinds = [
    variants(document_, declared_.columns.items),
    variants(document_, declared_.label),
  ];
  const file = h("input", { type: "file", accept: ".csv,.npz,text/csv", required: true });
  const name = h("input", { required: true, maxlength: 200 });
  const typed = h("input", { placeholder: "age, ward, returned" });
  const body = h("tbody");
  const schema = h(
    "div",
    { class: "scroll schema", tabindex: "0", role: "region", "aria-label": "Schema", hidden: true },
    h(
      "table",
      null,
      h("caption", null, "Schema"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["column", "label", "kind", "values"].map((text) => h("th", { scope: "col" }, text)),
        ),
      ),
      body,
    ),
  );
  const columns = (names, label = names.at(-1)) => {
    schema.hidden = names.length === 0;
    replace(
      body,
      names.map((n) =>
        columnRow(n, kinds[Number(n === label)], n === label, () => columns(names, n)),
      ),
    );
  };
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (!chosen) return;
    if (!name.value) name.value = chosen.name.replace(/\.\w+$/, "");
    if (mediaOf(chosen) === "text/csv") {
      const names = header(await chosen.slice(0, 262144).text());
      typed.value = names.join(", ");
      columns(names);
    }
  });
  typed.addEventListener("change", () => columns(list(typed.value)));
  const budget = budgetFields();
  let declared = null; // so that a file that was refused can be sent again

  const send = async () => {
    const rows = [...body.children];
    const request = {
      name: name.value,
      schema: {
        columns: rows.filter((row) => !row.isLabel).map((row) => row.read()),
        label: rows.find((row) => row.isLabel)?.read(),
      },
    };
    const text = JSON.stringify(request);
    if (declared?.text !== text) declared = { text, id: (await post("/datasets", request)).id };
    await sendData(declared.id, file.files[0]);
    await put(`/datasets/${declared.id}/budget`, budget.read());
    location.hash = `#/datasets/${declared.id}`;
  };
  replace(
    context.root,
    page("Upload a dataset"),
    form(
      [
        card(
          "The file",
          h(
            "div",
            { class: "row" },
            field("File", file, `CSV with a header, or NPZ with X and y. At most ${num(20)} GiB.`),
            field("Name", name),
          ),
          field(
            "Columns",
            typed,
            "Filled in from the file's header. Nothing else of the file is looked at here.",
          ),
        ),
        card(
          "Public facts",
          h(
            "p",
            { class: "help" },
            "Bounds and categories must be general knowledge. They are never inferred from the data: ",
            "a bound read off the rows would be a release without noise.",
          ),
          schema,
        ),
        card("Budget", budget.fields),
      ],
      "Upload",
      send,
      { busy: "Uploading and encoding…" },
    ),
  );
}
