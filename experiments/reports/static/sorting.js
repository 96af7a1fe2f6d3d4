// Tables are sorted by a click on a heading.
"use strict";
const UNITS = { ns: 1e-9, "\u00b5s": 1e-6, us: 1e-6, ms: 1e-3, s: 1 };
const NUMBER = /^[<>~+]?\s*(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*(ns|\u00b5s|us|ms|s)?(?![\w.])/;
function key(cell) {
  const text = cell.textContent.trim();
  if (cell.dataset.value) return Number(cell.dataset.value);
  const found = NUMBER.exec(text);
  if (found) return Number(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1);
  return text === "-" ? "" : text.toLowerCase();
}
function compare(a, b) {  // numbers, then words; empty cells stay last
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}
function sort(table, head, at) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows].map(row => [key(row.cells[at]), row]);
  const said = rows.filter(row => row[0] !== ""), silent = rows.filter(row => row[0] === "");
  said.sort((a, b) => compare(a[0], b[0]) * (down ? -1 : 1));
  table.tBodies[0].append(...[...said, ...silent].map(row => row[1]));
}
for (const table of document.querySelectorAll("table")) {
  if (!table.tHead || !table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, head, at));
  });
}
