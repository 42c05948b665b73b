// Keeps the page true without a reload: an event of the API's stream becomes the event `changed` on the body, at which its
// parts ask for themselves anew (`hx-trigger="changed from:body"`). While somebody types or a menu is open, they wait.
// One window listens for all of a browser, which has few connections to one server. Without a stream, windows ask every 2 s.
// No event says that time passes, a worker is silent or beat is dead: a page that nothing changed asks every 15 s all the same.
"use strict";
{
  const POLL = 2000, SETTLE = 150, AGAIN = 30000, STALE = 15000;
  const sign = document.getElementById("live"), others = new BroadcastChannel("interlock-live");
  let place = null, due = false, timer = 0, stream = null, heard = 0, fresh = Date.now(), asked = 0;

  const busy = () => {
    const typed = (each) => each.type !== "hidden" && each.type !== "range" && each.value !== (each.defaultValue ?? each.value);
    const at = document.activeElement, main = document.getElementById("main");
    if (at && main.contains(at) && at.matches("input:not([type=range]), textarea, select")) return true;
    return main.querySelector("details.action[open]") !== null || [...main.querySelectorAll("input, textarea")].some(typed);
  };
  const refresh = () => {
    timer = 0;
    due = document.hidden || busy();
    if (due) return;
    asked ||= Date.now();
    document.body.dispatchEvent(new CustomEvent("changed"));
  };
  const changed = () => { timer ||= setTimeout(refresh, SETTLE); };
  const say = (state, words) => {
    const stale = state === "on" && asked && Date.now() - asked > 2 * POLL;  // the page has asked for itself, in vain
    sign.dataset.state = stale ? "off" : state;
    sign.textContent = stale ? `as of ${new Date(fresh).toLocaleTimeString()}` : words;
  };
  document.addEventListener("htmx:after:request", (event) => {
    const { ctx } = event.detail;
    if (ctx?.sourceElement?.id === "main" && ctx.response?.status < 400) { fresh = Date.now(); asked = 0; }
  });

  const listen = () => {
    stream = new EventSource("/api/events");
    stream.onopen = () => { say("on", "live"); others.postMessage("on"); if (asked) changed(); };
    stream.onmessage = () => { changed(); others.postMessage("changed"); };
    stream.onerror = () => {
      if (stream?.readyState !== EventSource.CLOSED) return;  // it comes back by itself
      stream = null;
      setTimeout(listen, AGAIN);
    };
  };
  others.onmessage = (told) => { heard = Date.now(); if (told.data === "changed") changed(); say("on", "live"); };

  const poll = async () => {
    const streaming = stream?.readyState === EventSource.OPEN;
    if (streaming) others.postMessage("on");
    if (!document.hidden && !streaming && Date.now() - heard > 2 * POLL) {
      try {
        const answer = await fetch("/live", { cache: "no-store", redirect: "manual" });
        if (answer.type === "opaqueredirect") { location.assign("/sign-in"); return; }
        if (!answer.ok) throw new Error(answer.statusText);
        const now = (await answer.json()).place;
        if (place !== null && now !== place) changed();
        place = now;
        say("on", "live");
      } catch { say("off", "not live"); }
    }
    if (streaming) say("on", "live");
    if (due || Date.now() - Math.max(fresh, asked) > STALE) changed();
    setTimeout(poll, POLL);
  };

  document.addEventListener("visibilitychange", () => { if (!document.hidden && due) changed(); });
  if (navigator.locks) navigator.locks.request("interlock-live", () => { listen(); return new Promise(() => {}); });
  else listen();
  poll();
}
