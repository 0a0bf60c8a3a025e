// The images on the page: added, predicted, chosen, taught, cleared.

import { predict } from "./predicting.js";
import { Card } from "./card.js";
import { knownLabels } from "./classes.js";
import { labelFor } from "./labels.js";
import { clearProblem, complain, say } from "./notices.js";
import { pause } from "./service.js";
import { refreshAfterChange } from "./status.js";
import { teach } from "./teaching.js";
import { images, quoted } from "./words.js";

const MOST_CARDS = 300;
const MOST_AGAIN = 48;
const FIRST_WAIT = 0.3;
const LONGEST_WAIT = 30;
const at = (id) => document.getElementById(id);

let cards = [];
let newestUpdate = 0;
let predictingAgain = false;

export async function addFiles(files) {
  clearProblem();
  const pictures = [...files].filter(({ type }) => type === "" || type.startsWith("image/"));
  const room = Math.max(0, MOST_CARDS - cards.length);
  const added = pictures.slice(0, room).map((file) => new Card(file, actions));
  if (pictures.length < files.length) complain(`${images(files.length - pictures.length)} left out: not an image.`);
  if (added.length < pictures.length) {
    complain(`The page holds ${MOST_CARDS} images at once; ${pictures.length - added.length} were left out. Clear some first.`);
  }
  if (added.length === 0) return;
  cards.push(...added);
  at("cards").append(...added.map(({ element }) => element));
  showTools();
  if (focusIsFree()) added[0].part("label").focus();
  await predictCards(added);
}

async function predictCards(some) {
  for (const card of some) card.wait();
  const predicted = predict(some);
  for (const card of some) card.predicted = predicted;
  await predicted;
  say(summary(some));
  await refreshAfterChange();
}

function summary(some) {
  const failed = some.filter(({ state }) => state === "failed");
  if (failed.length === some.length) return failed[0].part("state").textContent;
  if (some.length === 1) {
    const shown = some[0].element.querySelector(".guess .value");
    return shown ? `Predicted: ${quoted(some[0].best)}, ${shown.textContent}.` : "Nothing is learnt yet: say what it is.";
  }
  return `${images(some.length - failed.length)} predicted${failed.length > 0 ? `, ${failed.length} not` : ""}.`;
}

// On a touch screen a focused field would bring up the keyboard uninvited.
function focusIsFree() {
  const busy = ![null, document.body, at("choose")].includes(document.activeElement);
  return !busy && !matchMedia("(pointer: coarse)").matches;
}

async function teachCards(some, typed) {
  const label = labelFor(typed, knownLabels());
  const ready = some.filter(({ state }) => state !== "taught" && state !== "teaching");
  if (label === "") return say("Type a label first.");
  if (ready.length === 0) return say("Choose some images first.");
  clearProblem();
  return teachAs(ready, label);
}

async function teachAs(ready, label) {
  const update = teach(ready, label);
  focusNext(ready);
  const { learnt, correct, version, problem } = await update;
  showTools();
  if (problem !== null) complain(problem);
  if (learnt === 0) return;
  say(`Taught ${images(learnt)} as ${quoted(label)}${correct > 0 ? `; ${correct} had been right` : ""}.`);
  newestUpdate = Math.max(newestUpdate, version);
  const seen = refreshAfterChange();
  if (at("predict-on").checked) await predictOpenAgain();
  await seen;
}

function focusNext(ready) {
  const from = cards.indexOf(ready[ready.length - 1]);
  const turned = [...cards.slice(from + 1), ...cards.slice(0, from)];
  const next = turned.find((card) => !ready.includes(card) && !["taught", "teaching"].includes(card.state));
  (next ? next.part("label") : at("choose")).focus();
}

// What is newly learnt is published a while later. One image is predicted until its prediction includes
// the newest update; then all others are.
async function predictOpenAgain() {
  if (predictingAgain) return;
  predictingAgain = true;
  at("renewing").hidden = false;
  try {
    for (let wait = FIRST_WAIT; wait < LONGEST_WAIT; wait *= 2) {
      await pause(wait);
      const open = cards.filter(({ state }) => state === "open").slice(0, MOST_AGAIN);
      const aim = newestUpdate;
      const version = await predict(open.slice(0, 1));
      if (version === null) return;
      if (version < aim) continue;
      await predict(open.slice(1));
      if (aim === newestUpdate) return;
      wait = FIRST_WAIT;
    }
  } finally {
    predictingAgain = false;
    at("renewing").hidden = true;
  }
}

function drop(some) {
  const gone = new Set(some);
  const from = cards.findIndex((card) => gone.has(card));
  for (const card of some) card.release();
  cards = cards.filter((card) => !gone.has(card));
  showTools();
  const next = cards[Math.min(from, cards.length - 1)];
  (next?.part("drop") ?? at("choose")).focus();
}

function showTools() {
  const choosable = cards.filter(({ state }) => state !== "taught");
  const chosen = choosable.filter((card) => card.chosen);
  at("tools").hidden = cards.length === 0;
  at("drop").classList.toggle("small", cards.length > 0);
  at("chosen-count").textContent = chosen.length > 0 ? `${chosen.length} chosen` : "Choose all";
  at("choose-all").checked = chosen.length > 0 && chosen.length === choosable.length;
  at("choose-all").indeterminate = chosen.length > 0 && chosen.length < choosable.length;
}

const actions = {
  teach: (card, typed) => teachCards([card], typed),
  confirm: (card) => teachAs([card], card.best),
  predict: (card) => predictCards([card]),
  drop: (card) => drop([card]),
  chosen: showTools,
};

at("choose-all").addEventListener("change", (event) => {
  for (const card of cards) card.chosen = event.target.checked && !["taught", "teaching"].includes(card.state);
  showTools();
});
at("many").addEventListener("submit", async (event) => {
  event.preventDefault();
  const typed = at("many-label").value;
  await teachCards(cards.filter((card) => card.chosen), typed);
  if (at("many-label").value === typed) at("many-label").value = "";
});
at("predict-open").addEventListener("click", () => predictCards(cards.filter(({ state }) => ["open", "failed"].includes(state))));
at("clear-taught").addEventListener("click", () => drop(cards.filter(({ state }) => state === "taught")));
at("clear-all").addEventListener("click", () => drop(cards));
