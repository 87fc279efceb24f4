// What the memory holds: search, edit, delete with undo, import, export.

import { $, ask, attempt, droppable, here, make, number, saveAs, say, storePath, watch } from "./page.js";
import { text } from "./texts.js";

const PAGE = 50;
let pairs = [], order = { by: null, down: false }, undone;

export function setUp() {
  $("#find").addEventListener("submit", (event) => { event.preventDefault(); attempt(load); });
  $("#new-pair").addEventListener("click", () => { pairs.unshift({ id: null, source: "", target: "" }); render(); edit($("#pairs tbody tr"), pairs[0]); });
  $("#import").addEventListener("change", (event) => { for (const file of event.target.files) attempt(() => importFile(file)); event.target.value = ""; });
  $("#export").addEventListener("click", () => attempt(() => exportAs($("#export-format").value)));
  $("#more").addEventListener("click", () => attempt(more));
  $("#undo button").addEventListener("click", () => attempt(undo));
  droppable($("#memory"), (file) => attempt(() => importFile(file)));
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      order = { by: button.dataset.sort, down: order.by === button.dataset.sort && !order.down };
      render();
    });
  }
}

export async function load() {
  pairs = [];
  await more();
}

async function more() {
  const query = new URLSearchParams({ q: $("#query").value, limit: PAGE, offset: pairs.length });
  const found = await ask(storePath(`memory?${query}`));
  pairs = [...pairs, ...found.pairs];
  $("#pairs-count").textContent = `${number(pairs.length, 9)} ${text("shown")} ${text("of")} ${number(found.total, 9)}`;
  $("#more").hidden = pairs.length >= found.total;
  render();
  if (!pairs.length) $("#pairs-count").textContent = text("nothing");
}

function render() {
  const sorted = order.by
    ? [...pairs].sort((a, b) => (a[order.by] ?? "").localeCompare(b[order.by] ?? "") * (order.down ? -1 : 1))
    : pairs;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const here = button.dataset.sort === order.by;
    button.parentElement.setAttribute("aria-sort", here ? (order.down ? "descending" : "ascending") : "none");
  }
  $("#pairs tbody").replaceChildren(...sorted.map(row));
}

function row(pair) {
  const element = $("#row-template").content.firstElementChild.cloneNode(true);
  const [source, target, corpus, date, actions] = element.children;
  source.textContent = pair.source;
  source.lang = here.store.source;
  target.textContent = pair.target;
  target.lang = here.store.target;
  corpus.textContent = pair.corpus?.split("/").pop() ?? "";
  date.textContent = pair.date?.slice(0, 10) ?? "";
  actions.append(
    make("button", { onclick: () => edit(element, pair) }, text("edit")),
    make("button", { onclick: () => attempt(() => remove(pair)), "aria-label": `${text("delete")}: ${pair.source}` }, text("delete")),
  );
  return element;
}

function edit(element, pair) {
  const [source, target, , , actions] = element.children;
  const boxes = [source, target].map((cell, place) => {
    const box = make("textarea", { rows: 3, "aria-label": text(place ? "targetText" : "sourceText") });
    box.value = place ? pair.target : pair.source;
    cell.replaceChildren(box);
    return box;
  });
  actions.replaceChildren(
    make("button", { class: "main", onclick: () => attempt(() => save(pair, ...boxes.map((box) => box.value.trim()))) }, text("save")),
    make("button", { class: "plain", onclick: () => attempt(load) }, text("cancel")),
  );
  boxes[pair.source ? 1 : 0].focus();
}

async function save(pair, source, target) {
  const body = { pairs: [{ source, target, ...(pair.id === null ? {} : { id: pair.id }) }] };
  await ask(storePath("memory"), { method: "PUT", body });
  await load();
  say(text("saved"));
}

async function remove(pair) {
  await ask(storePath(`memory/${encodeURIComponent(pair.id)}`), { method: "DELETE" });
  undone = pair;
  await load();
  $("#undo span").textContent = `${text("deleted")} ${pair.source}`;
  $("#undo").hidden = false;
  $("#undo button").focus();
}

async function undo() {
  await ask(storePath("memory"), { method: "POST", body: { pairs: [undone] } });
  $("#undo").hidden = true;
  await load();
}

async function importFile(file) {
  const bar = make("progress", { max: 1 });
  const label = make("span", {}, `${text("importing")}: ${file.name}`);
  const box = make("div", { role: "status" }, label, bar);
  $("#imports").append(box);
  try {
    const body = new FormData();
    body.append("file", file);
    const { job } = await ask(storePath("imports"), { method: "POST", body });
    const state = await watch(job, (told) => { if (told.total) { bar.max = told.total; bar.value = told.done; } });
    label.textContent = `${text("done")}: ${file.name}, ${number(state.done, 9)}`;
    bar.remove();
    await load();
  } catch (error) {
    label.textContent = `${text("failed")}: ${file.name}: ${error.message}`;
    bar.remove();
  }
}

async function exportAs(format) {
  saveAs(await ask(storePath(`export?format=${format}`)), `${here.store.name}.${format}`);
}
