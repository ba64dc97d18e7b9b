// Upload by form: the schema is filled in here. Of the file only the names of its columns are read.
import { api, post, put } from "./client.js";
import { fileFormats, openapi, options, typed, variants } from "./schema.js";
import { card, field, form, h, page, replace, select, words } from "./ui.js";

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
  for (const [index, character] of [...text.replace(/^\ufeff/, "")].entries()) {
    if (character === '"') quoted = !quoted;
    else if (character === "," && !quoted) {
      names.push(name.trim());
      name = "";
    } else if ((character === "\n" || character === "\r") && !quoted) {
      if (index) break;
    } else name += character;
  }
  return [...names, name.trim()].filter(Boolean);
}

const list = (text) =>
  String(text)
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);

// One public fact of a column: a box to tick, or a text by its type.
function cell(name, key, schema) {
  const text = FIELDS[key] || words(key);
  const label = `${text} of ${name}`;
  if (schema.type === "boolean") {
    const input = h("input", { "aria-label": label, type: "checkbox" });
    const element = h("label", { class: "check" }, input, text);
    return { key, element, read: () => input.checked || undefined };
  }
  const input = h("input", {
    "aria-label": label,
    placeholder: text,
    class: schema.type === "array" ? "wide" : "small",
    inputmode: schema.type === "number" ? "decimal" : undefined,
  });
  return { key, element: input, read: () => typed(input.value, schema) };
}

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
    const { name: _, kind: __, ...properties } = schemas[kind.value].properties;
    const made = Object.entries(properties).map(([key, raw]) => cell(name, key, options(raw)));
    reads = made.map(({ key, read }) => [key, read]);
    replace(
      cells,
      made.map(({ element }) => element),
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

// A field for a file of a format that the service reads.
export async function fileField(help) {
  const { suffixes, words: said } = await fileFormats();
  const input = h("input", { type: "file", accept: suffixes.join(","), required: true });
  return { input, element: field("File", input, `${said} ${help}`.trim()) };
}

export async function sendData(dataset, file) {
  const { mediaOf } = await fileFormats();
  const headers = { "Content-Type": mediaOf(file) ?? file.type };
  return api("PUT", `/datasets/${dataset}/data`, file, { headers });
}

const ACCOUNT_KINDS = [
  ["", "Rényi divergence (pure ε if δ is 0): drawn batches, Laplace noise, choices"],
  ["gaussian", "Gaussian: 7 % less noise for Gaussian noise over whole or disjoint rows"],
];

export function budgetFields() {
  const epsilon = h("input", { name: "epsilon", inputmode: "decimal", required: true, value: "1" });
  const delta = h("input", { name: "delta", inputmode: "decimal", required: true, value: "1e-6" });
  const cap = h("input", { name: "cap", inputmode: "decimal", placeholder: "the ceiling" });
  const kind = select(ACCOUNT_KINDS, "");
  return {
    fields: h(
      "div",
      { class: "row" },
      field("Ceiling ε", epsilon, "For all jobs together, for ever. It cannot be changed."),
      field("δ", delta, "Far below 1 / rows; 0 opens a pure account."),
      field("Operate up to ε", cap, "A cap below the ceiling, to be topped up later."),
      field("Counts", kind, "For ever. Gaussian gives no credit for batches drawn at random."),
    ),
    read: () => ({
      epsilon: Number(epsilon.value),
      delta: Number(delta.value),
      epsilon_cap: cap.value === "" ? undefined : Number(cap.value),
      kind: kind.value || undefined,
    }),
  };
}

export async function uploadPage(context) {
  const file = await fileField("At most 20 GiB.");
  const name = h("input", { required: true, maxlength: 200 });
  const names = h("input", { placeholder: "age, ward, returned" });
  const schema = schemaEditor(await openapi());
  const budget = budgetFields();
  file.input.addEventListener("change", async () => {
    const chosen = file.input.files[0];
    if (!chosen) return;
    if (!name.value) name.value = chosen.name.replace(/\.\w+$/, "");
    const columns = await columnsOf(chosen);
    if (!columns) return;
    names.value = columns.join(", ");
    schema.show(columns);
  });
  names.addEventListener("change", () => schema.show(list(names.value)));

  let declared = null; // so that a file that was refused can be sent again
  const send = async () => {
    const request = { name: name.value, schema: schema.read() };
    const text = JSON.stringify(request);
    if (declared && declared.text !== text) {
      await api("DELETE", `/datasets/${declared.id}`); // still empty, and its name is needed again
      declared = null;
    }
    declared ??= { text, id: (await post("/datasets", request)).id };
    await sendData(declared.id, file.input.files[0]);
    await put(`/datasets/${declared.id}/budget`, budget.read());
    location.hash = `#/datasets/${declared.id}`;
  };
  const cards = [
    fileCard(file, name, names),
    publicFactsCard(schema),
    card("Budget", budget.fields),
  ];
  const busy = "Uploading and encoding…";
  replace(context.root, page("Upload a dataset"), form(cards, "Upload", send, { busy }));
}

// The names in the first line of a file that is text, or null.
async function columnsOf(file) {
  const { mediaOf } = await fileFormats();
  if (!mediaOf(file)?.startsWith("text/")) return null;
  return header(await file.slice(0, 262144).text());
}

// A table with a row for each column, of which one is the label.
function schemaEditor(document_) {
  const { columns, label } = document_.components.schemas.Schema.properties;
  const held = holdoutField(document_);
  const kinds = { column: variants(document_, columns.items), label: variants(document_, label) };
  const body = h("tbody");
  const heads = ["column", "label", "kind", "values"].map((text) =>
    h("th", { scope: "col" }, text),
  );
  const element = h(
    "div",
    { class: "scroll schema", tabindex: "0", role: "region", "aria-label": "Schema", hidden: true },
    h("table", null, h("caption", null, "Schema"), h("thead", null, h("tr", null, heads)), body),
  );
  const show = (names, chosen = names.at(-1)) => {
    element.hidden = names.length === 0;
    const row = (name) => {
      const isLabel = name === chosen;
      const schemas = isLabel ? kinds.label : kinds.column;
      return columnRow(name, schemas, isLabel, () => show(names, name));
    };
    replace(body, names.map(row));
  };
  const read = () => {
    const rows = [...body.children];
    return {
      columns: rows.filter((row) => !row.isLabel).map((row) => row.read()),
      label: rows.find((row) => row.isLabel)?.read(),
      ...held.read(),
    };
  };
  return { element, held: held.element, show, read };
}

// The share of the rows that is held out, unless it is left to the service.
function holdoutField(document_) {
  const { holdout } = document_.components.schemas.DeclaredSchema.properties;
  const input = h("input", { inputmode: "decimal", placeholder: String(holdout.default) });
  const help =
    "Of the rows: no fit reads them, and models are evaluated on them. Which they are depends on " +
    "nothing that they say. 0 holds out none.";
  return {
    element: field("Share held out", input, help),
    read: () => ({ holdout: typed(input.value, holdout) }),
  };
}

function fileCard(file, name, names) {
  const help = "Filled in from the file's header. Nothing else of the file is looked at here.";
  return card(
    "The file",
    h("div", { class: "row" }, file.element, field("Name", name)),
    field("Columns", names, help),
  );
}

function publicFactsCard(schema) {
  const help =
    "Bounds and categories must be general knowledge. They are never inferred from the data: " +
    "a bound read off the rows would be a release without noise.";
  const row = h("div", { class: "row" }, schema.held);
  return card("Public facts", h("p", { class: "help" }, help), schema.element, row);
}
