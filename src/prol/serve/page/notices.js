// What the page says: quietly when something worked, loudly when it did not.

const at = (id) => document.getElementById(id);

export function say(text) {
  at("said").textContent = text;
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
  at("choose").focus();
});
