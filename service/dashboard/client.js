// Requests by the session's cookie, problems as errors, and one event stream for all tabs.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The service answered ${status}.`);
    this.status = status;
    this.title = body.title || "The request failed";
    this.code = body.code || "";
    this.errors = body.errors || [];
  }
}

const FLAG = "epsilond.signed-in"; // spares a request that would be refused; the cookie decides
let session = null;
let onEnd = () => {};
const seen = new Map(); // address -> {tag, body}

export const me = () => session && session.principal;
export const whenSessionEnds = (handler) => {
  onEnd = handler;
};

export async function api(method, path, body, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (method !== "GET" && session) headers["X-CSRF-Token"] = session.csrf;
  const known = method === "GET" ? seen.get(path) : undefined;
  if (known) headers["If-None-Match"] = known.tag;
  let payload;
  if (body instanceof Blob) payload = body;
  else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    payload = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`/v1${path}`, {
      method,
      headers,
      body: payload,
      signal: options.signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, {
      title: "The service does not answer",
      detail: "Check the connection and try again.",
    });
  }
  if (answer.status === 304 && known) return known.body;
  const isJson = (answer.headers.get("Content-Type") || "").includes("json");
  const content = isJson ? await answer.json() : null;
  if (!answer.ok) {
    const problem = new Problem(answer.status, content || {});
    if (answer.status === 401 && session) ended();
    throw problem;
  }
  const tag = answer.headers.get("ETag");
  if (method === "GET" && tag) {
    if (seen.size > 300) seen.clear();
    seen.set(path, { tag, body: content });
  }
  return content;
}

export const get = (path, options) => api("GET", path, undefined, options);
export const post = (path, body, options) => api("POST", path, body, options);
export const put = (path, body, options) => api("PUT", path, body, options);

export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value != null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// All pages of a list, up to `most` items.
export async function all(path, cursor = (item) => item.id, most = 2000) {
  const items = [];
  const joiner = path.includes("?") ? "&" : "?";
  for (let after = ""; ; ) {
    const page = await get(
      `${path}${joiner}limit=${Math.min(100, most)}${after && `&starting_after=${after}`}`,
    );
    items.push(...page.data);
    if (!page.has_more || items.length >= most) return items;
    after = encodeURIComponent(cursor(page.data.at(-1)));
  }
}

// A numbered list as the service wrote it: reading it here and writing it again would change how
// numbers are spelled (2.0 would become 2), and with that the hashes.
export async function asWritten(path, last) {
  const parts = [];
  for (let after = 0; after < last; after += 100) {
    const text = await (
      await fetch(`/v1${path}?limit=100&starting_after=${after}`, { cache: "no-store" })
    ).text();
    parts.push(text.slice(text.indexOf("[") + 1, text.lastIndexOf("]")));
  }
  return `[${parts.join(",")}]`;
}

// --- the session

function started(value) {
  session = value;
  localStorage.setItem(FLAG, "1");
  listen();
}

function ended() {
  session = null;
  seen.clear();
  localStorage.removeItem(FLAG);
  silence();
  onEnd();
}

export async function resume() {
  if (!localStorage.getItem(FLAG)) return false;
  try {
    started(await get("/session"));
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    localStorage.removeItem(FLAG);
    return false;
  }
  return true;
}

export async function signIn(key) {
  started(await post("/session", { key }));
}

export async function signOut() {
  silence();
  await api("DELETE", "/session");
  session = null;
  seen.clear();
  localStorage.removeItem(FLAG);
}

// --- events: the tab that holds the lock keeps the stream and tells the others

const channel = new BroadcastChannel("epsilond.events");
const listeners = new Set();
let stop = null;

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function deliver(event) {
  for (const listener of [...listeners]) listener(event);
}

channel.onmessage = ({ data }) => {
  if (session && data.for === session.principal.id) deliver(data.event);
};

function listen() {
  silence();
  const controller = new AbortController();
  stop = () => controller.abort();
  const { signal } = controller;
  const lead = (after) => new Promise((resolve) => stream(signal, resolve, after));
  if (navigator.locks)
    lineUp(`epsilond.events.${session.principal.id}`, signal, lead).catch(() => {});
  else lead(null); // not a secure context: a stream of its own
}

// Lead at once if no other tab does, else when the one that does has gone.
async function lineUp(name, signal, lead) {
  const taken = await navigator.locks.request(name, { ifAvailable: true }, (lock) =>
    lock ? lead(null) : true,
  );
  if (taken) await navigator.locks.request(name, { signal }, () => lead("another tab"));
}

function silence() {
  if (stop) stop();
  stop = null;
}

function stream(signal, finish, after) {
  if (signal.aborted) {
    finish();
    return;
  }
  const who = session.principal.id;
  const say = (event) => {
    deliver(event);
    channel.postMessage({ for: who, event });
  };
  const source = new EventSource("/v1/events");
  let timer = 0;
  const again = () => {
    if (signal.aborted) return;
    say({ event: "reset" });
    listen();
  };
  source.onopen = () => {
    document.documentElement.dataset.live = "yes";
    if (after) say({ event: "reset" }); // something may have happened between the two streams
  };
  for (const type of ["job", "progress", "budget"]) {
    source.addEventListener(type, ({ data }) => say({ type, ...JSON.parse(data), event: type }));
  }
  source.addEventListener("reset", () => say({ event: "reset" }));
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED || signal.aborted) return; // it reconnects by itself
    timer = setTimeout(() => {
      finish();
      get("/session").then(again, () => {});
    }, 2000);
  };
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    source.close();
    finish();
  });
}
