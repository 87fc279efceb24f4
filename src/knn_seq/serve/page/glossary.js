// Terms whose translation is binding.

import { $, ask, attempt, make, storePath } from "./page.js";
import { text } from "./texts.js";

export function setUp() {
  $("#term").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      const { source, target } = Object.fromEntries(new FormData(event.target));
      await ask(storePath("glossary"), { method: "POST", body: { terms: [{ source, target }] } });
      event.target.reset();
      await load();
    });
  });
}

export async function load() {
  const { terms } = await ask(storePath("glossary"));
  $("#terms tbody").replaceChildren(...terms.map((term) => make("tr", {},
    make("td", {}, term.source), make("td", {}, term.target),
    make("td", { class: "buttons" }, make("button", {
      "aria-label": `${text("delete")}: ${term.source}`,
      onclick: () => attempt(async () => {
        await ask(storePath(`glossary?source=${encodeURIComponent(term.source)}`), { method: "DELETE" });
        await load();
      }),
    }, text("delete"))))));
}
