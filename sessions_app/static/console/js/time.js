/* Keeps `<time data-relative>` true. The words are those of template_tags.distance. */
(() => {
  "use strict";
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function words(seconds) {
    const size = Math.abs(seconds);
    if (size < 3) return "now";
    const [unit, name] = UNITS.find(([length]) => size >= length);
    const count = `${Math.floor(size / unit)} ${name}`;
    return seconds > 0 ? `${count} ago` : `in ${count}`;
  }

  function update(root) {
    const now = Date.now();
    for (const place of root.querySelectorAll("time[data-relative]")) {
      const then = Date.parse(place.dateTime);
      const seconds = (now - then) / 1000;
      const text = Math.abs(seconds) < 30 * 86400 ? words(seconds) : new Date(then).toISOString().slice(0, 10);
      if (place.textContent !== text) place.textContent = text;
      if (!place.dataset.local) {
        place.dataset.local = "1";
        place.title = new Date(then).toLocaleString();
      }
    }
  }

  update(document);
  setInterval(() => { if (!document.hidden) update(document); }, 1000);
  document.addEventListener("htmx:afterSettle", () => update(document));
})();
