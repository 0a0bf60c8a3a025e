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
