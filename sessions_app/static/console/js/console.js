/* What every page does: toasts, dialogs, keys, confirmation, copying. No markup is ever made from text. */
(() => {
  "use strict";
  const TOAST_TIME = 7000;

  function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", `${document.body.dataset.icons}#${name}`);
    svg.append(use);
    return svg;
  }

  function toast(text, tone = "ok") {
    const line = document.createElement("p");
    line.className = "toast";
    line.dataset.tone = tone;
    const words = document.createElement("span");
    words.textContent = text;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button icon-button ghost";
    button.dataset.dismiss = "";
    button.setAttribute("aria-label", "Dismiss");
    button.append(icon("cross"));
    line.append(words, button);
    document.getElementById("toasts").append(line);
    fade(line);
  }

  // What went wrong stays until it is dismissed.
  function fade(line) {
    if (line.dataset.tone === "ok" || line.dataset.tone === "note") setTimeout(() => line.remove(), TOAST_TIME);
  }

  function announce(text) {
    const place = document.getElementById("announcer");
    if (place) place.textContent = text;
  }

  window.tenure = Object.assign(window.tenure || {}, { toast, announce, icon });

  document.addEventListener("console:toast", (event) => toast(event.detail.text, event.detail.tone));
  document.addEventListener("htmx:responseError", (event) => {
    const answer = event.detail.xhr;
    if (answer.getResponseHeader("HX-Trigger")) return; // the answer says it in its own words
    if (answer.status === 503) toast("The database is away at the moment. Try again soon.", "warn");
    else if (answer.status === 404) toast("That is not there any more.", "warn");
    else toast(`The server refused this (${answer.status}).`, "bad");
  });
  document.addEventListener("htmx:sendError", (event) => {
    if (event.detail.elt.closest("[data-refresh]")) return; // live.js shows that the page is cut off
    toast("The server did not answer. Check the connection, and try again.", "bad");
  });

  document.addEventListener("DOMContentLoaded", () => {
    for (const line of document.querySelectorAll(".toast")) fade(line);
  });

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-dismiss], [data-open], [data-close], [data-copy]");
    if (!target) {
      for (const menu of document.querySelectorAll("details.menu[open]")) {
        if (!menu.contains(event.target)) menu.open = false;
      }
      return;
    }
    if ("dismiss" in target.dataset) target.closest(".toast, .notice").remove();
    else if ("open" in target.dataset) document.getElementById(target.dataset.open).showModal();
    else if ("close" in target.dataset) target.closest("dialog").close();
    else if ("copy" in target.dataset) {
      navigator.clipboard.writeText(target.dataset.copy).then(
        () => toast("Copied"),
        () => toast("The browser did not let the page copy", "warn"),
      );
    }
  });

  document.addEventListener("click", (event) => {
    if (event.target instanceof HTMLDialogElement) event.target.close(); // on the backdrop
  });

  // Only where something is destroyed.
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
    if (question && !window.confirm(question)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }, true);

  // Filters that are not set stay out of the address.
  document.addEventListener("htmx:configRequest", (event) => {
    if (!event.detail.elt.matches("form.filters")) return;
    for (const [name, value] of Object.entries(event.detail.parameters)) {
      if (value === "") delete event.detail.parameters[name];
    }
  });

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-submit-on-change]");
    if (form) form.requestSubmit();
  });

  // ---- keys ----
  let after = "";
  let timer = 0;

  function isTyping(target) {
    return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  }

  // The rows of the page's main list are the links or elements marked with data-row.
  function step(by) {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const now = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
    const next = rows[Math.min(Math.max(now + by, 0), rows.length - 1)] ?? rows[0];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function wait(key) {
    after = key;
    clearTimeout(timer);
    timer = setTimeout(() => { after = ""; }, 1200);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (after === "g") {
      after = "";
      for (const place of document.querySelectorAll(".places a[data-key]")) {
        if (place.dataset.key === event.key) { event.preventDefault(); place.click(); return; }
      }
    }
    const search = document.querySelector("[data-search]");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
    else if (event.key === "?") { event.preventDefault(); document.getElementById("shortcuts").showModal(); }
    else if (event.key === "g") wait("g");
    else if (event.key === "n") document.querySelector(".sidebar .button.primary")?.click();
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
})();
