// Elements, numbers and the few components that every page is made of. Text is always text: nothing
// here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) =>
  fill(document.createElementNS(SVG, tag), props, children);
export const replace = (parent, ...children) =>
  parent.replaceChildren(...children.flat(4).filter(Boolean));

// --- numbers and words

export function num(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) {
    const [mantissa, power] = value.toExponential(Math.min(2, digits - 1)).split("e");
    return `${Number(mantissa)}e${Number(power)}`;
  }
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 8 });
}

export const words = (name) => String(name).replaceAll("_", " ").replaceAll("-", " ");
export const plural = (count, one, many = `${one}s`) => `${num(count)} ${count === 1 ? one : many}`;
export const percent = (part, whole) => `${num(whole ? (100 * part) / whole : 0, 3)} %`;

export function when(text) {
  if (!text) return "–";
  const date = new Date(text);
  return h(
    "time",
    { datetime: text, title: text },
    date.toLocaleString("en-GB", {
      day: "numeric",
      month: "short",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    }),
  );
}

export const code = (text, length = 16) =>
  h("code", { title: text }, text.length > length + 1 ? `${text.slice(0, length)}…` : text);

// --- components

export const page = (title, ...rest) =>
  h("div", { class: "title" }, h("h1", { tabindex: "-1" }, title), ...rest);
export const card = (title, ...children) =>
  h("section", { class: "card" }, title && h("h2", null, title), ...children);
export const empty = (title, text, ...more) =>
  h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    h("p", null, text),
    ...more,
  );
export const loading = (what = "Loading…") => h("p", { class: "loading" }, what);
export const link = (text, href, cls) => h("a", { href, class: cls }, text);
export const badge = (state) => h("span", { class: `badge ${state}` }, words(state));
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(Boolean)
      .map(([name, value, note]) =>
        h("div", null, h("dt", null, name), h("dd", null, value, note && h("small", null, note))),
      ),
  );

export function table(caption, heads, rows, options = {}) {
  const cell = (value, index) => {
    const number = (options.numbers || []).includes(index);
    return h(
      index === 0 && !options.plain ? "th" : "td",
      {
        class: number ? "number" : undefined,
        "data-head": heads[index],
        scope: index === 0 && !options.plain ? "row" : undefined,
      },
      value,
    );
  };
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { class: options.cards ? "cards" : undefined },
      h("caption", { class: options.hideCaption ? "hidden" : undefined }, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          heads.map((head, index) =>
            h(
              "th",
              {
                scope: "col",
                class: (options.numbers || []).includes(index) ? "number" : undefined,
              },
              head || h("span", { class: "hidden" }, "Actions"),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) => h("tr", null, row.map(cell))),
      ),
    ),
  );
}

export function problem(error) {
  if (!error.title) throw error; // not a refusal but a fault of ours: let it be seen
  const seen = error.errors
    .slice(0, 8)
    .map((e) =>
      h(
        "li",
        null,
        h("b", null, (e.loc || []).filter((part) => part !== "body").join(" › ")),
        ` ${e.msg || ""}`,
      ),
    );
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", null, h("strong", null, error.title), ". ", error.message),
    seen.length > 1 && h("ul", null, seen),
  );
}

export const note = (kind, ...text) => h("p", { class: `note ${kind}`, role: "status" }, ...text);
export function announce(text) {
  document.getElementById("status").textContent = text;
}

let fields = 0;
export function field(label, control, help) {
  const id = control.id || `field-${++fields}`;
  control.id = id;
  if (help) control.setAttribute("aria-describedby", `${id}-help`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    control,
    help && h("p", { class: "help", id: `${id}-help` }, help),
  );
}

export const select = (options, value, props = {}) => {
  const made = h(
    "select",
    props,
    options.map(([key, text]) => h("option", { value: key }, text)),
  );
  if (value !== undefined) made.value = value;
  return made;
};

// A form that sends, shows what was refused, and cannot be sent twice.
export function form(children, button, send, options = {}) {
  const said = h("div", { class: "said" });
  const submit = h("button", { type: "submit", class: options.class || "primary" }, button);
  const made = h(
    "form",
    { class: options.form || "stack", novalidate: options.novalidate },
    children,
    h("div", { class: "actions" }, submit, options.beside),
    said,
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    replace(said, loading(options.busy || "Sending…"));
    try {
      const answer = await send(new FormData(made));
      replace(said, answer ? note("good", answer) : null);
    } catch (error) {
      replace(said, problem(error));
    } finally {
      submit.disabled = false;
    }
  });
  return made;
}

// A button that acts, with its answer beside it.
export function action(text, act, cls = "") {
  const said = h("span", { class: "said" });
  const button = h(
    "button",
    {
      type: "button",
      class: cls,
      onclick: async () => {
        button.disabled = true;
        replace(said);
        try {
          const answer = await act();
          if (answer) replace(said, answer);
        } catch (error) {
          replace(said, problem(error));
        } finally {
          button.disabled = false;
        }
      },
    },
    text,
  );
  return h("span", { class: "action" }, button, said);
}

export function later(act, ms) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), ms);
  };
}
