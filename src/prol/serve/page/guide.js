// The first minute: three steps, shown until there are two classes to tell apart.

import { say } from "./notices.js";

const at = (id) => document.getElementById(id);
const steps = ["guide-add", "guide-name", "guide-second"];

let known = null; // classes, as soon as they are known
let ended = false;

function show() {
  if (ended || known === null) return;
  const done = [known > 0 || at("cards").children.length > 0, known > 0, known > 1];
  steps.forEach((id, index) => {
    at(id).classList.toggle("done", done[index]);
    if (index === done.indexOf(false)) at(id).setAttribute("aria-current", "step");
    else at(id).removeAttribute("aria-current");
  });
  at("guide-title").textContent = known > 0 ? "It knows one thing. One step is left:" : "It knows nothing yet. Three steps:";
  ended = known > 1;
  if (ended && !at("guide").hidden) say("It tells them apart now. Show it something new.");
  at("guide").hidden = ended;
}

document.addEventListener("status", ({ detail: status }) => {
  known = status.classes;
  show();
});
new MutationObserver(show).observe(at("cards"), { childList: true });
