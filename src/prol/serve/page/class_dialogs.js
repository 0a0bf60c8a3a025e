// Renaming, merging and removing a class, each in a dialog that says what happens.

import { isNumber, labelFor, pathOf } from "./labels.js";
import { say } from "./notices.js";
import { request, sendJson } from "./service.js";
import { images, quoted } from "./words.js";

const at = (id) => document.getElementById(id);

let label = null;
let known = [];
let working = false;

const changed = () => document.dispatchEvent(new Event("classes-changed"));

export function openRenaming(chosen, labels) {
  label = chosen;
  known = labels;
  at("rename-title").textContent = `Rename ${quoted(label)}`;
  at("new-name").value = String(label);
  offerMerge(null);
  at("rename-error").textContent = "";
  at("rename-dialog").showModal();
  at("new-name").select();
}

export function openRemoving(chosen, count) {
  label = chosen;
  at("remove-title").textContent = `Remove ${quoted(label)}?`;
  const learnt = count === null ? "its images" : `its ${images(count)}`;
  at("remove-note").textContent =
    `What was learnt from ${learnt} is erased. This cannot be undone; only teaching it again brings it back. ` +
    "A report of what was erased and what remains follows.";
  at("remove-report").hidden = true;
  at("remove-yes").hidden = false;
  at("remove-close").textContent = "Cancel";
  at("remove-error").textContent = "";
  at("remove-dialog").showModal();
  at("remove-close").focus();
}

// Runs one change at a time; errors are shown in the dialog itself.
async function attempt(errorPlace, change) {
  if (working) return;
  working = true;
  at(errorPlace).textContent = "";
  showWork(true);
  try {
    await change();
    changed();
  } catch (error) {
    at(errorPlace).textContent = error.message;
  } finally {
    working = false;
    showWork(false);
  }
}

// Removing a class takes seconds where files must be rewritten.
function showWork(busy) {
  for (const place of document.querySelectorAll("dialog .working")) place.hidden = !busy;
  for (const id of ["remove-yes", "rename-yes", "merge"]) at(id).disabled = busy;
}

function newLabel() {
  const text = at("new-name").value.trim();
  return isNumber(label) ? labelFor(text, [label]) : text;
}

function offerMerge(into) {
  at("merge").hidden = into === null;
  at("merge").textContent = into === null ? "" : `Merge into ${quoted(into)}`;
}

async function rename() {
  const wanted = newLabel();
  if (wanted === "" || wanted === label) throw new Error("Give it another name.");
  try {
    await sendJson("PATCH", pathOf(label), { label: wanted });
  } catch (error) {
    if (error.status === 409) offerMerge(wanted);
    throw error;
  }
  at("rename-dialog").close();
  say(`${quoted(label)} is now ${quoted(wanted)}.`);
}

async function merge() {
  const into = newLabel();
  const response = await sendJson("POST", pathOf(label, "/merge"), { into });
  at("rename-dialog").close();
  at("remove-dialog").showModal();
  report(`${quoted(label)} is merged into ${quoted(into)}`, `Exactly as if all had been taught as ${quoted(into)}.`, response);
}

async function remove() {
  const response = await request(pathOf(label), { method: "DELETE" }, { again: false });
  report(`${quoted(label)} is removed`, "Exactly as if it had never been taught.", response);
}

function report(title, ifExact, { erased, remains, exact }) {
  at("remove-title").textContent = title;
  at("remove-note").textContent = "";
  fill("erased", erased);
  fill("remains", remains);
  at("exact").textContent = exact ? ifExact : "Traces of it stay in what classes share, as listed above.";
  at("remove-report").hidden = false;
  at("remove-error").textContent = "";
  at("remove-yes").hidden = true;
  at("remove-close").textContent = "Close";
  at("remove-close").focus();
  say(`${title}.`);
}

function fill(place, sentences) {
  const items = (sentences.length > 0 ? sentences : ["nothing"]).map((sentence) => {
    const item = document.createElement("li");
    item.textContent = sentence;
    return item;
  });
  at(place).replaceChildren(...items);
}

function onSubmit(form, errorPlace, change) {
  at(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(errorPlace, change);
  });
}

onSubmit("rename-form", "rename-error", rename);
onSubmit("remove-form", "remove-error", remove);
at("new-name").addEventListener("input", () => offerMerge(known.find((one) => one !== label && one === newLabel()) ?? null));
at("merge").addEventListener("click", () => attempt("rename-error", merge));
