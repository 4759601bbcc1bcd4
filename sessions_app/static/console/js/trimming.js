/* Keeps a page that stays open for days small: of a long timeline only the newest entries stay, and "Earlier" brings
   back the others, as on a page that was just opened. */
(() => {
  "use strict";
  const MOST = 600;
  const KEPT = 400;

  // For those who read at the end of it; `address` is where entries come from.
  function trim(timeline, address) {
    const own = timeline.querySelectorAll(":scope > li[data-seq]");
    if (own.length <= MOST) return;
    const first = own[own.length - KEPT];
    const isBefore = (place) => place && timeline.contains(place) && place.compareDocumentPosition(first) & Node.DOCUMENT_POSITION_FOLLOWING;
    // What somebody works in, or still has to answer, stays where it is.
    if (isBefore(document.activeElement) || isBefore(timeline.querySelector("form.decision, form.answer"))) return;
    while (timeline.firstElementChild !== first) timeline.firstElementChild.remove();
    timeline.prepend(earlier(`${address}?before=${first.dataset.seq}`));
    htmx.process(timeline.firstElementChild);
  }

  // As in entries.html.
  function earlier(address) {
    const item = document.createElement("li");
    item.className = "earlier";
    item.id = "earlier";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button small";
    button.setAttribute("hx-get", address);
    button.setAttribute("hx-target", "#earlier");
    button.setAttribute("hx-swap", "outerHTML");
    button.textContent = "Earlier";
    item.append(button);
    return item;
  }

  window.tenure.trim = trim;
})();
