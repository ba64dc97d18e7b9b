// Forms made from JSON schemas: whatever the API's document gains, they gain.
import { field, h, num, replace, select, words } from "./ui.js";

let known = null;
export async function openapi() {
  known ??= (await fetch("/openapi.json")).json();
  return known;
}

// The files that may be uploaded, as the API's document lists them: what they are in words, and the
// media type of every suffix.
export async function fileFormats() {
  const { paths } = await openapi();
  const { content, description } = paths["/v1/datasets/{dataset_id}/data"].put.requestBody;
  const pairs = Object.entries(content).flatMap(([media, { "x-suffixes": suffixes }]) =>
    suffixes.map((suffix) => [suffix, media]),
  );
  const media = new Map(pairs.reverse()); // of several the first
  const mediaOf = ({ name }) => media.get(name.slice(name.lastIndexOf(".")).toLowerCase());
  return { suffixes: [...media.keys()], mediaOf, words: description ?? "" };
}

const named = (document, ref) => document.components.schemas[ref.split("/").at(-1)];
export const title = (name) => words(name).replace(/^./, (first) => first.toUpperCase());
const SIGNS = [
  ["||", "‖"],
  ["^2", "²"],
  ["_1", "₁"],
  ["_2", "₂"],
  ["<w, x>", "⟨w, x⟩"],
  ["`", ""],
];
const plain = (text) =>
  SIGNS.reduce(
    (said, [from, to]) => said.replaceAll(from, to),
    (text || "").replace(/\s+/g, " "),
  ).replace(/\blambda\b/g, "λ");

// The schemas of a union that is told apart by `kind`, in the order in which the API lists them.
export const variants = (document, property) =>
  Object.fromEntries(
    property.oneOf.map(({ $ref }) => {
      const schema = named(document, $ref);
      return [schema.properties.kind.const ?? schema.properties.kind.default, schema];
    }),
  );

function limits({ minimum, exclusiveMinimum: above, maximum, exclusiveMaximum: below }) {
  const said = [
    ["at least", minimum],
    ["above", above],
    ["at most", maximum],
    ["below", below],
  ]
    .filter(([, limit]) => Math.abs(limit) < 1e9)
    .map(([word, limit]) => `${word} ${num(limit)}`)
    .join(", ");
  return said && ` ${said[0].toUpperCase()}${said.slice(1)}.`;
}

