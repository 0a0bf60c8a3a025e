// The list of learners, where a service has several.

import { request } from "./service.js";
import { askForToken } from "./token.js";
import { bytes, number } from "./words.js";

const at = (id) => document.getElementById(id);

async function show() {
  try {
    const { backbone, learners } = await request("v1");
    at("model").textContent = `${number(learners.length)} ${learners.length === 1 ? "learner" : "learners"} over ${backbone}`;
    at("learners").replaceChildren(...learners.map(row));
    at("note").textContent = learners.length > 0 ? "" : "There is none yet: POST /v1 creates one.";
  } catch (error) {
    at("learners").replaceChildren();
    at("note").textContent = error.status === 401 ? "The administrator's token shows the list." : error.message;
  }
}

function row({ name, method, loaded, bytes: size }) {
  const link = document.createElement("a");
  link.href = `v1/${encodeURIComponent(name)}/`;
  link.textContent = name;
  const about = document.createElement("span");
  about.className = "quiet";
  about.textContent = ` ${method ?? "unknown method"}, ${bytes(size)}${loaded ? ", loaded" : ""}`;
  const found = document.createElement("li");
  found.append(link, about);
  return found;
}

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
at("change-token").addEventListener("click", async () => {
  if (await askForToken()) show();
});

show();
