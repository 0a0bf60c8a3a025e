// One image on the page: its picture, what is seen in it, and where to say what it is.

import { percent, quoted } from "./words.js";

// One in twenty images of known classes is as strange.
const LIKELY_NEW = 0.95;
let cardsMade = 0;
const template = document.getElementById("card");

export class Card {
  constructor(file, actions) {
    this.file = file;
    this.number = cardsMade++;
    this.predicted = Promise.resolve(); // resolves when the prediction has arrived
    this.id = null; // of the prediction, for a late label
    this.best = null; // the most probable label
    this.state = "waiting"; // waiting, open, failed, teaching or taught
    this.element = template.content.firstElementChild.cloneNode(true);
    this.address = URL.createObjectURL(file);
    this.#fill(actions);
    this.wait();
  }

  part(name) {
    return this.element.querySelector(`[data-part=${name}]`);
  }

  get chosen() {
    return this.part("chosen").checked;
  }

  set chosen(value) {
    this.part("chosen").checked = value;
  }

  get teachable() {
    return this.state === "open" || this.state === "failed";
  }

  #fill(actions) {
    const name = this.file.name || "pasted image";
    const picture = this.element.querySelector("img");
    picture.alt = name;
    picture.addEventListener("error", () => this.element.classList.add("unreadable"));
    picture.src = this.address;
    this.part("name").textContent = name;
    this.part("name").title = name;
    this.part("choose-name").textContent = `Choose ${name}`;
    this.part("label").setAttribute("aria-label", `What is ${name}?`);
    this.part("drop").setAttribute("aria-label", `Clear ${name}`);
    this.part("predict").setAttribute("aria-label", `Predict ${name} again`);
    this.part("form").addEventListener("submit", (event) => {
      event.preventDefault();
      actions.teach(this, this.part("label").value);
    });
    this.part("right").addEventListener("click", () => actions.confirm(this));
    this.part("predict").addEventListener("click", () => actions.predict(this));
    this.part("drop").addEventListener("click", () => actions.drop(this));
    this.part("chosen").addEventListener("change", actions.chosen);
  }

  wait() {
    this.#become("waiting", "predicting …");
  }

  fail(message) {
    this.part("guesses").replaceChildren();
    this.id = null;
    this.best = null;
    this.#become("failed", message);
  }

  showPrediction({ id, labels, unknown }) {
    this.id = id;
    this.best = labels.length > 0 ? labels[0].label : null;
    const rows = labels.map(({ label, score, probability }) => bar(String(label), probability, `score ${score}`));
    const meaning = unknown === null ? "not available yet" : "share of images of known classes that were more familiar";
    if (labels.length > 0) rows.push(bar("unknown", unknown, meaning, "unknown"));
    this.part("guesses").replaceChildren(...rows);
    this.#become("open", seen(labels, unknown));
    if (this.best !== null) this.part("right").textContent = `✓ ${quoted(this.best)} is right`;
    this.part("right").hidden = this.best === null;
  }

  teaching(label) {
    this.#become("teaching", `teaching ${quoted(label)} …`);
  }

  // Teaching did not work: the card returns to its state before and shows the reason.
  reopen(message) {
    this.#become(this.id === null ? "failed" : "open", message);
    this.part("right").hidden = this.best === null;
  }

  taught(label) {
    const was = this.best === null ? "" : this.best === label ? ", as predicted" : `; the prediction was ${quoted(this.best)}`;
    this.id = null;
    this.chosen = false;
    this.part("label").value = "";
    this.#become("taught", `✓ Taught as ${quoted(label)}${was}.`);
  }

  #become(state, text) {
    this.state = state;
    this.element.dataset.state = state;
    this.element.setAttribute("aria-busy", String(state === "waiting" || state === "teaching"));
    this.part("state").textContent = text;
    this.part("form").hidden = state === "taught";
    this.part("right").hidden = true;
    this.part("predict").hidden = state !== "failed" && state !== "taught";
    this.part("chosen").disabled = state === "taught" || state === "teaching";
  }

  release() {
    URL.revokeObjectURL(this.address);
    this.element.remove();
  }
}

function seen(labels, unknown) {
  if (labels.length === 0) return "Nothing is learnt yet.";
  if (unknown === null) return "";
  return unknown >= LIKELY_NEW ? "Perhaps something new." : "";
}

function bar(name, share, title, kind = "") {
  const row = document.createElement("li");
  row.className = `guess ${kind}`;
  row.title = title;
  const label = document.createElement("bdi");
  label.textContent = name;
  const track = document.createElement("span");
  track.className = "track";
  const fill = document.createElement("span");
  fill.className = "fill";
  fill.hidden = share === null;
  fill.style.setProperty("--share", String(share ?? 0));
  track.append(fill);
  const value = document.createElement("span");
  value.className = "value";
  value.textContent = percent(share);
  row.append(label, track, value);
  return row;
}

