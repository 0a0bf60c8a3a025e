// The keyboard: digits teach a label, letters begin to write one, arrows move between images, space chooses.

import { labelsInOrder } from "./classes.js";
import { cardOf, focusBeside, meant, teachAs } from "./images.js";
import { keyOf } from "./labels.js";
import { say } from "./notices.js";

const DIGITS = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
const at = (id) => document.getElementById(id);

// A class that is named like a digit has that key; the others have what is left, in the order they were first seen.
function labelsByKey() {
  const labels = labelsInOrder();
  const found = new Map();
  for (const label of labels) if (DIGITS.includes(String(label))) found.set(String(label), label);
  const free = DIGITS.filter((digit) => !found.has(digit));
  const others = labels.filter((label) => found.get(String(label)) !== label);
  for (const [index, digit] of free.entries()) if (index < others.length) found.set(digit, others[index]);
  return new Map([...found].toSorted());
}

function teachMeant(label) {
  const cards = meant();
  if (cards.length === 0) say("There is no image to teach.");
  else teachAs(cards, label);
}

function draw() {
  const known = labelsByKey();
  at("keys").replaceChildren(...[...known].map(([digit, label]) => keyButton(digit, label)));
  at("keys").hidden = known.size === 0;
}

function keyButton(digit, label) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "key";
  button.title = "Teaches the chosen images, or the outlined one";
  button.dataset.label = keyOf(label);
  const key = document.createElement("kbd");
  key.textContent = digit;
  const name = document.createElement("bdi");
  name.textContent = String(label);
  button.append(key, name);
  button.addEventListener("click", () => teachMeant(label));
  return button;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
  const label = labelsByKey().get(event.key);
  const card = cardOf(event.target);
  if (label !== undefined && !event.repeat) {
    event.preventDefault();
    teachMeant(label);
  } else if (card !== undefined) {
    onCard(card, event);
  }
});

function onCard(card, event) {
  if (["ArrowRight", "ArrowLeft"].includes(event.key)) {
    event.preventDefault();
    focusBeside(card, event.key === "ArrowRight" ? 1 : -1);
  } else if (event.key === " ") {
    event.preventDefault();
    card.part("chosen").click();
  } else if (event.key.length === 1 && card.teachable) {
    card.part("label").focus(); // which then receives the letter
  }
}

document.addEventListener("classes-shown", draw);
