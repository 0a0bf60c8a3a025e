// Downloads: the learner as an archive or as an ONNX model. A link could not carry the token.

import { complain, say } from "./notices.js";
import { download } from "./service.js";
import { refreshAfterChange } from "./status.js";

const at = (id) => document.getElementById(id);
const buttons = [at("save-zip"), at("save-onnx")];

async function save(path) {
  for (const button of buttons) button.disabled = true;
  at("saving").hidden = false;
  try {
    const { name, content } = await download(path);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content);
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
    say(`${name} is downloaded.`);
  } catch (error) {
    complain(error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
    at("saving").hidden = true;
    await refreshAfterChange();
  }
}

at("save-zip").addEventListener("click", () => save("export"));
at("save-onnx").addEventListener("click", () => save("onnx"));
