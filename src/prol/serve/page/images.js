// The images on the page: added, predicted, chosen, taught, cleared.

import { Card } from "./card.js";
import { knownLabels } from "./classes.js";
import { labelFor } from "./labels.js";
import { clearProblem, complain, say } from "./notices.js";
import { predict } from "./predicting.js";
import { expect, renew, renewFrom } from "./renewing.js";
import { refreshAfterChange } from "./status.js";
import { teach } from "./teaching.js";
import { onUndone } from "./undoing.js";
import { distinct, images, quoted } from "./words.js";
import { zoom } from "./zoom.js";

const MOST_CARDS = 300;
const at = (id) => document.getElementById(id);

let cards = [];
let current = null; // the card that had the focus last

export const isPicture = ({ type }) => type === "" || type.startsWith("image/");

// Adds files as cards. `nameOf` and `labelOf` give a file its name and what is written into its label field. Cards that
// are `held` are not sent before they are taught or somebody asks for their prediction.
export async function addFiles(files, { held = false, nameOf = (file) => file.name, labelOf = () => "" } = {}) {
  clearProblem();
  const pictures = [...files].filter(isPicture);
  const room = Math.max(0, MOST_CARDS - cards.length);
  const taken = new Set(cards.map(({ name }) => name));
  const added = pictures.slice(0, room).map((file) => {
    const name = distinct(nameOf(file) || "pasted image", taken);
    taken.add(name);
    return new Card(file, name, actions);
  });
  if (pictures.length < files.length) complain(`${images(files.length - pictures.length)} left out: not an image.`);
  if (added.length < pictures.length) {
    complain(`The page holds ${MOST_CARDS} images at once; ${pictures.length - added.length} were left out. Clear some first.`);
  }
  if (added.length === 0) return added;
  for (const card of added) card.part("label").value = labelOf(card.file);
  cards.push(...added);
  at("cards").append(...added.map(({ element }) => element));
  showTools();
  if (focusIsFree()) added[0].element.focus();
  if (held) for (const card of added) card.hold();
  else await predictCards(added);
  return added;
}

async function predictCards(some) {
  for (const card of some) card.wait();
  const predicted = predict(some);
  for (const card of some) card.predicted = predicted;
  await predicted;
  say(summary(some));
  renew();
  await refreshAfterChange();
}

function summary(some) {
  const failed = some.filter(({ state }) => state === "failed");
  if (failed.length === some.length) return failed[0]?.part("state").textContent ?? "";
  if (some.length === 1) return some[0].part("state").textContent;
  return `${images(some.length - failed.length)} predicted${failed.length > 0 ? `, ${failed.length} not` : ""}.`;
}

function focusIsFree() {
  return !document.querySelector("dialog[open]") && [null, document.body, at("choose")].includes(document.activeElement);
}

async function teachCards(some, typed) {
  const label = labelFor(typed, knownLabels());
  const ready = some.filter(({ teachable }) => teachable);
  if (label === "") return say("Type a label first.");
  if (ready.length === 0) return say("Choose some images first.");
  clearProblem();
  return teachAs(ready, label);
}

export async function teachAs(ready, label) {
  const update = teach(ready, label);
  if (!document.querySelector("dialog[open]")) focusNext(ready);
  const { learnt, correct, version, problem } = await update;
  showTools();
  if (problem !== null) complain(problem);
  if (learnt === 0) return;
  say(`Taught ${images(learnt)} as ${quoted(label)}${correct > 0 ? `; ${correct} had been right` : ""}.`);
  expect(version);
  await refreshAfterChange();
}

// The cards that a key or a button for a label means: the chosen ones, else the one that had the focus last.
export function meant() {
  const chosen = cards.filter(({ chosen, teachable }) => chosen && teachable);
  if (chosen.length > 0) return chosen;
  const one = current?.teachable && cards.includes(current) ? current : cards.find(({ teachable }) => teachable);
  return one === undefined ? [] : [one];
}

export const cardOf = (element) => cards.find((card) => card.element === element);

export function focusBeside(card, step) {
  cards[cards.indexOf(card) + step]?.element.focus();
}

function focusNext(ready) {
  const from = cards.indexOf(ready[ready.length - 1]);
  const turned = [...cards.slice(from + 1), ...cards.slice(0, from)];
  const next = turned.find((card) => !ready.includes(card) && card.teachable);
  (next ? next.element : at("choose")).focus();
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

function become(card) {
  current?.element.classList.remove("current");
  current = card;
  card.element.classList.add("current");
}

const actions = {
  teach: (card, typed) => teachCards([card], typed),
  confirm: (card) => teachAs([card], card.best),
  predict: (card) => predictCards([card]),
  zoom,
  drop: (card) => drop([card]),
  chosen: showTools,
  current: become,
};

renewFrom(() => cards);
onUndone((undone) => {
  const here = undone.filter((card) => cards.includes(card));
  for (const card of here) card.untaught();
  showTools();
  if (here.length > 0) predictCards(here);
});

at("choose-all").addEventListener("change", (event) => {
  for (const card of cards) card.chosen = event.target.checked && card.teachable;
  showTools();
});
at("many").addEventListener("submit", async (event) => {
  event.preventDefault();
  const typed = at("many-label").value;
  await teachCards(cards.filter((card) => card.chosen), typed);
  if (at("many-label").value === typed) at("many-label").value = "";
});
at("predict-open").addEventListener("click", () => {
  const some = cards.filter(({ state }) => ["open", "failed", "held"].includes(state));
  if (some.length > 0) predictCards(some);
});
at("clear-taught").addEventListener("click", () => drop(cards.filter(({ state }) => state === "taught")));
at("clear-all").addEventListener("click", () => drop(cards));
