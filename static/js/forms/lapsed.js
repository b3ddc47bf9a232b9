// Removes the value of an expired override from its form immediately, so that nobody reads it as active. The server
// renders the part again later, once it is not in use.
import { formatted } from "../values/format.js";
import { subscribe } from "../values/store.js";

export function start() {
  subscribe((snapshot) => {
    const inForce = new Set((snapshot.overrides ?? []).map((row) => String(row.id)));
    for (const row of document.querySelectorAll("tr[data-overridden]")) {
      const { overridden = "", expires } = row.dataset, over = expires && Number(expires) <= snapshot.at;
      if (inForce.has(overridden)) row.dataset.seen = "";
      if (over || ("seen" in row.dataset && !inForce.has(overridden))) lapse(row);
    }
  });
}

/** @param {HTMLElement} row */
function lapse(row) {
  const field = row.querySelector(".would"), untouched = field.value === field.dataset.is;
  const value = row.dataset.after ?? "", number = value !== "" && Number.isFinite(Number(value));
  row.querySelector("[data-present]").textContent = number ? formatted(Number(value)) : value;
  field.dataset.is = value;
  if (untouched) field.value = row.querySelector(".was").value = value;
  row.classList.remove("overridden");
  for (const name of ["overridden", "expires", "after", "seen"]) delete row.dataset[name];
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
