/* The reply that is still on its way, out of the feed's delta frames. Everything here is text (textContent): what is
   rendered comes from the server, once the reply is saved. Frames of a call count from 0; with a gap the rest of the
   preview would be wrong, so it is dropped, and the saved entry shows it all. */
(() => {
  "use strict";
  const list = document.getElementById("preview");
  if (!list) return;
  const NAMES = { reasoning: "Reasoning", arguments: "Arguments of a tool call" };
  let call = null; // of the reply that is shown
  let next = 0;
  let broken = false;
  const over = new Set(); // calls whose entry has come
  let blocks = new Map();

  function element(name, className, text = "") {
    const made = document.createElement(name);
    made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  function begin(name) {
    drop();
    call = name;
    next = 0;
    broken = false;
    const item = element("li", "entry");
    item.dataset.tone = "live";
    item.dataset.call = name;
    const icon = element("div", "timeline-icon");
    icon.append(window.tenure.icon("agent"));
    const body = element("div", "timeline-body");
    const head = element("div", "timeline-head");
    head.append(element("span", "timeline-who", "Agent"), element("span", "", "is writing"));
    body.append(head);
    item.append(icon, body);
    list.append(item);
    list.hidden = false;
  }

  function place(frame) {
    let found = blocks.get(frame.block);
    if (!found) {
      const body = list.querySelector(".timeline-body");
      const part = element("div", `preview preview-${frame.kind}`);
      if (NAMES[frame.kind]) part.append(element("span", "preview-name", NAMES[frame.kind]));
      found = element("span", "preview-text");
      part.append(found, element("span", "caret"));
      for (const caret of body.querySelectorAll(".caret")) caret.remove();
      body.append(part);
      part.append(element("span", "caret"));
      while (part.querySelectorAll(".caret").length > 1) part.querySelector(".caret").remove();
      blocks.set(frame.block, found);
    }
    return found;
  }

  function drop() {
    list.replaceChildren();
    list.hidden = true;
    blocks = new Map();
    call = null;
  }

  function take(frame) {
    if (over.has(frame.model_call)) return;
    if (frame.model_call !== call) {
      if (frame.n !== 0) return; // its beginning was missed
      begin(frame.model_call);
    }
    if (broken) return;
    if (frame.n !== next) {
      broken = true;
      list.replaceChildren();
      list.hidden = true;
      return;
    }
    next += 1;
    place(frame).append(frame.text); // a string is appended as text
  }

  // The call is over: its reply is saved, or there will be none. What is shown of it stays until its entry is on the
  // page. Entries that name no call (the end of a turn, a new attempt) end the one that is shown.
  function ended(name = call) {
    if (name) over.add(name);
  }

  function arrived(name) {
    if (name) over.add(name);
    if (call && over.has(call)) drop();
  }

  window.tenure.preview = { take, ended, arrived, drop };
})();
