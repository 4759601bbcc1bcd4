/* A session's page stays true. The socket is a doorbell: for what it announces, `entries?after=` brings HTML that the
   server rendered, and with it all that stands around the timeline. An entry has an id and is put in once, so it does
   not matter how often anything is asked for. Without a socket the page asks every few seconds. */
(() => {
  "use strict";
  const root = document.getElementById("session");
  if (!root) return;
  const timeline = document.getElementById("timeline");
  const connection = document.getElementById("connection");
  const toEnd = document.getElementById("to-end");
  const preview = window.tenure.preview;
  const ENDS = /^(assistant_message|model_call_failed|turn_ended|session_resumed|retry_scheduled)$/;
  const SOON = 30;
  const POLL = 3000; // without a socket
  const LOOK = 4000; // with one, while something moves that no entry tells of
  const FIRST = 500;
  const SLOWEST = 15000;

  let last = Number(root.dataset.last);
  let socket = null;
  let delay = FIRST;
  let retryAt = 0;
  let misses = 0; // sockets that did not come about since the last one that did
  let asking = false;
  let wanted = false;
  let timer = 0;
  let lastLook = Date.now();
  let known = last; // the newest entry that the socket told of

  // ---- what has come ----

  function soon() {
    wanted = true;
    if (!timer && !asking) timer = setTimeout(look, SOON);
  }

  async function look() {
    timer = 0;
    if (asking) return;
    asking = true;
    wanted = false;
    lastLook = Date.now();
    try {
      const answer = await fetch(`${root.dataset.entries}?after=${last}`, { headers: { "HX-Request": "true" }, redirect: "error" });
      if (answer.status === 401 || answer.status === 403 || answer.status === 404) return location.reload();
      if (!answer.ok) throw new Error(String(answer.status));
      if (put(await answer.text())) wanted = true;
      paint();
    } catch {
      failed();
    } finally {
      asking = false;
      if (wanted && !timer) timer = setTimeout(look, SOON);
    }
  }

  let failures = 0;
  function failed() {
    failures += 1;
    wanted = false;
    clearTimeout(timer);
    timer = setTimeout(look, Math.min(1000 * 2 ** failures, SLOWEST));
    say("bad", "The server does not answer; trying again");
  }

  // True where there is more to be asked for.
  function put(html) {
    failures = 0;
    const page = new DOMParser().parseFromString(html, "text/html"); // no script runs in it, and nothing is loaded
    const since = page.querySelector("[data-since]");
    if (!since) return false;
    const stay = atEnd();
    let added = 0;
    for (const item of [...since.querySelectorAll("[data-entries] > li")]) {
      if (document.getElementById(item.id)) continue;
      const placed = document.adoptNode(item);
      placed.classList.add("is-new");
      timeline.append(placed);
      htmx.process(placed);
      if (ENDS.test(placed.dataset.kind)) preview.arrived(placed.dataset.call);
      if (!placed.classList.contains("is-quiet")) added += 1;
    }
    for (const card of [...since.querySelectorAll("[data-loose] > [data-card]")]) replace(card);
    for (const part of [...since.querySelectorAll("[data-parts] > [data-part]")]) replace(part);
    last = Math.max(last, Number(since.dataset.last));
    root.dataset.last = last;
    markLeft(since.dataset.left);
    document.dispatchEvent(new CustomEvent("console:settled"));
    if (stay) window.tenure.trim(timeline, root.dataset.entries);
    if (stay && added) scrollToEnd();
    else if (added) toEnd.hidden = atEnd();
    return since.dataset.more === "true" || known > last;
  }

  const heldBack = new Map(); // cards that have changed while their form is on its way

  function replace(fresh) {
    const old = document.getElementById(fresh.id);
    if (!old) return; // its entry is not on the page
    if (old.dataset.html === undefined) old.dataset.html = essence(old.outerHTML);
    const html = essence(fresh.outerHTML);
    if (old.dataset.html === html) return;
    if (fresh.hasAttribute("data-card") && old.querySelector("form.htmx-request")) {
      // The answer to what was pressed here brings the card, and says to whom it came too late.
      heldBack.set(fresh.id, fresh);
      return;
    }
    const held = old.contains(document.activeElement) ? document.activeElement : null;
    const typed = [...old.querySelectorAll("textarea")].map((field) => field.value.trim()).find(Boolean);
    if (fresh.hasAttribute("data-card")) {
      const answers = fresh.querySelector("form.decision, form.answer");
      if (answers && old.querySelector("form.decision, form.answer") && (held || typed)) return; // still open: leave it
      if (fresh instanceof HTMLDetailsElement && old.open) fresh.open = true;
    } else if (old.querySelector("details.menu[open]")) return;
    const folds = [...old.querySelectorAll("details[id]")].map((part) => [part.id, part.open]);
    const placed = document.adoptNode(fresh);
    old.replaceWith(placed);
    placed.dataset.html = html;
    for (const [id, open] of folds) { const part = document.getElementById(id); if (part) part.open = open; }
    htmx.process(placed);
    if (typed) keep(typed);
    if (held) (document.getElementById(held.id) ?? placed.querySelector("summary") ?? placed).focus?.({ preventScroll: true });
  }

  // Without what time and forms change by themselves.
  function essence(html) {
    return html.replace(/<time [^>]*>[^<]*/g, "").replace(/ data-html="[^"]*"/g, "").replace(/ class=""/g, "");
  }

  // What somebody was writing into a card that others, or time, have closed meanwhile.
  function keep(text) {
    const message = document.getElementById("message");
    if (!message || message.value.trim()) return;
    message.value = text;
    window.tenure.toast("This was answered or closed meanwhile. What you wrote is in the message field.", "note");
  }

  function markLeft(text) {
    if (text === root.dataset.left) return;
    root.dataset.left = text;
    const ranges = text ? text.split(",").map((range) => range.split("-").map(Number)) : [];
    for (const item of timeline.querySelectorAll("li[data-seq]")) {
      const seq = Number(item.dataset.seq);
      item.classList.toggle("is-left", ranges.some(([from, to]) => from <= seq && seq <= to));
    }
  }

  function paint() {
    const shown = timeline.querySelector("li.entry:not(.is-quiet)");
    document.getElementById("nothing-yet").hidden = Boolean(shown);
  }

  // ---- where one reads ----

  function atEnd() {
    return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 160;
  }
  function scrollToEnd() {
    window.scrollTo({ top: document.documentElement.scrollHeight });
    toEnd.hidden = true;
  }
  toEnd.addEventListener("click", scrollToEnd);
  window.addEventListener("scroll", () => { if (atEnd()) toEnd.hidden = true; }, { passive: true });

  // ---- the socket ----

  function say(tone, words) {
    connection.dataset.tone = tone;
    const place = connection.querySelector("[data-words]");
    if (place.textContent !== words) place.textContent = words;
  }

  function connect() {
    if (socket) return;
    retryAt = 0;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const words = new URLSearchParams({ project: document.body.dataset.project, after: String(last), deltas: "1" });
    let opened;
    try {
      opened = new WebSocket(`${scheme}://${location.host}/ws/v1/sessions/${root.dataset.session}?${words}`);
    } catch {
      return later();
    }
    socket = opened;
    opened.onopen = () => preview.drop(); // what follows begins with the beginning of the reply
    opened.onmessage = (message) => take(opened, JSON.parse(message.data));
    opened.onclose = () => {
      if (socket !== opened) return;
      socket = null;
      preview.drop();
      later();
    };
  }

  function later() {
    misses += 1;
    retryAt = Date.now() + delay;
    setTimeout(connect, delay);
    delay = Math.min(delay * 2, SLOWEST);
    tick();
  }

  function take(from, frame) {
    switch (frame.type) {
      case "ping":
        from.send('{"type": "pong"}');
        break;
      case "entry":
        known = Math.max(known, frame.entry.seq);
        if (ENDS.test(frame.entry.kind)) preview.ended(frame.entry.data.model_call);
        if (frame.entry.seq <= last) preview.arrived(frame.entry.data.model_call);
        if (frame.entry.seq > last) soon();
        break;
      case "delta": {
        const stay = atEnd();
        preview.take(frame);
        if (stay) scrollToEnd();
        break;
      }
      case "caught_up":
        delay = FIRST;
        misses = 0;
        say("ok", "Live");
        root.dataset.live = "true";
        soon();
        break;
    }
  }

  function tick() {
    if (document.hidden) return;
    const live = socket?.readyState === WebSocket.OPEN;
    if (!live) {
      delete root.dataset.live;
      const seconds = Math.ceil((retryAt - Date.now()) / 1000);
      const words = misses >= 3 ? "No live feed; looking every few seconds" : seconds > 0 ? `Reconnecting in ${seconds} s` : "Connecting";
      if (!failures) say("warn", words);
    }
    const moves = document.getElementById("session-status")?.dataset.moving === "true";
    const every = live ? (moves ? LOOK : LOOK * 5) : POLL;
    if (!failures && Date.now() - lastLook >= every) soon();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    connect();
    soon();
  });
  // What this page did itself is seen at once, also where no socket comes about.
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.requestConfig?.verb !== "post") return;
    soon();
    // Where no answer came, or none that is a card, the news are all there is.
    const cards = [...heldBack.values()];
    heldBack.clear();
    const status = event.detail.xhr.status;
    if (!event.detail.successful && status !== 400 && status !== 409) for (const card of cards) replace(card);
  });

  // ---- what people do ----

  const everything = document.getElementById("everything");
  function toggleEverything() {
    const on = !root.hasAttribute("data-everything");
    root.toggleAttribute("data-everything", on);
    everything.setAttribute("aria-pressed", String(on));
  }
  everything.addEventListener("click", toggleEverything);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
    if (event.key === "e") toggleEverything();
    else if (event.key === "m") { event.preventDefault(); document.getElementById("message").focus(); }
  });
  // The inspector opens at once, and not with the entry that it showed before.
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-open='inspector']")) document.getElementById("inspected").replaceChildren();
  });
  // A menu closes once something in it was chosen.
  document.addEventListener("click", (event) => {
    const menu = event.target.closest("details.menu");
    if (menu && event.target.closest(".menu-list .button")) menu.open = false;
  });

  paint();
  const named = location.hash.slice(1) && document.getElementById(location.hash.slice(1));
  if (named) named.scrollIntoView({ block: "center" });
  else scrollToEnd();
  connect();
  setInterval(tick, 1000);
})();
