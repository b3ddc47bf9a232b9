// Sending of changes. A key ensures that a repeated request runs only once, and typed values are kept.
import { keep } from "./drafts.js";

/** Fields that the server fills in, not the user. */
export const NOT_TYPED = ["csrfmiddlewaretoken", "submission"];

const PATIENCE_MILLISECONDS = 60_000; // after this, the outcome is unknown

/** Post a form's values. Returns {ok: true, …} or {ok: false, errors}. A repeated submission has the same key.
 * @param {string} url @param {FormData} body @returns {Promise<Answer>} */
export async function send(url, body, key = newKey()) {
  try {
    const headers = { Accept: "application/json", "Idempotency-Key": key, "X-CSRFToken": csrfToken() };
    const response = await fetch(url, { method: "POST", body, headers, signal: AbortSignal.timeout(PATIENCE_MILLISECONDS) });
    if (isLogin(response)) return logIn();
    if (!(response.headers.get("Content-Type") ?? "").includes("json")) {
      // The console answers in JSON. After a proxy's own page, it is unknown what the console did.
      if (response.status >= 500) return unknown(`A proxy returned ${response.status}.`);
      return { ok: false, errors: { form: [`The console returned ${response.status}. Nothing changed. Reload the page.`] } };
    }
    const answer = await response.json();
    if (answer.confirm) return confirmFirst(answer);
    return response.ok ? { ok: true, ...answer } : { ok: false, errors: answer.errors ?? { form: ["The request was rejected. Nothing changed."] } };
  } catch {
    return unknown("The console is not responding.");
  }
}

/** @param {string} why @returns {Answer} */
const unknown = (why) => ({ ok: false, unknown: true, errors: { form: [`${why} The outcome is unknown. Send the request again: a repeated request runs only once.`] } });

/** Create a key for a submission. randomUUID requires HTTPS or localhost, but consoles also run over plain HTTP. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return a form's values. Times are typed in the user's zone, or in UTC if the field says so, and are sent in UTC.
 * @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
export function valuesOf(form, submitter = null) {
  const values = new FormData(form, submitter);
  for (const field of form.querySelectorAll("input[type=datetime-local]:not(:disabled)")) {
    if (field.name && field.value) values.set(field.name, new Date(`${field.value}${"utc" in field.dataset ? "Z" : ""}`).toISOString());
  }
  return values;
}

/** @param {Response} response */
export const isLogin = (response) => response.redirected && response.url.includes("/login/");

/** Go to the login page because the session ended. Typed values are kept and restored after the login.
 * @returns {Answer} */
export function logIn() {
  keep();
  location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  return { ok: false, errors: { form: ["Your session ended. Log in again. Your input is kept."] } };
}

/** Go to the confirmation page, because the action requires a recent proof of identity. Typed values are kept.
 * @param {{ confirm: string, errors: Record<string, string[]> }} options @returns {Answer} */
function confirmFirst({ confirm, errors }) {
  keep();
  location.assign(`${confirm}?next=${encodeURIComponent(location.pathname + location.search)}`);
  return { ok: false, errors };
}

function csrfToken() {
  const cookie = document.cookie.split("; ").find((each) => each.startsWith("csrftoken="));
  return cookie ? decodeURIComponent(cookie.slice("csrftoken=".length)) : "";
}
