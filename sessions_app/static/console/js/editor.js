/* Line numbers beside a document, with marks where the server found something wrong. */
(() => {
  "use strict";
  const editor = document.querySelector("[data-editor]");
  if (!editor) return;
  const text = editor.querySelector("textarea");
  const lines = editor.querySelector(".editor-lines");

  function marks() {
    const found = new Map();
    for (const place of document.querySelectorAll("#review [data-line]")) {
      const line = Number(place.dataset.line);
      if (line && found.get(line) !== "bad") found.set(line, place.closest("[data-tone]").dataset.tone);
    }
    return found;
  }

  function paint() {
    const count = text.value.split("\n").length;
    while (lines.children.length > count) lines.lastChild.remove();
    while (lines.children.length < count) {
      const item = document.createElement("li");
      item.textContent = lines.children.length + 1;
      lines.append(item);
    }
    const found = marks();
    [...lines.children].forEach((item, index) => {
      const tone = found.get(index + 1);
      if (tone) item.dataset.tone = tone; else delete item.dataset.tone;
    });
    text.setAttribute("aria-invalid", String([...found.values()].includes("bad")));
    lines.scrollTop = text.scrollTop;
  }

  function goTo(line) {
    const before = text.value.split("\n").slice(0, line - 1).join("\n");
    const start = before.length + (line > 1 ? 1 : 0);
    const end = text.value.indexOf("\n", start);
    text.focus();
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
    const height = text.scrollHeight / text.value.split("\n").length;
    text.scrollTop = Math.max(0, (line - 4) * height);
  }

  text.addEventListener("input", paint);
  text.addEventListener("scroll", () => { lines.scrollTop = text.scrollTop; });
  text.addEventListener("keydown", (event) => {
    // Tab indents; Escape first, and Tab leaves, so that nobody is caught in here.
    if (event.key !== "Tab" || event.shiftKey || text.dataset.leaving) return;
    event.preventDefault();
    text.setRangeText("  ", text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new Event("input", { bubbles: true }));
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { text.dataset.leaving = "1"; event.stopPropagation(); }
    else if (event.key !== "Tab" && event.key !== "Shift") delete text.dataset.leaving;
  });
  text.addEventListener("blur", () => { delete text.dataset.leaving; });
  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-line]");
    if (place) goTo(Number(place.dataset.line));
  });
  document.addEventListener("htmx:afterSettle", paint);
  paint();
})();
