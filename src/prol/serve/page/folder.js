// A folder of images: the names of its folders are labels. Either all of it is taught at once, or shown first.

import { knownLabels } from "./classes.js";
import { addFiles, isPicture } from "./images.js";
import { isNumber, labelFor } from "./labels.js";
import { complain, say } from "./notices.js";
import { BAD_INPUT, mostPerRequest } from "./predicting.js";
import { expect } from "./renewing.js";
import { request } from "./service.js";
import { refreshAfterChange } from "./status.js";
import { once } from "./teaching.js";
import { images, quoted } from "./words.js";

const MOST_FILES = 32;
const MOST_BYTES = 16 * 2 ** 20;
const MOST_ROWS = 12;
const at = (id) => document.getElementById(id);

let parts = []; // of the folder: a file, its path and its label each
let waiting = []; // those that are not taught yet
let taught = 0;
let refused = [];
let stopped = false;
let working = false;

// The label is the first folder below the chosen one; without any below it, the chosen one itself.
export function labelled(files) {
  const shown = files.filter(({ file, path }) => isPicture(file) && !path.split("/").some((name) => name.startsWith(".")));
  const deep = shown.some(({ path }) => path.split("/").length > 2);
  return shown.map(({ file, path }) => {
    const names = path.split("/");
    return { file, path, label: deep ? (names.length > 2 ? names[1] : "") : names[0] };
  });
}

// `files` have a path each that begins with the name of the chosen folder.
export function openFolder(files) {
  parts = labelled(files);
  const first = files[0]?.path.split("/")[0] ?? "";
  if (parts.length === 0) return complain(`There is no image in the folder ${quoted(first)}.`);
  waiting = interleaved(parts.filter(({ label }) => label !== ""));
  [taught, refused] = [0, []];
  const counts = new Map();
  for (const { label } of waiting) counts.set(label, (counts.get(label) ?? 0) + 1);
  at("folder-title").textContent = `${quoted(first)}: ${images(parts.length)}, ${counts.size} ${counts.size === 1 ? "label" : "labels"}`;
  const rows = [...counts].slice(0, MOST_ROWS).map(([label, count]) => row(label, images(count)));
  if (counts.size > MOST_ROWS) rows.push(row(`and ${counts.size - MOST_ROWS} more`, ""));
  at("folder-labels").replaceChildren(...rows);
  const without = parts.length - waiting.length;
  at("folder-note").textContent = without > 0 ? `${images(without)} in no folder below it: without a label, and not taught.` : "";
  at("folder-error").textContent = "";
  at("folder-teach").textContent = "Teach all";
  show();
  at("folder-dialog").showModal();
  at("folder-show").focus();
}

function row(name, amount) {
  const item = document.createElement("li");
  const label = document.createElement("bdi");
  label.textContent = name;
  const count = document.createElement("span");
  count.className = "quiet";
  count.textContent = amount;
  item.append(label, count);
  return item;
}

// One of each label after the other, so that a chunk has several of them.
function interleaved(some) {
  const seen = new Map();
  const turn = some.map(({ label }) => seen.set(label, (seen.get(label) ?? -1) + 1).get(label));
  return some.map((part, index) => [part, turn[index]]).toSorted(([, a], [, b]) => a - b).map(([part]) => part);
}

function show() {
  const done = taught + refused.length;
  at("folder-progress").hidden = !working;
  at("folder-bar").max = done + waiting.length;
  at("folder-bar").value = done;
  at("folder-done").textContent = `${done} of ${images(done + waiting.length)}`;
  for (const id of ["folder-show", "folder-teach"]) at(id).hidden = working || waiting.length === 0;
  at("folder-show").hidden ||= taught > 0;
  at("folder-close").textContent = working ? "Stop" : taught > 0 ? "Close" : "Cancel";
}

async function teachAll() {
  [working, stopped] = [true, false];
  at("folder-error").textContent = "";
  show();
  let version = 0;
  try {
    while (waiting.length > 0 && !stopped) {
      const batch = nextBatch();
      version = (await teachBatch(batch)) ?? version;
    }
  } catch (error) {
    at("folder-error").textContent = error.message;
    at("folder-teach").textContent = "Continue";
  }
  working = false;
  show();
  report();
  if (version > 0) expect(version);
  await refreshAfterChange();
}

function nextBatch() {
  const most = Math.min(MOST_FILES, mostPerRequest());
  const [number, batch] = [isNumber(meant(waiting[0])), []];
  let size = 0;
  for (const part of waiting) {
    size += part.file.size;
    const full = batch.length >= most || (batch.length > 0 && size > MOST_BYTES);
    if (full || isNumber(meant(part)) !== number) break;
    batch.push(part);
  }
  return batch;
}

const meant = ({ label }) => labelFor(label, knownLabels());

// Returns the version, or null if none of these files is an image that the service reads.
async function teachBatch(batch) {
  const form = new FormData();
  for (const { file } of batch) form.append("images", file, "image");
  const labels = batch.map(meant);
  for (const label of labels) form.append("labels", String(label));
  if (isNumber(labels[0])) form.append("integers", "true");
  const send = (key) => request("learn", { method: "POST", body: form, headers: { "Idempotency-Key": key } });
  try {
    const { version } = await once([batch.map(({ path }) => path), labels], send);
    taught += batch.length;
    settle(batch);
    return version;
  } catch (error) {
    if (!BAD_INPUT.includes(error.status)) throw error;
    if (batch.length === 1) {
      refused.push(`${batch[0].path}: ${error.message}`);
      settle(batch);
      return null;
    }
    let version = null;
    for (const part of batch) version = (await teachBatch([part])) ?? version;
    return version;
  }
}

function settle(batch) {
  waiting = waiting.filter((part) => !batch.includes(part));
  show();
}

function report() {
  if (waiting.length > 0) return;
  const left = refused.length > 0 ? ` ${images(refused.length)} left out: ${refused[0]}` : "";
  if (left !== "") complain(left.trim());
  at("folder-dialog").close();
  say(`Taught ${images(taught)}.`);
}

function showFirst() {
  at("folder-dialog").close();
  const about = new Map(parts.map((part) => [part.file, part]));
  const nameOf = (file) => about.get(file).path.split("/").slice(1).join("/");
  addFiles(parts.map(({ file }) => file), { nameOf, labelOf: (file) => about.get(file).label });
}

// Files below an entry of a drop, with their paths.
export async function filesBelow(entry, above = "") {
  const path = above + entry.name;
  if (entry.isFile) return [{ file: await new Promise((found, failed) => entry.file(found, failed)), path }];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((read, failed) => reader.readEntries(read, failed)); // at most 100 at a time
    if (some.length === 0) return found;
    for (const below of some) found.push(...(await filesBelow(below, `${path}/`)));
  }
}

at("choose-folder").hidden = !("webkitdirectory" in at("folder-input"));
at("choose-folder").addEventListener("click", () => at("folder-input").click());
at("folder-input").addEventListener("change", ({ target }) => {
  const files = [...target.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
  target.value = "";
  if (files.length > 0) openFolder(files);
});
at("folder-form").addEventListener("submit", (event) => {
  event.preventDefault();
  teachAll();
});
at("folder-show").addEventListener("click", showFirst);
at("folder-close").addEventListener("click", () => (working ? (stopped = true) : at("folder-dialog").close()));
at("folder-dialog").addEventListener("cancel", (event) => {
  if (!working) return;
  event.preventDefault();
  stopped = true;
});
