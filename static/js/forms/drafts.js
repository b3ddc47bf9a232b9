// Drafts: typed values are kept in this tab when the session ends, and are restored after the login.

const DRAFTS = "weir:drafts", LOGGED_IN = "weir:through-login";
const SECRET = "input[type=password], input[type=file], input[type=hidden]";

/** Record that the user passed the login page, so that drafts are restored. */
export function passLogin() {
  sessionStorage.setItem(LOGGED_IN, "1");
}

/** Store each changed form of this page. */
export function keep() {
  const forms = [...document.querySelectorAll("form[method=post]")].map((form) => ({ action: form.getAttribute("action"), nth: nth(form), fields: changed(form) }));
  const touched = forms.filter(({ fields }) => fields.length);
  if (touched.length) sessionStorage.setItem(DRAFTS, JSON.stringify({ path: location.pathname, forms: touched }));
}

export function start() {
  // A form without fetch leaves the page. If the answer is the login page, this draft is restored after it.
  document.addEventListener("submit", ({ target }) => { if (target.matches("form[method=post]:not([data-steer])")) keep(); });
  const text = sessionStorage.getItem(DRAFTS), through = sessionStorage.getItem(LOGGED_IN);
  sessionStorage.removeItem(LOGGED_IN);
  if (!text) return;
  const draft = JSON.parse(text);
  if (through && draft.path !== location.pathname) return;
  sessionStorage.removeItem(DRAFTS); // without a login in between, the form was processed
  if (through) restore(draft.forms);
}

/** @param {FormDraft[]} forms */
function restore(forms) {
  let count = 0;
  for (const { action, nth: place, fields } of forms) {
    const form = [...document.querySelectorAll("form[method=post]")].filter((each) => each.getAttribute("action") === action)[place];
    if (!form) continue;
    form.closest("[hidden]")?.removeAttribute("hidden");
    for (const [name, index, value] of fields) put(named(form, name)[index], value);
    form.dispatchEvent(new Event("input", { bubbles: true }));
    count += 1;
  }
  if (count) document.dispatchEvent(new CustomEvent("weir:restored", { detail: count }));
}

/** @param {HTMLFormElement} form @param {string} name */
const named = (form, name) => [...form.elements].filter((field) => field.name === name);

/** @param {HTMLInputElement | undefined} field @param {string | boolean} value */
function put(field, value) {
  if (!field) return;
  if (field.matches("input[type=checkbox], input[type=radio]")) field.checked = Boolean(value);
  else field.value = String(value);
  field.dispatchEvent(new Event("change", { bubbles: true }));
}

/** Return [name, index among fields of that name, value] of each changed field, except secrets such as passwords.
 * @param {HTMLFormElement} form @returns {FormDraft["fields"]} */
function changed(form) {
  /** @type {Record<string, number>} */
  const seen = {};
  return [...form.elements].flatMap(/** @returns {FormDraft["fields"]} */ (field) => {
    if (!field.name) return [];
    const index = seen[field.name] = (seen[field.name] ?? -1) + 1;
    if (field.matches(`button, ${SECRET}`)) return [];
    if (field.matches("input[type=checkbox], input[type=radio]")) return field.checked === field.defaultChecked ? [] : [[field.name, index, field.checked]];
    const was = field.matches("select") ? [...field.options].find((option) => option.defaultSelected)?.value ?? field.options[0]?.value : field.defaultValue;
    return field.value === was ? [] : [[field.name, index, field.value]];
  });
}

/** @param {HTMLFormElement} form */
const nth = (form) => [...document.querySelectorAll("form[method=post]")].filter((each) => each.getAttribute("action") === form.getAttribute("action")).indexOf(form);
