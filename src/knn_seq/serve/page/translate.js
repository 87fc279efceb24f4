// Source left, translation right; who decided each word; corrections.

import { $, ask, attempt, here, make, number, probability, say, storePath } from "./page.js";
import { languageName, text } from "./texts.js";

const PAUSE = 350; // milliseconds without a key before a text is translated
const K = [1, 2, 4, 8, 16, 32, 64, 128];
let timer, running, shown;

export function setUp() {
  $("#source").addEventListener("input", () => later());
  for (const id of ["k", "temperature", "weight"]) {
    $(`#${id}`).addEventListener("input", (event) => { event.target.dataset.given = "1"; showValues(); later(); });
  }
  for (const id of ["combiner", "retriever"]) $(`#${id}`).addEventListener("change", () => { showValues(); later(0); });
  $("#reset").addEventListener("click", () => { showStore(); later(0); });
  $("#copy").addEventListener("click", () => attempt(async () => {
    await navigator.clipboard.writeText(shown.text);
    say(text("copied"));
  }));
  $("#correct").addEventListener("click", startCorrection);
  $("#cancel").addEventListener("click", endCorrection);
  $("#correction").addEventListener("submit", (event) => { event.preventDefault(); attempt(saveCorrection); });
  $("#corrected").addEventListener("keydown", (event) => {
    if (event.key === "Escape") endCorrection();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); attempt(saveCorrection); }
  });
}

export function showStore() {
  const { source, target, settings, combiners } = here.store;
  $("#source-language").textContent = languageName(source);
  $("#target-language").textContent = languageName(target);
  $("#source").lang = source;
  $("#target").lang = $("#corrected").lang = target;
  $("#combiner").replaceChildren(...combiners.map((name) => make("option", { value: name, selected: name === settings.combiner }, name)));
  const retrievers = here.store.retrievers ?? ["full"];
  $("#retriever").replaceChildren(...retrievers.map((name) => make("option", { value: name, selected: name === settings.retriever }, name)));
  $("#k").value = Math.max(K.findIndex((k) => k >= settings.k), 0);
  $("#temperature").value = Math.log2(settings.temperature);
  $("#weight").value = settings.weight;
  for (const id of ["k", "temperature", "weight"]) delete $(`#${id}`).dataset.given;
  showValues();
}

function showValues() {
  const values = { k: K[$("#k").value], temperature: 2 ** $("#temperature").value, weight: Number($("#weight").value) };
  for (const [id, value] of Object.entries(values)) $(`output[for="${id}"]`).textContent = number(value, 3);
  // A trained combiner has a temperature of its own.
  $("#temperature-label").hidden = !["fixed", "distance"].includes($("#combiner").value);
}

function options() {
  const { settings } = here.store;
  const chosen = {};
  if ($("#combiner").value !== settings.combiner) chosen.combiner = $("#combiner").value;
  if ($("#retriever").value !== settings.retriever) chosen.retriever = $("#retriever").value;
  if ($("#k").dataset.given) chosen.k = K[$("#k").value];
  if ($("#weight").dataset.given) chosen.weight = Number($("#weight").value);
  if ($("#temperature").dataset.given && !$("#temperature-label").hidden) chosen.temperature = 2 ** $("#temperature").value;
  return chosen;
}

export function later(pause = PAUSE) {
  clearTimeout(timer);
  timer = setTimeout(() => attempt(translate), pause);
}

async function translate() {
  running?.abort();
  const source = $("#source").value;
  if (!source.trim()) return show(null);
  running = new AbortController();
  $("#target").classList.add("waiting");
  try {
    const chosen = options();
    // Other settings are tried out: then the memory's own translation would hide what they do.
    const exact = !Object.keys(chosen).length;
    const body = { texts: [source], store: here.store.name, explain: true, base: true, alternatives: 2, exact, options: chosen };
    const answer = await ask("v1/translate", { method: "POST", body, signal: running.signal });
    say("");
    show({ source, ...answer.translations[0] });
  } finally {
    $("#target").classList.remove("waiting");
  }
  return undefined;
}

function show(translation) {
  shown = translation;
  endCorrection();
  $("#actions").hidden = !translation;
  for (const id of ["voters", "base", "alternatives"]) $(`#${id}`).hidden = !translation;
  if (!translation) return $("#target").replaceChildren();
  $("#target").replaceChildren(...pieces(translation));
  $("#learned").hidden = !translation.learned;
  $("#why").replaceChildren(make("p", { class: "faint" }, text("clickWord")));
  $("#base p").replaceChildren(...differing(translation.base, translation.text));
  const others = translation.alternatives.filter((other, place, all) => other !== translation.text && all.indexOf(other) === place);
  $("#alternatives").hidden = !others.length;
  $("#alternatives ul").replaceChildren(...others.map((other) => make("li", {}, other)));
  return undefined;
}

