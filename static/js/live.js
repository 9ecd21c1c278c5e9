// Says when the connection is lost, and keeps what a person has done to a table while its rows are replaced.
"use strict";

const connection = document.getElementById("connection");
document.body.addEventListener("htmx:sseError", () => { connection.hidden = false; });
document.body.addEventListener("htmx:sseOpen", () => { connection.hidden = true; });

// Open cards and scroll positions of a region survive its replacement.
const open = new Set();
const scrolls = new Map();
document.body.addEventListener("toggle", (event) => {
  if (!event.target.id) return;
  if (event.target.open) open.add(event.target.id); else open.delete(event.target.id);
}, true);
document.body.addEventListener("htmx:oobBeforeSwap", (event) => {
  for (const part of event.detail.target.querySelectorAll(".scroll, .feed")) scrolls.set(place(part), part.scrollTop);
});
document.body.addEventListener("htmx:oobAfterSwap", (event) => {
  const region = document.getElementById(event.detail.target.id) || event.detail.target;
  for (const card of region.querySelectorAll("details[id]")) card.open = open.has(card.id);
  for (const part of region.querySelectorAll(".scroll, .feed")) part.scrollTop = scrolls.get(place(part)) || 0;
  document.body.dispatchEvent(new CustomEvent("region", { detail: region.id }));
});
function place(part) { return `${part.closest("section").id} ${part.getAttribute("aria-label")}`; }
