"use strict";
// Everything on the page reads without this script; it adds the theme, the choice of runs, tips.
const root = document.documentElement;

const memory = {
  get(key) {
    try { return localStorage.getItem(key); } catch { return null; }
  },
  set(key, value) {
    try { localStorage.setItem(key, value); } catch { /* a page from disk may have no storage */ }
  },
};

function serve(name, apply) {
  const box = document.querySelector(`[data-choice="${name}"]`);
  if (!box) return () => {};
  box.hidden = false;
  box.addEventListener("change", (event) => apply(event.target.value));
  return (value) => {
    const button = [...box.querySelectorAll("input")].find((input) => input.value === value);
    if (!button) return;
    button.checked = true;
    apply(value);
  };
}

function showTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
}

const chooseTheme = serve("theme", (theme) => {
  showTheme(theme);
  memory.set("peerlearn-theme", theme);
});
const fromAddress = () => ["#dark", "#light"].includes(location.hash) && location.hash.slice(1);
chooseTheme(fromAddress() || memory.get("peerlearn-theme") || "auto");
addEventListener("hashchange", () => fromAddress() && chooseTheme(fromAddress()));

serve("group", (chosen) => {
  for (const part of document.querySelectorAll("[data-group]")) {
    part.hidden = chosen !== "all" && part.dataset.group !== chosen;
    const fold = part.querySelector("details.fold");
    if (fold && chosen !== "all") fold.open = true;
  }
});

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true"); // the same numbers stand in the tables
document.body.append(tip);
document.addEventListener("pointerover", (event) => {
  const text = event.target.closest?.("[data-tip]")?.dataset.tip;
  tip.hidden = !text;
  if (text) tip.textContent = text;
});
document.addEventListener("pointermove", (event) => {
  if (tip.hidden) return;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const above = event.clientY - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
});
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
