/* Says that something waits for a person: in the navigation, in the title of the tab, and where the person asked
   for it, by a notification of the desktop. The numbers come from the server; a feed only says when to ask. */
(() => {
  "use strict";
  const EVERY = 15000;
  const SOON = 400;
  const KEY = "tenure-notify";
  const KINDS = /^(approval|question)_|^limit_reached$|^session_waiting$/;
  const title = document.title;
  let known = null;
  let timer = 0;

  function show(total, items) {
    document.title = total ? `(${total}) ${title}` : title;
    for (const place of document.querySelectorAll("[data-waiting-total]")) {
      place.hidden = !total;
      place.querySelector("[data-waiting-number]").textContent = total;
    }
    for (const place of document.querySelectorAll("[data-waiting]")) {
      const count = items[place.dataset.waiting] ?? 0;
      place.hidden = !count;
      place.querySelector("[data-waiting-number]").textContent = count;
    }
  }

  function isWanted() {
    try { return localStorage.getItem(KEY) === "on" && Notification.permission === "granted"; } catch { return false; }
  }

  function tell(total, items) {
    const more = known !== null && total > known;
    known = total;
    if (!more) return;
    const words = total === 1 ? "One thing waits for a person" : `${total} things wait for a person`;
    window.tenure.announce(words);
    if (!document.hidden || !isWanted()) return;
    const address = Object.keys(items).find((name) => items[name]);
    // One notification for all tabs: a newer one with the same tag takes its place.
    const note = new Notification("Tenure", { body: words, tag: "tenure-waiting", icon: document.body.dataset.mark });
    note.onclick = () => {
      window.focus();
      if (address) location.assign(address);
      note.close();
    };
  }

  async function ask() {
    clearTimeout(timer);
    timer = setTimeout(ask, EVERY);
    try {
      const answer = await fetch(document.body.dataset.waitingAddress, { headers: { Accept: "application/json" }, redirect: "error" });
      if (!answer.ok) return;
      const { total, items } = await answer.json();
      show(total, items);
      tell(total, items);
    } catch {
      // Asked again soon; live.js shows that the page is cut off.
    }
  }

  function offer() {
    const button = document.querySelector("[data-notifications]");
    if (!button || !("Notification" in window) || Notification.permission === "denied") return;
    const words = button.querySelector("span");
    const paint = () => {
      words.textContent = isWanted() ? "Notifications are on" : "Notify me";
      button.setAttribute("aria-pressed", String(isWanted()));
    };
    button.hidden = false;
    paint();
    button.addEventListener("click", async () => {
      const turnOn = !isWanted();
      if (turnOn && await Notification.requestPermission() !== "granted") {
        window.tenure.toast("The browser does not let this page notify you", "warn");
        return;
      }
      try { localStorage.setItem(KEY, turnOn ? "on" : "off"); } catch { /* lasts as long as the page */ }
      paint();
    });
  }

  document.addEventListener("console:entry", (event) => {
    if (!KINDS.test(event.detail.kind)) return;
    clearTimeout(timer);
    timer = setTimeout(ask, SOON);
  });
  document.addEventListener("console:waiting", ask); // after something was answered on this page
  offer();
  if (document.querySelector("[data-waiting]")) ask();
})();
