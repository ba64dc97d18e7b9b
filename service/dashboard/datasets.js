// Every dataset that the caller may see, with its gauge, its schema and who may use it.
import { get } from "./client.js";
import { gauge } from "./plots.js";
import {
  badge,
  card,
  empty,
  h,
  later,
  link,
  loading,
  num,
  page,
  plural,
  problem,
  replace,
  table,
} from "./ui.js";

// The public values of a column or label, by the fields that its kind has.
function valuesOf(column) {
  const list = column.categories ?? column.classes;
  if (list) return list.join(", ");
  if (column.positive !== undefined) return `${column.positive} or ${column.negative}`;
  if (column.scale !== undefined) return `scale ${num(column.scale)}`;
  if (column.lower === undefined) return "–";
  return `${num(column.lower)} to ${num(column.upper)}${column.log1p ? ", log scale" : ""}`;
}

export function schemaTable({ columns, label }) {
  const caption = "Declared schema: public facts, never read off the rows";
  const rows = columns.map((c) => [c.name, c.kind, valuesOf(c), c.fill ?? "–"]);
  rows.push([label.name, `label, ${label.kind}`, valuesOf(label), "–"]);
  return table(caption, ["column", "kind", "values", "if missing"], rows);
}

// The budget, or null where none is set yet.
export async function budgetOf(dataset) {
  try {
    return await get(`/datasets/${dataset}/budget`);
  } catch (error) {
    if (error.code === "budget_not_set") return null;
    throw error;
  }
}

export const seesGrants = (me, dataset) =>
  dataset.owner === me.id || ["admin", "auditor"].includes(me.role);

async function tile(context, dataset) {
  const { me } = context;
  const budgetPart = h("div", null, loading("Reading the budget…"));
  const grantsPart = h("p", { class: "help" });
  const schemaPart = h(
    "details",
    {
      ontoggle: async () => {
        if (schemaPart.childElementCount > 1 || !schemaPart.open) return;
        const whole = await get(`/datasets/${dataset.id}`);
        schemaPart.append(schemaTable(whole.schema));
      },
    },
    h("summary", null, "Schema"),
  );
  const refresh = async () => {
    const budget = dataset.state === "empty" ? null : await budgetOf(dataset.id);
    replace(
      budgetPart,
      budget
        ? [
            gauge(budget, dataset.name),
            budget.frozen && h("p", { class: "note warn" }, "Frozen: no more jobs are admitted."),
          ]
        : h(
            "p",
            { class: "help" },
            dataset.state === "empty" ? "No data yet." : "No budget yet: no job can run.",
          ),
    );
  };
  const show = async () => {
    try {
      await refresh();
      if (seesGrants(me, dataset)) {
        const grants = await get(`/datasets/${dataset.id}/grants`);
        grantsPart.textContent = grants.data.length
          ? `May use it: ${grants.data.map((g) => g.name).join(", ")}`
          : "Granted to nobody yet.";
      } else grantsPart.textContent = "Granted to you.";
    } catch (error) {
      replace(budgetPart, problem(error));
    }
  };
  const soon = later(() => context.here() && refresh().catch(() => {}), 300);
  context.onEvent((event) => {
    if (event.event === "reset" || (event.dataset === dataset.id && event.event === "budget"))
      soon();
  });
  show();
  return h(
    "article",
    { class: "card" },
    h(
      "div",
      { class: "card-head" },
      h("h2", null, link(dataset.name, `#/datasets/${dataset.id}`)),
      badge(dataset.state),
    ),
    h(
      "p",
      { class: "help" },
      dataset.rows === null ? "" : `${plural(dataset.rows, "row")} × `,
      plural(dataset.columns, "feature"),
      `, ${plural(dataset.audit_length, "release")} so far`,
    ),
    budgetPart,
    grantsPart,
    schemaPart,
  );
}

export async function datasetsPage(context) {
  const { root, me } = context;
  const upload = me.role === "owner" && link("Upload a dataset", "#/upload", "button primary");
  const list = h("div", { class: "tiles" });
  const more = h("div", { class: "actions" });
  const add = async (after) => {
    const found = await get(`/datasets?limit=24${after ? `&starting_after=${after}` : ""}`);
    list.append(...(await Promise.all(found.data.map((dataset) => tile(context, dataset)))));
    replace(
      more,
      found.has_more &&
        h("button", { type: "button", onclick: () => add(found.data.at(-1).id) }, "Show more"),
    );
    return found.data.length;
  };
  const count = await add();
  if (!context.here()) return;
  replace(
    root,
    page("Datasets", upload),
    count
      ? [list, more]
      : card(
          null,
          empty(
            "No datasets yet",
            me.role === "owner"
              ? "Upload one: declare its public schema, choose the file, fix its budget."
              : me.role === "analyst"
                ? "When an owner grants you a dataset, it appears here."
                : "Owners have not uploaded any.",
            upload && upload.cloneNode(true),
          ),
        ),
  );
}
