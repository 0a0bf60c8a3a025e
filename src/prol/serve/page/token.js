// The token: asked for when the service needs one, stored for this tab only.

const KEY = "prol-token";
const at = (id) => document.getElementById(id);

let asking = null;
let declined = false;

export const storedToken = () => sessionStorage.getItem(KEY);

export const wasDeclined = () => declined;

// Resolves to true once somebody has given a token, to false if they would rather not.
export function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = at("token-dialog");
    const refused = storedToken() !== null;
    at("token-note").textContent = refused
      ? "The service does not accept this token. Give another one; it is stored until this tab is closed."
      : "Whoever started the service has it. It is stored until this tab is closed.";
    at("token").value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => finish(dialog.returnValue === "given", resolve), { once: true });
    if (!dialog.open) dialog.showModal();
  });
  return asking;
}

function finish(given, resolve) {
  asking = null;
  declined = !given;
  at("change-token").hidden = !declined && storedToken() === null;
  resolve(given);
}

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  // A header cannot carry anything else.
  if (!/^[\x21-\x7e]+$/.test(token)) {
    at("token-note").textContent = "A token consists of plain letters, digits and punctuation, without spaces.";
    return;
  }
  sessionStorage.setItem(KEY, token);
  at("token-dialog").close("given");
});

at("change-token").hidden = storedToken() === null;
