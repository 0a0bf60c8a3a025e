// One image as large as the window allows.

const at = (id) => document.getElementById(id);

export function zoom(card) {
  at("zoom-image").src = card.address;
  at("zoom-image").alt = card.name;
  at("zoom-title").textContent = card.name;
  at("zoom-dialog").showModal();
}

at("zoom-dialog").addEventListener("click", () => at("zoom-dialog").close());
at("zoom-dialog").addEventListener("close", () => at("zoom-image").removeAttribute("src"));
