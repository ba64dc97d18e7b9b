// The API's reference: openapi.json, as a page.

import { h, replace } from "./ui.js";

const main = document.getElementById("main");
let schemas = {};

const named = (ref) => ref.split("/").at(-1);
const anchor = (...parts) => parts.join("-").replaceAll(/[^a-zA-Z0-9]+/g, "-");

function type(schema) {
  if (!schema) return "any";
  if (schema.$ref) {
    const name = named(schema.$ref);
    return h("a", { href: `#${anchor("schema", name)}` }, name);
  }
  const options = schema.anyOf || schema.oneOf;
  if (options) return options.flatMap((one, i) => (i ? [" or ", type(one)] : [type(one)]));
  if (schema.allOf) return type(schema.allOf[0]);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return ["list of ", type(schema.items)];
  return schema.type || "any";
}

function limits(schema) {
  const bounds = {
    minimum: "≥",
    exclusiveMinimum: ">",
    maximum: "≤",
    exclusiveMaximum: "<",
    minLength: "length ≥",
    maxLength: "length ≤",
    pattern: "matches",
  };
  const said = Object.entries(bounds).flatMap(([name, words]) =>
    (schema.anyOf || [schema]).filter((one) => name in one).map((one) => `${words} ${one[name]}`),
  );
  if (schema.default !== undefined && schema.default !== null) {
    said.push(`default ${JSON.stringify(schema.default)}`);
  }
  return said.join("; ");
}

// (name, schema, whether it is required) of each row
function fields(caption, rows) {
  if (!rows.length) return null;
  const row = ([name, schema, required]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, name), required ? " *" : ""),
      h("td", {}, type(schema)),
      h("td", {}, limits(schema)),
      h("td", {}, spoken(schema.description || "")),
    );
  const heads = ["name", "type", "limits", "meaning"].map((text) => h("th", { scope: "col" }, text));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, rows.map(row)),
    ),
  );
}

const spoken = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
const paragraphs = (text) => (text || "").split("\n\n").map((part) => h("p", {}, spoken(part)));
const json = (value) => h("pre", { tabindex: "0" }, JSON.stringify(value, null, 2));

function curl(method, path, example) {
  const words = ["curl", `-X ${method.toUpperCase()}`, '-H "Authorization: Bearer $EPSILOND_KEY"'];
  if (example) words.push('-H "Content-Type: application/json"', `-d '${JSON.stringify(example)}'`);
  return h("pre", { tabindex: "0" }, [...words, `${location.origin}${path}`].join(" \\\n  "));
}

function body(operation) {
  const [media, content] = Object.entries(operation.requestBody.content)[0];
  const schema = content.schema.anyOf ? content.schema.anyOf[0] : content.schema;
  const name = schema.$ref && named(schema.$ref);
  const example = name && schemas[name].examples?.[0];
  const types = Object.keys(operation.requestBody.content).join(", ");
  const parts = [h("p", {}, "Body: ", name ? type(schema) : media, ` (${types})`)];
  if (example) parts.push(json(example));
  return { parts, example };
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const content = Object.values(response.content || {})[0];
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, status),
      h("td", {}, response.description),
      h("td", {}, content ? type(content.schema) : ""),
    );
  });
  return h("table", {}, h("caption", {}, "Answers"), h("tbody", {}, rows));
}

function operationOf(path, method, operation) {
  const given = (operation.parameters || []).map((one) => [
    `${one.name} (${one.in})`,
    { ...one.schema, description: one.description },
    one.required,
  ]);
  const sent = operation.requestBody ? body(operation) : { parts: [] };
  return h(
    "details",
    { class: "card", id: anchor(method, path) },
    h("summary", {}, h("code", {}, `${method.toUpperCase()} ${path}`), ` ${operation.summary}`),
    paragraphs(operation.description),
    fields("Parameters", given),
    sent.parts,
    curl(method, path, sent.example),
    answers(operation),
  );
}

function schemaOf([name, schema]) {
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([field, inner]) => [
    field,
    inner,
    required.has(field),
  ]);
  return h(
    "details",
    { class: "card", id: anchor("schema", name) },
    h("summary", {}, h("code", {}, name)),
    paragraphs(schema.description),
    fields("Fields; * must be given", rows),
    rows.length ? null : h("p", {}, type(schema)),
  );
}

function open() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}

async function show() {
  const document_ = await (await fetch("/openapi.json")).json();
  schemas = document_.components.schemas;
  const nouns = new Map();
  for (const [path, operations] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const noun = operation.tags?.[0] || "health";
      if (!nouns.has(noun)) nouns.set(noun, []);
      nouns.get(noun).push(operationOf(path, method, operation));
    }
  }
  replace(
    document.getElementById("nav"),
    [...nouns.keys(), "schemas"].map((noun) => h("a", { href: `#${anchor("noun", noun)}` }, noun)),
  );
  replace(
    main,
    h("h1", {}, `${document_.info.title} API, version ${document_.info.version}`),
    paragraphs(document_.info.description),
    h("p", {}, "As a document: ", h("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    [...nouns].map(([noun, operations]) => [
      h("h2", { id: anchor("noun", noun) }, noun),
      operations,
    ]),
    h("h2", { id: "noun-schemas" }, "schemas"),
    Object.entries(schemas).map(schemaOf),
  );
  open();
}

addEventListener("hashchange", open);
show();
