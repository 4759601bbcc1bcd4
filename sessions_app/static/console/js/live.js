/* Keeps parts of a page true while one looks at them.

   An element with data-refresh="seconds" gets the event console:refresh that often (its hx-trigger), and soon after
   anything happened in the project, which the project's feed tells over a socket. Where no socket comes about, the
   interval alone serves. Hidden tabs ask for nothing and catch up when they are looked at. The feed's frames reach
   other scripts as the event console:entry. */
(() => {
  "use strict";
  const SOON = 250;
  const SLOWEST = 30000;
  const last = new WeakMap();
  const missed = new WeakSet(); // parts that were busy when they should have been renewed
  let socket = null;
  let cursor = "";
  let delay = 1000;
  let soon = 0;

  function parts() { return document.querySelectorAll("[data-refresh]"); }

  // Not under a person's hands: an open menu or a field with text in it keeps its part as it is. Nor before the answer
  // to what was pressed in it is there: it would reach a button that is gone, and with it what it has to say.
  function isBusy(part) {
    const held = document.activeElement;
    if (part.querySelector("details.menu[open], .htmx-request")) return true;
    return part.contains(held) && /^(INPUT|TEXTAREA|SELECT)$/.test(held.tagName);
  }

  function refresh(part) {
    if (document.hidden) return;
    if (isBusy(part)) {
      missed.add(part);
      return;
    }
    missed.delete(part);
    last.set(part, Date.now());
    htmx.trigger(part, "console:refresh");
  }

  function tick() {
    const now = Date.now();
    for (const part of parts()) {
      if (!last.has(part)) last.set(part, now);
      // A live feed says when something happened; the interval then only covers what it can't say.
      const every = Number(part.dataset.refresh) * 1000 * (socket?.caughtUp && !("refreshAlways" in part.dataset) ? 6 : 1);
      if (missed.has(part) || now - last.get(part) >= every) refresh(part);
    }
  }

  function happened(entry) {
    document.dispatchEvent(new CustomEvent("console:entry", { detail: entry }));
    happenedSoon();
  }

  function happenedSoon() {
    if (soon) return;
    soon = setTimeout(() => {
      soon = 0;
      for (const part of parts()) refresh(part);
    }, SOON);
  }

  // An answer that changes nothing is not swapped in, so nothing flickers and the focus stays.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, requestConfig } = event.detail;
    const said = essence(serverResponse);
    if (requestConfig.triggeringEvent?.type === "console:refresh" && target.said === said) {
      event.detail.shouldSwap = false;
    }
    target.said = said;
  });

  // Without what differs in every answer: distances of times, which time.js keeps true, and the tokens of forms.
  function essence(html) {
    return html.replace(/(<time [^>]*>)[^<]*/g, "$1").replace(/(name="csrfmiddlewaretoken" value=")[^"]*/g, "$1");
  }

  // What was scrolled inside a part stays where it was; htmx does the same for the focus. Both go by ids.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target.closest?.("[data-refresh]") ?? event.detail.target;
    part.scrolled = [...part.querySelectorAll("[id]")]
      .filter((place) => place.scrollLeft || place.scrollTop)
      .map((place) => [place.id, place.scrollLeft, place.scrollTop]);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const part = event.detail.target.closest?.("[data-refresh]") ?? event.detail.target;
    for (const [id, left, top] of part.scrolled ?? []) {
      document.getElementById(id)?.scrollTo({ left, top, behavior: "instant" });
    }
  });

  function cut(isCut) {
    if (isCut && !document.documentElement.hasAttribute("data-cut-off")) {
      window.tenure.announce("The server does not answer");
    }
    document.documentElement.toggleAttribute("data-cut-off", isCut);
  }
  document.addEventListener("htmx:sendError", () => cut(true));
  document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) cut(false); });

  function connect() {
    if (!("WebSocket" in window) || document.hidden || socket) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const words = new URLSearchParams({ project: document.body.dataset.project, after: cursor || "now" });
    const opened = new WebSocket(`${scheme}://${location.host}/ws/v1/project?${words}`);
    socket = opened;
    opened.caughtUp = false;
    opened.onmessage = (message) => {
      const frame = JSON.parse(message.data);
      if (frame.cursor) cursor = frame.cursor;
      if (frame.type === "ping") opened.send('{"type": "pong"}');
      else if (frame.type === "caught_up") {
        opened.caughtUp = true;
        delay = 1000;
        happenedSoon(); // what happened between the page and the socket
      }
      else if (frame.type === "entry" && opened.caughtUp) happened(frame.entry);
    };
    opened.onclose = (event) => {
      if (socket === opened) socket = null;
      if (event.code === 4400) cursor = "";
      delay = Math.min(delay * 2, SLOWEST);
      setTimeout(connect, delay);
    };
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    connect();
    for (const part of parts()) refresh(part);
  });
  if (document.body?.dataset.project) {
    connect();
    setInterval(tick, 500);
  }
})();
