// One image on the page: its picture, what is seen in it, and where to say what it is.

import { bars, meaning, noneOfThese, verdict } from "./verdict.js";
import { quoted } from "./words.js";

let cardsMade = 0;
const template = document.getElementById("card");

export class Card {
  constructor(file, name, actions) {
    this.file = file;
    this.name = name;
    this.number = cardsMade++;
    this.predicted = Promise.resolve(); // resolves when the prediction has arrived
    this.id = null; // of the prediction, for a late label
    this.best = null; // the most probable label
    this.version = null; // that predicted it
    this.state = "waiting"; // held (not sent yet), waiting, open, failed, teaching or taught
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
    return this.state !== "taught" && this.state !== "teaching";
  }

  #fill(actions) {
    const { name } = this;
    const picture = this.element.querySelector("img");
    picture.alt = name;
    picture.addEventListener("error", () => this.element.classList.add("unreadable"));
    picture.src = this.address;
    this.element.setAttribute("aria-label", name);
    this.part("name").textContent = name;
    this.part("name").title = name;
    this.part("choose-name").textContent = `Choose ${name}`;
    this.part("label").setAttribute("aria-label", `What is ${name}?`);
    this.part("zoom").setAttribute("aria-label", `Enlarge ${name}`);
    this.part("drop").setAttribute("aria-label", `Clear ${name}`);
    this.part("form").addEventListener("submit", (event) => {
      event.preventDefault();
      actions.teach(this, this.part("label").value);
    });
    this.part("right").addEventListener("click", () => actions.confirm(this));
    this.part("predict").addEventListener("click", () => actions.predict(this));
    this.part("zoom").addEventListener("click", () => actions.zoom(this));
    this.part("drop").addEventListener("click", () => actions.drop(this));
    this.part("chosen").addEventListener("change", actions.chosen);
    this.element.addEventListener("focusin", () => actions.current(this));
  }

  wait() {
    this.#become("waiting", "predicting …");
  }

  hold() {
    this.#become("held", "In this browser only, until you teach it or have it predicted.");
  }

  fail(message) {
    this.#forget();
    this.#become("failed", message);
  }

  showPrediction(prediction, version) {
    this.id = prediction.id;
    this.version = version;
    this.best = prediction.labels.length > 0 ? prediction.labels[0].label : null;
    this.part("guesses").replaceChildren(...bars(prediction));
    this.element.classList.toggle("none", noneOfThese(prediction));
    this.part("state").title = meaning(prediction);
    this.#become("open", verdict(prediction));
    if (this.best !== null) this.part("right").textContent = `✓ ${quoted(this.best)} is right`;
  }

  // What is known of the age of the prediction; nothing while it is the newest one.
  showAge(text) {
    if (this.part("age").textContent === text) return;
    this.part("age").textContent = text;
    this.element.classList.toggle("stale", text !== "");
  }

  teaching(label) {
    this.#become("teaching", `teaching ${quoted(label)} …`);
  }

  // Teaching did not work: the card returns to its state before and shows the reason.
  reopen(message) {
    this.#become(this.id === null ? "failed" : "open", message);
  }

  taught(label) {
    const was = this.best === null ? "" : this.best === label ? ", as predicted" : `; the prediction was ${quoted(this.best)}`;
    this.id = null;
    this.chosen = false;
    this.part("label").value = "";
    this.#become("taught", `✓ Taught as ${quoted(label)}${was}.`);
  }

  // Teaching was undone: its prediction was used up, so that it needs another one.
  untaught() {
    this.#forget();
    this.wait();
  }

  #forget() {
    this.part("guesses").replaceChildren();
    this.element.classList.remove("none");
    this.id = this.best = this.version = null;
  }

  #become(state, text) {
    this.state = state;
    this.element.dataset.state = state;
    this.element.setAttribute("aria-busy", String(state === "waiting" || state === "teaching"));
    this.part("state").textContent = text;
    this.part("form").hidden = state === "taught";
    this.part("right").hidden = state !== "open" || this.best === null;
    this.part("predict").hidden = !["held", "failed", "taught"].includes(state);
    this.part("predict").textContent = state === "held" ? "Predict" : "Predict again";
    this.part("predict").setAttribute("aria-label", `Predict ${this.name}${state === "held" ? "" : " again"}`);
    this.part("chosen").disabled = !this.teachable;
    if (state !== "open") this.showAge("");
  }

  release() {
    URL.revokeObjectURL(this.address);
    this.element.remove();
  }
}