// What a text means, by its type: a number where it may be one, a list by commas or as JSON.
export function typed(text, schema) {
  const given = text.trim();
  if (given === "") return undefined;
  if (schema.type === "boolean") return given === "true";
  if (schema.type === "array" && !/^[[{]/.test(given))
    return given
      .split(",")
      .map((part) => typed(part, schema.items || {}))
      .filter((part) => part !== undefined);
  if (!["number", "integer", "string"].includes(schema.type)) {
    try {
      return JSON.parse(given);
    } catch {
      return given;
    }
  }
  return schema.type !== "string" && !Number.isNaN(Number(given)) ? Number(given) : given;
}

// The possibilities of a property but null, the first of them with what was said about all.
export function options(raw) {
  const all = (raw.anyOf || [raw]).filter((option) => option.type !== "null");
  return {
    ...all[0],
    default: raw.default,
    description: raw.description,
    words: all.flatMap(
      (option) => option.enum ?? (option.const === undefined ? [] : [option.const]),
    ),
  };
}

function control(schema, required) {
  const fallback = schema.default ?? null;
  const otherwise = fallback === null ? "chosen by the service" : `default: ${words(fallback)}`;
  if (schema.type === "boolean")
    return select([
      ["", otherwise],
      ["true", "yes"],
      ["false", "no"],
    ]);
  if (schema.enum || schema.const !== undefined)
    return select([
      ...(required ? [] : [["", otherwise]]),
      ...schema.words.map((word) => [word, words(word)]),
    ]);
  const numeric = ["number", "integer"].includes(schema.type);
  const hint =
    fallback !== null
      ? String(fallback)
      : required
        ? "needed"
        : [...schema.words, "or chosen by the service"].join(", ");
  if (!numeric && schema.type !== "string")
    return h("textarea", {
      rows: 3,
      placeholder: schema.items?.type === "array" ? "JSON, for example [[1, 0], [0, 1]]" : hint,
    });
  return h("input", {
    inputmode: numeric && !schema.words.length ? "decimal" : undefined,
    placeholder: schema.words.length ? hint.replace("or ", "or: ") : hint.replace("or ", ""),
  });
}

// One control per property of a schema; `read` gives what was filled in, `fill` puts values in.
export function schemaForm(schema, changed, only = () => true) {
  const controls = {};
  const made = Object.entries(schema.properties || {})
    .filter(([name]) => name !== "kind" && only(name))
    .map(([name, raw]) => {
      const one = options(raw);
      const input = control(one, (schema.required || []).includes(name));
      input.addEventListener("input", changed);
      controls[name] = { input, read: () => typed(input.value, one) };
      return field(
        title(name),
        input,
        `${plain(one.description)}${["number", "integer"].includes(one.type) ? limits(one) || "" : ""}`.trim(),
      );
    });
  return {
    element: made.length ? h("div", { class: "row" }, made) : null,
    read: () =>
      Object.fromEntries(
        Object.entries(controls)
          .map(([name, { read }]) => [name, read()])
          .filter(([, value]) => value !== undefined),
      ),
    fill: (values) =>
      Object.entries(controls).forEach(([name, { input }]) => {
        const value = values[name];
        input.value =
          value === undefined || value === null
            ? ""
            : typeof value === "object"
              ? JSON.stringify(value)
              : value;
      }),
  };
}

// A choice among schemas that are told apart by `kind`, with the fields of the chosen one.
export function unionForm(name, document, property, changed) {
  const schemas = variants(document, property);
  const usual = property.default?.kind;
  const kind = select(
    Object.keys(schemas).map((key) => [key, words(key)]),
    usual,
  );
  const [help, fields] = [h("p", { class: "help" }), h("div")];
  let inner;
  const draw = () => {
    help.textContent = plain(schemas[kind.value].description);
    inner = schemaForm(schemas[kind.value], changed);
    replace(fields, inner.element);
  };
  const fill = (value) => {
    const given = typeof value === "string" ? { kind: value } : (value ?? property.default ?? {});
    if (given.kind in schemas) kind.value = given.kind;
    draw();
    if (value !== undefined) inner.fill(given);
  };
  // Only these kinds can be chosen (all, where none are given), and to name none of them; what is
  // chosen already stays.
  const namesNone = (value) => schemas[value]?.title?.startsWith("Default") ?? false;
  const allow = (kinds) => {
    for (const option of kind.options)
      option.disabled = Boolean(kinds) && !kinds.includes(option.value) && !namesNone(option.value);
  };
  kind.addEventListener("change", () => {
    draw();
    changed();
  });
  draw();
  return {
    element: h("div", { class: "union" }, field(title(name), kind), help, fields),
    fill,
    allow,
    read: () => {
      const given = inner.read();
      return kind.value === usual && !Object.keys(given).length
        ? undefined
        : { kind: kind.value, ...given };
    },
  };
}

// A control for every property of a schema, unions and plain values alike.
export function wholeForm(schema, document, changed, leave) {
  const parts = Object.entries(schema.properties)
    .filter(([name]) => !leave.includes(name))
    .map(([name, property]) => {
      if (property.discriminator) return [name, unionForm(name, document, property, changed)];
      const one = schemaForm(schema, changed, (key) => key === name);
      return [
        name,
        {
          element: one.element,
          read: () => one.read()[name],
          fill: (value) => one.fill({ [name]: value }),
        },
      ];
    });
  return {
    elements: parts.map(([, part]) => part.element),
    read: () => Object.fromEntries(parts.map(([name, part]) => [name, part.read()])),
    fill: (values) => parts.forEach(([name, part]) => part.fill(values[name])),
    part: Object.fromEntries(parts),
  };
}
