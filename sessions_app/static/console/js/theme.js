/* The theme that the person chose, before anything is drawn: automatic, light or dark. */
(() => {
  "use strict";
  const KEY = "tenure-theme";
  const NAMES = ["automatic", "light", "dark"];
  const root = document.documentElement;

  function read() {
    try { return localStorage.getItem(KEY) || "automatic"; } catch { return "automatic"; }
  }

  function apply(name) {
    if (name === "automatic") delete root.dataset.theme; else root.dataset.theme = name;
    for (const place of document.querySelectorAll("[data-theme-name]")) place.textContent = name;
    document.dispatchEvent(new CustomEvent("console:theme"));
  }

  apply(read());
  document.addEventListener("DOMContentLoaded", () => apply(read()));
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-toggle]")) return;
    const next = NAMES[(NAMES.indexOf(read()) + 1) % NAMES.length];
    try { localStorage.setItem(KEY, next); } catch { /* the choice then lasts as long as the page */ }
    apply(next);
  });
})();
