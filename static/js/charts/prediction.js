// The prediction of the model, requested while gains are typed. Answers to older requests are dropped.
const PAUSE_MILLISECONDS = 200;

let timer = 0, newest = 0;

export function start() {
  document.addEventListener("input", ({ target }) => { if (target.closest("#steer, [data-asks]")) later(); });
  document.addEventListener("reset", ({ target }) => { if (target.matches("#steer")) later(); });
  document.addEventListener("weir:part", ({ detail }) => { if (detail.matches("#steer") || (detail.matches("#prediction") && asked())) later(); });
}

function later() {
  if (!document.getElementById("prediction")) return;
  clearTimeout(timer);
  timer = setTimeout(ask, PAUSE_MILLISECONDS);
}

const questions = () => document.querySelectorAll("input[data-asks]");

/** Check if a what-if field beside the parameters has a value. */
const asked = () => [...questions()].some(({ value }) => value.trim());

async function ask() {
  const number = ++newest, place = document.getElementById("prediction"), form = document.getElementById("steer");
  if (!place) return;
  const fields = [...form.querySelectorAll("input.would, select.would, input.unit, input.was"), ...questions()];
  const values = new URLSearchParams(fields.map(({ name, value }) => [name, value]));
  try {
    const response = await fetch(`${place.dataset.url}?${values}`, { headers: { Accept: "text/html" } });
    if (!response.ok || response.redirected) throw new Error(String(response.status));
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("prediction");
    if (number === newest && fresh) document.getElementById("prediction")?.replaceWith(fresh);
  } catch {
    const words = place.querySelector("[role=status]");
    if (number === newest && words) words.textContent = "No prediction: the console is not responding.";
  }
}