/** A text in which the words are marked that another one does not have in this order. */
function differing(own, other) {
  const [words, others] = [own, other].map((each) => each.match(/\s+|[^\s]+/gu) ?? []);
  const common = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i--) {
    for (let j = others.length - 1; j >= 0; j--) {
      common[i][j] = words[i] === others[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const made = [];
  for (let i = 0, j = 0; i < words.length; ) {
    if (words[i] === others[j]) {
      made.push(words[i++]);
      j++;
    } else if (j < others.length && common[i][j + 1] > common[i + 1][j]) {
      j++;
    } else {
      made.push(words[i].trim() ? make("mark", {}, words[i]) : words[i]);
      i++;
    }
  }
  return made;
}

/** The text with its words as buttons: sentences lie in it in their order, with other text between them. */
function pieces(translation) {
  const made = [];
  let rest = translation.text;
  for (const sentence of translation.sentences) {
    const start = rest.indexOf(sentence.translation);
    if (start < 0) continue;
    made.push(rest.slice(0, start), ...sentence.words.map((word) => wordElement(word, sentence)));
    rest = rest.slice(start + sentence.translation.length);
  }
  return [...made, rest];
}

/** How much of a token's probability came from neighbours, 0 to 1. */
const share = (token) => token.probability ? Math.min(1, (token.weight * token.neighbour_probability) / token.probability) : 0;

function wordElement(word, sentence) {
  if (!word.tokens.length) return word.text;
  const tokens = word.tokens.map((place) => sentence.tokens[place]);
  const part = tokens.reduce((sum, token) => sum + share(token), 0) / tokens.length;
  const percent = `${Math.round(100 * part)} % ${text("neighboursShare")}`;
  const element = make("button", {
    class: tokens.some((token) => token.changed) ? "word changed" : "word", type: "button", title: percent,
    "aria-pressed": "false", "aria-label": `${word.text}, ${percent}`,
    onclick: () => explain(element, word, tokens),
  }, word.text);
  element.style.setProperty("--share", part.toFixed(3));
  return element;
}

function explain(element, word, tokens) {
  for (const other of document.querySelectorAll(".word")) other.setAttribute("aria-pressed", String(other === element));
  $("#voters").open = true;
  $("#why").replaceChildren(make("p", {}, make("strong", {}, word.text)), ...tokens.flatMap(voters));
}

function voters(token) {
  const lines = [make("p", { class: "faint" },
    `${token.token}: λ ${probability(token.weight)}, p ${probability(token.probability)}, ` +
    `p(${text("byModel")}) ${probability(token.model_probability)}, p(${text("byNeighbours")}) ${probability(token.neighbour_probability)}`)];
  if (token.changed) lines.push(make("p", { class: "faint" }, `${text("modelSaid")}: ${token.model_choice}`));
  if (!token.neighbours.length) lines.push(make("p", {}, text("noNeighbours")));
  for (const neighbour of token.neighbours) {
    const bar = make("i");
    bar.style.setProperty("--part", neighbour.probability);
    const target = neighbour.around
      ? make("p", {}, neighbour.around[0], make("mark", {}, neighbour.around[1]), neighbour.around[2])
      : make("p", {}, neighbour.target);
    const origin = [neighbour.id, neighbour.corpus?.split("/").pop(), neighbour.date?.slice(0, 10)].filter(Boolean).join(" · ");
    lines.push(make("div", { class: "voter" },
      make("div", { class: "number", title: text("probability") }, probability(neighbour.probability), make("div", { class: "meter" }, bar)),
      target, make("p", { class: "faint", lang: here.store.source }, neighbour.source),
      make("p", { class: "origin" }, `${text("distance")} ${number(neighbour.distance, 3)}${origin ? ` · ${origin}` : ""}`)));
  }
  return lines;
}

function startCorrection() {
  $("#corrected").value = shown.text;
  $("#correction").hidden = false;
  $("#actions").hidden = true;
  $("#corrected").focus();
}

function endCorrection() {
  $("#correction").hidden = true;
  $("#actions").hidden = !shown;
}

async function saveCorrection() {
  const pair = { source: $("#source").value.trim(), target: $("#corrected").value.trim() };
  if (!pair.target) return;
  await ask(storePath("memory"), { method: "PUT", body: { pairs: [pair] } });
  endCorrection();
  await translate();
  say(text("saved"));
}
