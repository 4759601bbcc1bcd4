/* The composer: Ctrl+Enter sends, files are uploaded when they are chosen, dropped or pasted, and a message has a key
   that makes a repeated request the same message. */
(() => {
  "use strict";
  const form = document.getElementById("composer");
  if (!form) return;
  const text = document.getElementById("message");
  const files = document.getElementById("files");
  const attached = document.getElementById("attached");
  const send = document.getElementById("send");
  const DRAFT = `tenure-draft-${document.getElementById("session").dataset.session}`;
  let uploading = 0;

  function newKey() {
    // randomUUID is missing where the page is not served over HTTPS.
    return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!send.disabled) form.requestSubmit();
  });

  // A draft survives a reload of this tab.
  try {
    text.value ||= sessionStorage.getItem(DRAFT) ?? "";
    text.addEventListener("input", () => sessionStorage.setItem(DRAFT, text.value));
  } catch { /* then it lasts as long as the page */ }

  form.addEventListener("htmx:beforeRequest", (event) => {
    if (uploading) {
      event.preventDefault();
      window.tenure.toast("A file is still on its way.", "note");
    }
  });
  form.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== form) return;
    // Without an answer, or with a failure on its way, the next try may be the same message again: it keeps its key.
    if (event.detail.successful || event.detail.xhr.status === 409) form.elements.key.value = newKey();
    if (!event.detail.successful) return;
    text.value = "";
    try { sessionStorage.removeItem(DRAFT); } catch { /* as above */ }
    attached.replaceChildren();
    form.elements.cancel_open.checked = false;
    text.focus();
  });

  function attach(file) {
    const item = document.createElement("li");
    item.className = "chip";
    const name = document.createElement("span");
    name.textContent = file.name;
    const state = document.createElement("span");
    state.className = "spinner";
    item.append(name, state);
    attached.append(item);
    upload(file, item, state);
  }

  async function upload(file, item, state) {
    uploading += 1;
    try {
      const body = new FormData();
      body.append("file", file, file.name);
      const token = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
      const answer = await fetch("/api/v1/artifacts", {
        method: "POST",
        body,
        headers: { "X-CSRFToken": token, "Tenure-Project": document.body.dataset.project, "Idempotency-Key": newKey() },
      });
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.detail);
      const field = document.createElement("input");
      field.type = "hidden";
      field.name = "artifact";
      field.value = said.id;
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "chip-button";
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.append(window.tenure.icon("cross"));
      remove.addEventListener("click", () => { item.remove(); text.focus(); });
      state.replaceWith(field, remove);
    } catch (error) {
      item.remove();
      window.tenure.toast(`${file.name} was not uploaded: ${error.message}`, "bad");
    } finally {
      uploading -= 1;
    }
  }

  files.addEventListener("change", () => {
    for (const file of files.files) attach(file);
    files.value = "";
  });
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    for (const file of event.dataTransfer.files) attach(file);
  });
  text.addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    for (const file of event.clipboardData.files) attach(file);
  });
})();
