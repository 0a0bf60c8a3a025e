// The classes: a list with counts, names to choose from in every label field, and where to rename and remove them.

import { openRemoving, openRenaming } from "./class_dialogs.js";
import { isNumber, keyOf } from "./labels.js";
import { request } from "./service.js";
import { images, number, quoted } from "./words.js";

const MOST_ROWS = 200;
const FIND_FROM = 12;
const at = (id) => document.getElementById(id);
const byName = new Intl.Collator("en-GB", { numeric: true });

let classes = [];
let inOrder = []; // of when they were first seen
const rows = new Map();

export const knownLabels = () => classes.map(({ label }) => label);

export const labelsInOrder = () => inOrder;

export const countOf = (label) => classes.find((one) => one.label === label)?.count ?? null;

// Fetches the classes, shows them and returns the version they belong to.
export async function showClasses() {
  const response = await request("classes", {}, { background: true });
  classes = response.classes.toSorted((a, b) => byName.compare(String(a.label), String(b.label)));
  at("classes-count").textContent = classes.length > 0 ? number(classes.length) : "";
  at("find-class").hidden = classes.length < FIND_FROM;
  at("known").replaceChildren(...classes.map(({ label }) => new Option(String(label), String(label))));
  inOrder = response.classes.map(({ label }) => label);
  drawRows();
  document.dispatchEvent(new Event("classes-shown"));
  return response.version;
}

function drawRows() {
  const wanted = at("find-class").hidden ? "" : at("find-class").value.trim().toLowerCase();
  const found = classes.filter(({ label }) => String(label).toLowerCase().includes(wanted));
  const shown = found.slice(0, MOST_ROWS);
  at("classes-note").textContent = note(found.length, shown.length);
  place(shown.map(rowOf));
  const visible = new Set(shown.map(({ label }) => keyOf(label)));
  for (const key of rows.keys()) if (!visible.has(key)) rows.delete(key);
}

function note(found, shown) {
  if (classes.length === 0) return "Nothing is learnt yet. Drop an image and say what it is.";
  if (found === 0) return "No class of this name.";
  return found > shown ? `and ${number(found - shown)} more; find them by name.` : "";
}

// Rows stay where they are if nothing changed, so that a focused button keeps its focus.
function place(wanted) {
  const list = at("classes");
  wanted.forEach((row, index) => {
    if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
  });
  while (list.children.length > wanted.length) list.lastElementChild.remove();
}

function rowOf({ label, count }) {
  const key = keyOf(label);
  if (!rows.has(key)) rows.set(key, newRow(label));
  const row = rows.get(key);
  row.querySelector("[data-part=count]").textContent = count === null ? "" : images(count);
  return row;
}

function newRow(label) {
  const row = at("class-row").content.firstElementChild.cloneNode(true);
  const part = (name) => row.querySelector(`[data-part=${name}]`);
  part("name").textContent = String(label);
  if (isNumber(label)) part("name").title = "a whole number, not a text";
  part("rename").setAttribute("aria-label", `Rename ${quoted(label)}`);
  part("remove").setAttribute("aria-label", `Remove ${quoted(label)}`);
  part("rename").addEventListener("click", () => openRenaming(label, knownLabels()));
  part("remove").addEventListener("click", () => openRemoving(label, countOf(label)));
  return row;
}

at("find-class").addEventListener("input", drawRows);
