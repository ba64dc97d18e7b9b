// What the owner of a dataset may do: finish it, top up, grant, freeze.
import { post, put } from "./client.js";
import { budgetFields, fileField, sendData } from "./upload.js";
import { card, empty, field, form, h, num, replace, select } from "./ui.js";

// The next step of a dataset that has no data or no budget yet.
export async function setUpCard(dataset, refresh) {
  if (dataset.state === "empty") return uploadCard(dataset, refresh);
  const budget = budgetFields();
  const send = async () => {
    await put(`/datasets/${dataset.id}/budget`, budget.read());
    await refresh();
  };
  return card("Set its budget", form([budget.fields], "Fix the budget for ever", send));
}

async function uploadCard(dataset, refresh) {
  const file = await fileField("It must match the schema below.");
  const send = async () => {
    Object.assign(dataset, await sendData(dataset.id, file.input.files[0]));
    await refresh();
  };
  const busy = "Uploading and encoding…";
  return card("Upload its data", form([file.element], "Upload", send, { busy }));
}

// Forms that are drawn again only when what they are about has changed: what is being typed stays.
export function ownerControls(id, part, refresh) {
  let drawn = "";
  const done = async (text) => {
    drawn = "";
    await refresh();
    return text;
  };
  const draw = (budget, analysts) => {
    const state = `${budget.frozen} ${budget.epsilon_cap} ${analysts.length}`;
    if (drawn === state) return;
    drawn = state;
    replace(
      part,
      h("h2", { class: "section" }, "For the owner"),
      h(
        "div",
        { class: "tiles three" },
        topUpCard(id, budget, done),
        grantCard(id, analysts, done),
        freezeCard(id, budget, done),
      ),
    );
  };
  return { draw };
}

function topUpCard(id, budget, done) {
  if (budget.epsilon_cap >= budget.epsilon) {
    const text = "The cap is the ceiling, which was fixed for ever.";
    return card("Top up", empty("At the ceiling", text));
  }
  const cap = h("input", { inputmode: "decimal", required: true });
  const reason = h("input", { required: true, maxlength: 200 });
  const range = `Above ${num(budget.epsilon_cap)}, at most ${num(budget.epsilon)}.`;
  const send = async () => {
    const asked = { epsilon_cap: Number(cap.value), reason: reason.value };
    await post(`/datasets/${id}/budget/top-ups`, asked);
    return done();
  };
  const fields = [
    field("New cap ε", cap, range),
    field("Reason", reason, "It stays in the ledger."),
  ];
  return card("Top up", form(fields, "Top up", send));
}

function grantCard(id, analysts, done) {
  if (!analysts.length) return card("Grant", empty("No analysts", "An administrator makes them."));
  const who = select(
    analysts.map((p) => [p.id, p.name]),
    undefined,
    { required: true },
  );
  const share = h("input", { inputmode: "decimal", placeholder: "no bound" });
  const send = async () => {
    const cap = share.value.trim() === "" ? null : Number(share.value);
    await put(`/datasets/${id}/grants/${who.value}`, { epsilon_cap: cap });
    return done(`Granted to ${who.selectedOptions[0].textContent}.`);
  };
  const fields = [
    field("Analyst", who),
    field("Share ε", share, "The most they may commit. Empty: no bound."),
  ];
  return card("Grant", form(fields, "Grant", send));
}

function freezeCard(id, budget, done) {
  const verb = budget.frozen ? "Unfreeze" : "Freeze";
  const reason = h("input", { required: true, maxlength: 200 });
  const effect = budget.frozen
    ? "Jobs are admitted again."
    : "No more jobs are admitted; those admitted run on.";
  const send = async () => {
    await post(`/datasets/${id}/budget/${verb.toLowerCase()}`, { reason: reason.value });
    return done();
  };
  const options = { class: budget.frozen ? "primary" : "danger" };
  return card(verb, form([field("Reason", reason, effect)], verb, send, options));
}
