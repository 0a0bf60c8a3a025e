// What the page says: quietly when something worked, loudly when it did not.

const at = (id) => document.getElementById(id);

const SHOWN_SECONDS = 7;
let hiding = null;

export function say(text) {
  clearTimeout(hiding);
  at("said").textContent = text;
  hiding = setTimeout(() => (at("said").textContent = ""), SHOWN_SECONDS * 1000);
}

export function complain(text) {
  at("problem-text").textContent = text;
  at("problem").hidden = false;
}

export function clearProblem() {
  at("problem").hidden = true;
  at("problem-text").textContent = "";
}

at("problem-close").addEventListener("click", () => {
  clearProblem();
  at("choose")?.focus();
});
