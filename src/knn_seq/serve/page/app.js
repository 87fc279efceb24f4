// The page: its sections, its language, its colours.

import * as documents from "./documents.js";
import * as glossary from "./glossary.js";
import * as memory from "./memory.js";
import { $, ask, attempt, here, make, say, useKey } from "./page.js";
import { TEXTS, text, useLanguage } from "./texts.js";
import * as translate from "./translate.js";

const TABS = ["translate", "memory", "glossary", "documents"];
const LOADED = { memory: memory.load, glossary: glossary.load };

function open(name, focus = false) {
  for (const each of TABS) {
    const tab = $(`#tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    $(`#${each}`).hidden = each !== name;
  }
  if (focus) $(`#tab-${name}`).focus();
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  say("");
  if (here.store && LOADED[name]) attempt(LOADED[name]);
}

const opened = () => TABS.find((name) => !$(`#${name}`).hidden) ?? "translate";

function chooseStore(name) {
  here.store = here.stores.find((store) => store.name === name) ?? here.stores[0];
  translate.showStore();
  if ($("#source").value) translate.later(0);
  open(opened());
}

async function loadStores() {
  here.stores = await ask("v1/stores");
  $("#store").replaceChildren(...here.stores.map((store) => make("option", { value: store.name }, store.name)));
  chooseStore(here.stores[0].name);
}

function chooseLanguage(code) {
  useLanguage(code);
  localStorage.setItem("language", code);
  $("#language").value = code;
  if (here.store) translate.showStore();
}

function chooseTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

for (const section of [translate, memory, glossary, documents]) section.setUp();
chooseTheme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
chooseLanguage(localStorage.getItem("language") ?? (navigator.languages.map((code) => code.slice(0, 2)).find((code) => code in TEXTS) ?? "en"));
$("#language").addEventListener("change", (event) => chooseLanguage(event.target.value));
$("#theme").addEventListener("click", () => chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
$("#store").addEventListener("change", (event) => chooseStore(event.target.value));
$("#key").addEventListener("click", () => { const key = prompt(text("enterKey")); if (key !== null) { useKey(key.trim()); attempt(loadStores); } });
TABS.forEach((name, place) => {
  $(`#tab-${name}`).addEventListener("click", () => open(name));
  $(`#tab-${name}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) open(TABS[(place + step + TABS.length) % TABS.length], true);
  });
});
open(TABS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "translate");
attempt(loadStores);
