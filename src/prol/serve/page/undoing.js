// Undoing the last update, by a button or by Ctrl+Z outside of a field that somebody is writing in.

import { complain, say } from "./notices.js";
import { newKey, request } from "./service.js";
import { refreshAfterChange } from "./status.js";
import { images } from "./words.js";

const at = (id) => document.getElementById(id);

let version = 0; // of the last status
let last = { version: 0, cards: [] }; // the last chunk that this page has taught
let working = false;
let written = null; // the field that was written in since it has the focus
let whenUndone = () => {};

// `handler` receives the cards whose update was undone; none if it was not taught on this page.
export function onUndone(handler) {
  whenUndone = handler;
}

export function noteChunk(learntAs, cards) {
  last = { version: learntAs, cards };
  version = Math.max(version, learntAs);
}

async function undo() {
  if (working) return;
  working = true;
  show(0);
  const own = last.version === version ? last.cards : [];
  try {
    const options = { method: "POST", headers: { "Idempotency-Key": newKey() } };
    const { undone } = await request("undo", options);
    say(`The last update is undone: ${images(undone)}.`);
    last = { version: 0, cards: [] };
    whenUndone(own.length === undone ? own : []);
  } catch (error) {
    if (error.status === 409) say(error.message);
    else complain(error.message);
  } finally {
    working = false;
    await refreshAfterChange();
  }
}

function show(count) {
  at("lesson").hidden = count === 0;
  at("lesson-size").textContent = images(count);
}

const isField = (element) => element.matches("input:not([type=checkbox]), textarea, select");

document.addEventListener("status", ({ detail: status }) => {
  version = status.version;
  if (!working) show(status.undo_images);
});
document.addEventListener("focusin", () => (written = null));
document.addEventListener("input", ({ target }) => (written = target));
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey)) return;
  if (event.shiftKey || event.altKey || event.repeat || document.querySelector("dialog[open]")) return;
  if (isField(event.target) && (event.target === written || event.target.value !== "")) return;
  event.preventDefault();
  undo();
});
at("undo").addEventListener("click", undo);
