// Keys, the palette of commands, and messages.
"use strict";
{
  const typing = (at) => at.matches("input, textarea, select, [contenteditable]");
  const palette = document.getElementById("palette"), words = document.getElementById("palette-words");
  const found = document.getElementById("palette-found"), keys = document.getElementById("keys");

  // Rows -------------------------------------------------------------------------------------------------------------
  const rows = () => [...document.querySelectorAll("main [data-row]")];
  const step = (by) => {
    const all = rows();
    const at = all.findIndex((each) => each.contains(document.activeElement));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
    if (next) (next.querySelector("a, button, summary") ?? next).focus();
  };

  // Palette ----------------------------------------------------------------------------------------------------------
  let asking = 0, at = 0, items = [];
  const pages = () => [...document.querySelectorAll("nav a")].map((each) => ({
    label: each.textContent, hint: `g ${each.dataset.key}`, run: () => location.assign(each.href),
  }));
  const projects = () => [...document.querySelectorAll("#projects a")].map((each) => ({
    label: each.textContent, hint: "project", run: () => location.assign(each.href),
  }));
  const chosen = document.querySelector(".brand").search;  // "?project=…", which whatever is found keeps
  const actions = () => [...document.querySelectorAll("main [data-command]")].map((each) => ({
    label: each.dataset.command, hint: each.closest("[data-row]")?.querySelector("a")?.textContent ?? "action",
    run: () => { each.scrollIntoView({ block: "center" }); each.focus(); if (each.matches("summary")) each.click(); },
  }));
  const show = () => {
    found.replaceChildren(...items.map((each, number) => {
      const item = document.createElement("li");
      item.id = `found-${number}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(number === at));
      const hint = document.createElement("small");
      hint.textContent = each.hint;
      item.append(each.label, hint);
      item.addEventListener("click", () => pick(number));
      return item;
    }));
    words.setAttribute("aria-activedescendant", items.length ? `found-${at}` : "");
    found.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const search = async () => {
    const said = words.value.trim().toLowerCase(), mine = ++asking;
    items = [...actions(), ...pages(), ...projects()].filter((each) => `${each.label} ${each.hint}`.toLowerCase().includes(said));
    at = 0;
    show();
    if (!said) return;
    const answer = await fetch(`/find${chosen || "?"}&${new URLSearchParams({ words: words.value.trim() })}`);
    if (mine !== asking || !answer.ok) return;
    items.push(...(await answer.json()).items.map((each) => ({
      label: each.label, hint: each.hint, run: () => location.assign(each.url + chosen),
    })));
    show();
  };
  const pick = (number) => { const item = items[number]; palette.close(); item?.run(); };
  const openPalette = () => { words.value = ""; palette.showModal(); search(); };
  words.addEventListener("input", search);
  words.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { at = Math.max(0, Math.min(items.length - 1, at + by)); show(); event.preventDefault(); }
    if (event.key === "Enter") { pick(at); event.preventDefault(); }
  });
  document.getElementById("open-palette").addEventListener("click", openPalette);

  // Keys -------------------------------------------------------------------------------------------------------------
  let going = false;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openPalette(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    if (going) {
      going = false;
      document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    const act = {
      g: () => { going = true; setTimeout(() => { going = false; }, 1500); },
      j: () => step(1), k: () => step(-1), "?": () => keys.showModal(),
      p: () => { const menu = document.getElementById("projects"); if (menu) { menu.open = true; menu.querySelector("[aria-current]").focus(); } },
      "/": () => document.querySelector("main [data-filter]")?.focus(),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // Menus: opened, one types an action's reason; Escape closes them, and that of projects closes when one goes on --------
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details.action[open]")) event.target.querySelector("[name=reason]")?.focus();
  }, true);
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && event.target.closest?.("details.action[open], details.menu[open]");
    if (!open) return;
    open.removeAttribute("open");
    open.querySelector("summary").focus();
  });

  const closeProjects = ({ target, relatedTarget }) => {
    const menu = document.getElementById("projects");
    if (menu?.open && !menu.contains(relatedTarget ?? target)) menu.open = false;
  };
  document.addEventListener("click", closeProjects);
  document.addEventListener("focusout", closeProjects);

  // Outputs show their end, and follow it unless somebody has scrolled up; a phone's navigation shows where one is --------
  const scrolled = new WeakSet();
  const tail = () => document.querySelectorAll("[data-tail]").forEach((each) => {
    if (!scrolled.has(each)) each.scrollTop = each.scrollHeight;
  });
  document.addEventListener("scroll", ({ target }) => {
    if (!target.matches?.("[data-tail]")) return;
    const atEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 40;
    scrolled[atEnd ? "delete" : "add"](target);
  }, true);
  document.addEventListener("htmx:after:swap", tail);
  tail();
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Messages and actions ---------------------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    if (event.target.matches(".said .close")) event.target.closest(".said").remove();
    if (event.target.matches("[data-copy]")) {
      const command = event.target.previousElementSibling;
      getSelection().selectAllChildren(command);  // a browser has no clipboard for plain HTTP from elsewhere
      navigator.clipboard?.writeText(command.textContent).then(() => { event.target.textContent = "Copied"; });
    }
  });
  document.addEventListener("htmx:after:request", (event) => {  // an action that was taken closes its menu and is forgotten
    const { ctx } = event.detail;
    if (!(ctx?.response?.status < 400)) return;
    ctx.sourceElement.closest("form")?.reset();
    ctx.sourceElement.closest("details.action")?.removeAttribute("open");
  });
}
