// Small things that all sections of the page use.

import { text } from "./texts.js";

export const $ = (selector, inside = document) => inside.querySelector(selector);

/** An element: make("p", {class: "x", onclick: f}, "text", child …); text is always text, never markup. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function say(sentence, bad = false) {
  const message = $("#message");
  message.textContent = sentence;
  message.classList.toggle("bad", bad);
}

export class ApiError extends Error {}

let key = sessionStorage.getItem("key");

export function useKey(value) {
  key = value || null;
  if (key) sessionStorage.setItem("key", key); else sessionStorage.removeItem("key");
}

/** Ask the server; the answer of a request that was refused is an ApiError with its sentence. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const form = body instanceof FormData;
  if (body !== undefined && !form) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined || form ? body : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(text("unreachable"));
  }
  const json = response.headers.get("content-type")?.includes("json");
  const answer = json ? await response.json() : await response.blob();
  if (response.ok) return answer;
  if ([400, 403].includes(response.status) && /key/i.test(answer.error ?? "")) $("#key").hidden = false;
  throw new ApiError(answer.error ?? response.statusText);
}

/** Run what a person asked for, and tell what went wrong. */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    say(error.message, true);
    if (!(error instanceof ApiError)) throw error;
    return undefined;
  }
}

export const number = (value, digits = 2) =>
  value == null ? "–" : value.toLocaleString(document.documentElement.lang, { maximumSignificantDigits: digits });

/** A probability: what is next to nothing is not spelt out. */
export const probability = (value) => (value != null && value > 0 && value < 0.001 ? `< ${number(0.001)}` : number(value, 3));

export const here = { store: null, stores: [] }; // the datastore that is chosen, and all there are

export const storePath = (rest) => `v1/stores/${encodeURIComponent(here.store.name)}/${rest}`;

export function saveAs(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Watch a job of the server until it has ended; calls back with what is known of it. */
export async function watch(job, told) {
  for (;;) {
    const state = await ask(`v1/jobs/${encodeURIComponent(job)}`);
    told(state);
    if (state.state === "done") return state;
    if (state.state === "failed") throw new ApiError(state.error);
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

/** Let files be dropped on an element. */
export function droppable(element, take) {
  element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("over"); });
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("over");
    for (const file of event.dataTransfer.files) take(file);
  });
}
