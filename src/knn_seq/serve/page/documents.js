// A file in, the same file translated out.

import { $, ask, attempt, droppable, make, number, saveAs, storePath, watch } from "./page.js";
import { text } from "./texts.js";

const REPORTED = ["segments", "words", "exact_matches", "by_neighbours", "placeholders_repaired", "terms_applied", "seconds"];

export function setUp() {
  $("#document").addEventListener("change", (event) => { for (const file of event.target.files) attempt(() => translate(file)); event.target.value = ""; });
  droppable($("#drop-document"), (file) => attempt(() => translate(file)));
}

async function translate(file) {
  const bar = make("progress", { max: 1 });
  const label = make("p", {}, `${text("translating")}: ${file.name}`);
  const box = make("div", { role: "status" }, label, bar);
  $("#jobs").prepend(box);
  try {
    const body = new FormData();
    body.append("file", file);
    const { job } = await ask(storePath("documents"), { method: "POST", body });
    const state = await watch(job, (told) => { if (told.total) { bar.max = told.total; bar.value = told.done; } });
    label.textContent = `${text("done")}: ${file.name}`;
    bar.replaceWith(report(state.report ?? {}), make("p", { class: "buttons" }, make("button", {
      class: "main",
      onclick: () => attempt(async () => saveAs(await ask(`v1/jobs/${encodeURIComponent(job)}/result`), state.name ?? file.name)),
    }, text("download"))));
  } catch (error) {
    label.textContent = `${text("failed")}: ${file.name}: ${error.message}`;
    bar.remove();
  }
}

const report = (told) => make("dl", { class: "report" }, ...REPORTED.filter((name) => told[name] != null).flatMap((name) => [
  make("dt", {}, text(name)), make("dd", {}, number(told[name], 4)),
]));
