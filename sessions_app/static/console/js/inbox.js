/* The inbox's keys and marks. j and k are everywhere (console.js); here a allows, d asks why and denies, x marks. */
(() => {
  "use strict";
  const dialog = document.getElementById("deny");
  if (!dialog) return;
  const reason = document.getElementById("deny-reason");
  const marked = new Set();
  let denying = null; // the approval's id: its form is another one once the list behind the dialog was renewed

  function current() {
    return document.activeElement?.closest?.(".prompt");
  }

  function say(words) { window.tenure.announce(words); }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    if (document.querySelector("dialog[open]") || !"adx".includes(event.key)) return;
    const prompt = current();
    if (!prompt) return;
    const form = prompt.querySelector("form.decision");
    if (event.key === "x") return prompt.querySelector("[data-mark]")?.click();
    if (!form) return say("This is a question; answer it in its form.");
    event.preventDefault();
    if (event.key === "a") return form.querySelector("[data-allow]").click();
    denying = form.dataset.approval;
    reason.value = form.elements.reason.value;
    dialog.showModal();
    reason.focus();
  });
  reason.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); reason.form.requestSubmit(); }
  });
  reason.form.addEventListener("submit", () => {
    const form = document.querySelector(`form.decision[data-approval="${CSS.escape(denying ?? "")}"]`);
    denying = null;
    if (!form) return say("This was decided meanwhile.");
    form.elements.reason.value = reason.value;
    form.querySelector("[data-deny]").click();
  });

  // The list is renewed while people work in it. Marks, what was written and chosen, and the place of the focus
  // outlive that; fields are found again by their ids.
  let written = [];
  let at = -1;

  function rows() { return [...document.querySelectorAll("#inbox [data-row]")]; }

  document.addEventListener("htmx:beforeSwap", (event) => {
    const list = event.detail.target;
    if (list.id !== "inbox" && !list.closest?.("#inbox")) return;
    at = rows().indexOf(current()?.querySelector("[data-row]"));
    if (list.id !== "inbox") return;
    written = [...list.querySelectorAll("form.decision :is(textarea, select)[id], form.answer :is(textarea, input)[id], #bulk-reason")]
      .map((field) => [field.id, field.value, field.checked]);
  });

  function restore() {
    for (const [id, value, checked] of written) {
      const field = document.getElementById(id);
      if (!field) continue;
      if (field.type === "radio" || field.type === "checkbox") field.checked = checked;
      else field.value = value;
    }
    written = [];
    if (at >= 0 && document.activeElement === document.body) rows()[Math.min(at, rows().length - 1)]?.focus();
  }

  function paint() {
    const bulk = document.getElementById("bulk");
    for (const box of document.querySelectorAll("[data-mark]")) box.checked = marked.has(box.value);
    const there = new Set([...document.querySelectorAll("[data-mark]")].map((box) => box.value));
    for (const value of marked) if (!there.has(value)) marked.delete(value);
    if (!bulk) return;
    bulk.hidden = !marked.size;
    bulk.querySelector("[data-marked]").textContent = marked.size;
  }
  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-mark]")) return;
    if (event.target.checked) marked.add(event.target.value); else marked.delete(event.target.value);
    paint();
  });
  document.addEventListener("console:changed", () => htmx.trigger("#inbox-list", "console:refresh"));
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id === "inbox") restore();
    paint();
  });
  paint();
})();
