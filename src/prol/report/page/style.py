"""How the page looks, and the little that moves in it: it reads the same without."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #f7f6f3; --panel: #ffffff; --ink: #1c2026; --quiet: #5b626d; --line: #d5d7db; --accent: #1f5fae;
  --wash: #e8eff8; --warm: #8a4300; --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --panel: #1c2026; --ink: #e8eaed; --quiet: #a1a8b3; --line: #3a414b; --accent: #7fb2f0;
    --wash: #223146; --warm: #f0a75a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 var(--font); overflow-wrap: anywhere; }
main, header, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 0.3rem; }
h2 {
  font-size: 1.35rem; line-height: 1.25; margin: 2.5rem 0 0.3rem; border-top: 3px solid var(--accent);
  padding-top: 0.8rem;
}
h3 { font-size: 1.08rem; margin: 0 0 0.5rem; }
a { color: var(--accent); }
p { margin: 0.4rem 0; max-width: 60rem; }
.quiet { color: var(--quiet); font-size: 0.9rem; }
.best { font-size: 1.05rem; }
.notice { border-left: 4px solid var(--warm); padding: 0.4rem 0.8rem; background: var(--panel); border-radius: 6px; }
.notice ul { margin: 0.2rem 0; padding-left: 1.1rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0.35rem; padding: 0; margin: 0.6rem 0; }
nav a {
  display: inline-block; padding: 0.3rem 0.7rem; border-radius: 999px; background: var(--wash); text-decoration: none;
  font-size: 0.9rem;
}
a:focus-visible, summary:focus-visible, button:focus-visible, .scroll:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 2px;
}
.part {
  background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 1rem; margin: 1rem 0;
  min-width: 0;
}
.pictures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.pictures.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }
figure { margin: 0; min-width: 0; }
.pictures:not(.small) figure { max-width: 36rem; }
figcaption { font-weight: 600; font-size: 0.92rem; margin-bottom: 0.2rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: var(--font); white-space: pre; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0.5rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.32rem 0.6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; font-weight: 600; white-space: normal; overflow-wrap: normal; }
th.words, td.words, th[scope="row"], thead th:first-child { text-align: left; }
td.words { white-space: normal; min-width: 4.5rem; max-width: 46rem; }
tbody tr:hover td { background: var(--wash); }
th[scope="row"], thead th:first-child {
  position: sticky; left: 0; background: var(--panel); font-weight: 600; white-space: normal; min-width: 8rem;
  max-width: 16rem; overflow-wrap: break-word;
}
thead button {
  font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: inherit;
}
th[aria-sort="ascending"] button::after { content: " \\2191"; }
th[aria-sort="descending"] button::after { content: " \\2193"; }
summary { cursor: pointer; color: var(--accent); font-size: 0.92rem; padding: 0.25rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 0.8rem; margin: 0.4rem 0; font-size: 0.9rem; }
dt { font-weight: 600; }
dd { margin: 0; color: var(--quiet); }
footer { padding: 1rem 1rem 2rem; }
@media (max-width: 40rem) {
  main, header, footer { padding-left: 0.6rem; padding-right: 0.6rem; }
  .part { padding: 0.75rem 0.6rem; }
  th[scope="row"], thead th:first-child { min-width: 6.5rem; max-width: 8.5rem; }
}
@media print { .part { break-inside: avoid; } }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value ?? "";
      const order = (one, other) => value(one) !== "" && value(other) !== "" ? value(one) - value(other)
        : (value(one) !== "") - (value(other) !== "")
          || one.cells[column].textContent.localeCompare(other.cells[column].textContent, undefined, {numeric: true});
      body.append(...[...body.rows].sort((one, other) => (up ? 1 : -1) * order(one, other)));
    });
  });
}
"""
