// The entry point: images by choosing, dropping and pasting.

import "./camera.js";
import "./guide.js";
import "./keys.js";
import "./saving.js";
import { filesBelow, openFolder } from "./folder.js";
import { addFiles } from "./images.js";
import { complain } from "./notices.js";
import { refresh, refreshAfterChange } from "./status.js";
import { askForToken } from "./token.js";

const at = (id) => document.getElementById(id);

at("choose").addEventListener("change", (event) => {
  const files = [...event.target.files];
  event.target.value = ""; // so that the same file can be chosen once more
  addFiles(files);
});

// A file dropped beside the field would otherwise replace the page.
let inside = 0;
const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
document.addEventListener("dragenter", (event) => carriesFiles(event) && mark((inside += 1)));
document.addEventListener("dragleave", (event) => carriesFiles(event) && mark((inside -= 1)));
document.addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  mark((inside = 0));
  // Both must be read before anything is awaited.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory);
  if (entries.length === 0) addFiles(event.dataTransfer.files);
  else addFolders(entries);
});

async function addFolders(entries) {
  try {
    const found = await Promise.all(entries.map((entry) => filesBelow(entry)));
    // Several folders are taken for the labels of one.
    openFolder(found.length === 1 ? found[0] : found.flat().map(({ file, path }) => ({ file, path: `folders/${path}` })));
  } catch {
    complain("The folder cannot be read.");
  }
}
const mark = (depth) => at("drop").classList.toggle("over", depth > 0);

document.addEventListener("paste", (event) => {
  const files = event.clipboardData?.files ?? [];
  if (files.length === 0) return;
  event.preventDefault();
  addFiles(files);
});

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

at("change-token").addEventListener("click", async () => {
  if (await askForToken()) refresh();
});

// The button that opened a dialog may be gone with its class: the focus then moves to the list.
const keepFocus = () => document.activeElement === document.body && at("classes-title").focus();
document.addEventListener("classes-changed", () => refreshAfterChange().then(keepFocus));
for (const dialog of [at("rename-dialog"), at("remove-dialog")]) dialog.addEventListener("close", keepFocus);

refresh();
