// Manual changes of points: a queue's 1,000 points per node, current and new, checked on each input. Dragging one
// node's slider takes points from the others in proportion, so the sum stays 1,000.
import { formatted } from "../values/format.js";

const TOTAL = 1000;

export function start() {
  document.querySelectorAll("form[data-points]").forEach(check);
  document.addEventListener("input", ({ target }) => {
    const form = target.closest("form[data-points]");
    if (!form) return;
    if (target.dataset.drag) drag(form, target);
    check(form);
  });
  document.addEventListener("reset", ({ target }) => { if (target.matches("form[data-points]")) setTimeout(() => check(target)); });
  document.addEventListener("weir:part", ({ detail }) => { const form = detail.closest("form[data-points]"); if (form) check(form); });
}

/** @param {HTMLFormElement} form */
function check(form) {
  const rows = [...form.querySelectorAll("[data-is]")].map(read);
  const changed = rows.filter((row) => row.would !== row.is);
  const sum = rows.reduce((total, row) => total + (Number.isFinite(row.would) ? row.would : 0), 0);
  rows.forEach((row) => {
    row.field.classList.toggle("changed", row.would !== row.is);
    const slider = form.querySelector(`[data-drag="${row.node}"]`);
    if (slider) slider.value = String(row.would);
  });
  const total = form.querySelector("[data-sum]");
  total.textContent = formatted(sum, "integer");
  total.classList.toggle("grave", sum !== TOTAL);
  const wrong = refusal(rows, sum, Number(form.dataset.minimum));
  const place = form.querySelector("[data-difference]");
  place.textContent = changed.length ? wrong || sentence(changed) : "Change the points to create a plan. Nothing moves before it is approved.";
  place.classList.toggle("grave", changed.length > 0 && wrong !== "");
  const button = form.querySelector("[data-effect]"), moved = changed.reduce((most, row) => most + Math.max(0, row.would - row.is), 0);
  button.disabled = !changed.length || wrong !== "";
  button.textContent = button.disabled ? button.dataset.effect ?? "" : `${button.dataset.effect}, move ${formatted(moved, "integer")} points`;
}

/** Set the dragged node to its slider's value. The nodes that may change share the rest in their former proportions.
 * @param {HTMLFormElement} form @param {HTMLInputElement} slider */
function drag(form, slider) {
  const rows = [...form.querySelectorAll("[data-is]")].map(read);
  const mine = rows.find((row) => row.node === slider.dataset.drag);
  if (!mine) return;
  const free = rows.filter((row) => row !== mine && !row.closed);
  const kept = rows.filter((row) => row !== mine && row.closed).reduce((sum, row) => sum + row.would, 0);
  const most = mine.closed ? Math.min(mine.is, TOTAL - kept) : TOTAL - kept;
  const value = free.length ? Math.min(Number(slider.value), most) : TOTAL - kept;
  const held = free.reduce((sum, row) => sum + row.would, 0);
  let left = TOTAL - kept - value;
  free.forEach((row, place) => {
    const share = place === free.length - 1 ? left : Math.round((TOTAL - kept - value) * (held ? row.would / held : 1 / free.length));
    row.field.value = String(Math.min(share, left));
    left -= Math.min(share, left);
  });
  mine.field.value = String(value);
}

/** @param {HTMLInputElement} field */
function read(field) {
  const text = field.value.trim();
  return { field, node: field.dataset.node ?? "", closed: field.dataset.closed, is: Number(field.dataset.is), would: text === "" ? 0 : Number(text) };
}

/** Return why the points can't become a plan, or an empty text.
 * @param {PointsRow[]} rows @param {number} sum @param {number} minimum */
function refusal(rows, sum, minimum) {
  const odd = rows.find((row) => !Number.isInteger(row.would) || row.would < 0 || row.would > TOTAL);
  if (odd) return `${odd.node}: enter a whole number from 0 to 1,000.`;
  const closed = rows.find((row) => row.closed && row.would > row.is);
  if (closed) return `${closed.node} is ${closed.closed}: it can't receive points.`;
  if (sum !== TOTAL) return `The sum is ${formatted(sum, "integer")}. ${sum < TOTAL ? `Add ${TOTAL - sum}` : `Remove ${formatted(sum - TOTAL, "integer")}`} to reach 1,000.`;
  const containers = rows.filter((row) => row.would > 0).length;
  return containers < minimum ? `The queue needs points on at least ${minimum} nodes; this change leaves ${containers}.` : "";
}

/** @param {PointsRow[]} changed */
function sentence(changed) {
  const less = changed.filter((row) => row.would < row.is), more = changed.filter((row) => row.would > row.is);
  const words = (/** @type {PointsRow[]} */ list, /** @type {string} */ verb) => list.map((row) => `${row.node} ${verb} ${Math.abs(row.would - row.is)}`).join(", ");
  return `${words(less, "loses")}; ${words(more, "gains")}. Waiting events are consumed on their current node.`;
}
