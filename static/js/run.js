// A run's page: the figure, the sorting of rows, dialogs that steer.
"use strict";

// The figure. Colours in it stand for CSS variables.
const plot = document.getElementById("plot");
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function coloured(value, colours, style) {
  if (typeof value === "string") return value in colours ? style.getPropertyValue("--" + colours[value]).trim() : value;
  if (Array.isArray(value)) return value.map((item) => coloured(item, colours, style));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, colours, style)]));
  }
  return value;
}

function draw() {
  const style = getComputedStyle(document.documentElement);
  const figure = JSON.parse(document.getElementById("figure").textContent);
  const data = coloured(figure.data, figure.colours, style), layout = coloured(figure.layout, figure.colours, style);
  const text = style.getPropertyValue("--text").trim(), line = style.getPropertyValue("--line").trim();
  Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text, family: "inherit" }, autosize: true });
  for (const axis of [layout.xaxis, layout.yaxis, layout.yaxis2]) Object.assign(axis, { gridcolor: line, linecolor: line, tickcolor: line });
  Plotly.react(plot, data, layout, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
}
if (plot) { // nobody worked in a run that was imported
  draw();
  plot.on("plotly_clickannotation", (event) => {
    const card = document.getElementById(event.annotation.name);
    if (!card) return;
    card.open = true;
    card.scrollIntoView({ block: "center" });
    card.querySelector("summary").focus();
  });
  dark.addEventListener("change", draw);
}

// Rows: sorted within their batch size, as the address says, after every replacement too.
const address = new URLSearchParams(location.hash.slice(1));
function sortRows() {
  const key = address.get("sort"), sign = address.get("order") === "descending" ? -1 : 1;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const header = button.closest("th");
    if (button.dataset.sort === key) header.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  }
  if (!key) return;
  for (const body of document.querySelectorAll(".speedups tbody")) {
    const rows = [...body.querySelectorAll("tr[data-workload]")];
    const value = (row) => (key === "workload" ? row.dataset[key] : row.dataset[key] === "" ? Infinity : Number(row.dataset[key]));
    rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * sign);
    body.append(...rows);
  }
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-sort]");
  if (!button) return;
  const again = address.get("sort") === button.dataset.sort && address.get("order") === "ascending";
  address.set("sort", button.dataset.sort);
  address.set("order", again ? "descending" : "ascending");
  history.replaceState(null, "", "#" + address);
  sortRows();
});
sortRows();
document.body.addEventListener("region", (event) => {
  if (event.detail === "figure") draw();
  if (event.detail === "rows") sortRows();
});

// Dialogs: a key made when one opens, so that a double click is one command.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.open);
    dialog.querySelector("[name=key]").value = crypto.randomUUID();
    dialog.showModal();
  }
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
});
const said = document.getElementById("said");
document.body.addEventListener("htmx:afterRequest", (event) => {
  const { successful, xhr, elt } = event.detail;
  said.hidden = successful;
  if (!successful) said.textContent = xhr.status ? xhr.responseText.slice(0, 300) : "The server cannot be reached; nothing was sent.";
  if (successful && elt.closest("dialog")) elt.closest("dialog").close();
});
