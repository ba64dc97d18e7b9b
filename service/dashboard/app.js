// The frame: who is signed in, which page the address names, and what happens when a session ends.
import { me, resume, signIn, signOut, subscribe, whenSessionEnds } from "./client.js";
import { announce, field, form, h, loading, note, page, problem, replace } from "./ui.js";
import { auditPage } from "./audit.js";
import { datasetPage } from "./dataset.js";
import { datasetsPage } from "./datasets.js";
import { jobPage } from "./job.js";
import { jobsPage } from "./jobs.js";
import { newJobPage } from "./newjob.js";
import { operationsPage } from "./operations.js";
import { uploadPage } from "./upload.js";

const PAGES = [
  { path: /^\/datasets$/, show: datasetsPage, title: "Datasets", nav: "#/datasets" },
  { path: /^\/datasets\/(\w+)$/, show: datasetPage, title: "Dataset" },
  { path: /^\/upload$/, show: uploadPage, title: "Upload a dataset", roles: ["owner"] },
  { path: /^\/jobs$/, show: jobsPage, title: "Jobs", nav: "#/jobs" },
  {
    path: /^\/jobs\/new$/,
    show: newJobPage,
    title: "New job",
    nav: "#/jobs/new",
    roles: ["analyst", "owner"],
  },
  { path: /^\/jobs\/(\w+)$/, show: jobPage, title: "Job" },
  { path: /^\/audit(?:\/(\w+))?$/, show: auditPage, title: "Audit", nav: "#/audit" },
  {
    path: /^\/operations$/,
    show: operationsPage,
    title: "Operations",
    nav: "#/operations",
    roles: ["admin"],
  },
];
const THEMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const who = document.getElementById("who");
let leave = () => {};
let first = true;

const may = (entry) => !entry.roles || entry.roles.includes(me().role);
const address = () => (location.hash.startsWith("#/") ? location.hash.slice(1) : "/datasets");

function themeButton() {
  const now = () => document.documentElement.dataset.theme || "auto";
  const button = h("button", {
    type: "button",
    class: "quiet theme",
    onclick: () => {
      const next = { auto: "light", light: "dark", dark: "auto" }[now()];
      if (next === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = next;
      localStorage.setItem("epsilond.theme", next);
      name();
    },
  });
  const name = () => {
    const text = THEMES[now()];
    button.setAttribute("aria-label", text);
    replace(button, h("span", null, h("span", { class: "roomy" }, "Theme: "), text.split(": ")[1]));
  };
  name();
  return button;
}

function frame(path) {
  const person = me();
  replace(
    nav,
    person
      ? PAGES.filter((entry) => entry.nav && may(entry)).map((entry) =>
          h(
            "a",
            { href: entry.nav, "aria-current": entry.path.test(path) ? "page" : undefined },
            entry.title,
          ),
        )
      : [],
  );
  replace(
    who,
    person && h("span", { class: "person" }, person.name, h("small", null, person.role)),
    themeButton(),
    person &&
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          onclick: async () => {
            leave(); // nothing more is asked for this page
            try {
              await signOut();
            } finally {
              signInPage();
            }
          },
        },
        "Sign out",
      ),
  );
}

function signInPage(message) {
  leave();
  leave = () => {};
  frame("");
  document.title = "Sign in · epsilond";
  const key = h("input", {
    type: "password",
    name: "key",
    required: true,
    autocomplete: "current-password",
    spellcheck: "false",
    placeholder: "eps_…",
  });
  replace(
    main,
    h(
      "div",
      { class: "narrow" },
      page("Sign in"),
      message && note("warn", message),
      h(
        "section",
        { class: "card" },
        form(
          [
            field(
              "API key",
              key,
              "It is exchanged for a session cookie that scripts cannot read, and is not stored here.",
            ),
          ],
          "Sign in",
          async () => {
            await signIn(key.value.trim());
            show();
          },
          { busy: "Signing in…" },
        ),
      ),
    ),
  );
  key.focus();
}

async function show() {
  if (!me()) {
    signInPage();
    return;
  }
  leave();
  const [path, search] = address().split("?");
  frame(path);
  const entry = PAGES.find((candidate) => candidate.path.test(path));
  const root = h("div", { class: "page" }, loading());
  replace(main, root);
  if (!entry || !may(entry)) {
    document.title = "epsilond";
    replace(
      root,
      page(entry ? "Not for your role" : "No such page"),
      h(
        "p",
        null,
        entry
          ? `This page is for the role ${entry.roles.join(" or ")}; you are signed in as ${me().role}.`
          : "Nothing is at this address.",
      ),
    );
    return;
  }
  const undo = [];
  let here = true;
  leave = () => {
    here = false;
    undo.forEach((act) => act());
  };
  const context = {
    root,
    me: me(),
    params: entry.path.exec(path).slice(1),
    query: new URLSearchParams(search),
    here: () => here,
    onEvent: (act) => undo.push(subscribe(act)),
    every: (ms, act) => {
      const timer = setInterval(act, ms);
      undo.push(() => clearInterval(timer));
    },
    onLeave: (act) => undo.push(act),
  };
  document.title = `${entry.title} · epsilond`;
  try {
    await entry.show(context);
  } catch (error) {
    if (!here || error.status === 401) return;
    replace(root, page(entry.title), problem(error));
  }
  if (here && !first) {
    const heading = root.querySelector("h1");
    if (heading && !root.contains(document.activeElement)) heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  first = false;
}

whenSessionEnds(() => signInPage("Your session has ended. Sign in again to return to this page."));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#/")) show();
});
resume().then(show, (error) => {
  frame("");
  replace(main, problem(error));
  announce(error.message);
});
