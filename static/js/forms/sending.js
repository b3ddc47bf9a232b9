// A change goes to the server once: under a key, so that what is sent twice is done once; what was typed is never lost.
import { keep } from "./drafts.js";

/** Fields of each form that the server fills in for itself. */
export const NOT_TYPED = ["csrfmiddlewaretoken", "submission"];

const PATIENCE_MILLISECONDS = 60_000; // of a console that is frozen nobody knows what it will do

/** Posts a form's values; gives {ok, …} or {ok: false, errors}. The key names one submission, however often it is sent. */
export async function send(url, body, key = newKey()) {
  try {
    const headers = { Accept: "application/json", "Idempotency-Key": key, "X-CSRFToken": csrfToken() };
    const response = await fetch(url, { method: "POST", body, headers, signal: AbortSignal.timeout(PATIENCE_MILLISECONDS) });
    if (isLogin(response)) return logIn();
    if (!(response.headers.get("Content-Type") ?? "").includes("json")) {
      // The console answers in JSON: of a proxy's own page nobody knows what the console did before it.
      if (response.status >= 500) return unknown(`A proxy returned ${response.status}.`);
      return { ok: false, errors: { form: [`The console returned ${response.status}. Nothing changed. Reload the page.`] } };
    }
    const answer = await response.json();
    if (answer.confirm) return confirmFirst(answer);
    return response.ok ? { ok: true, ...answer } : { ok: false, status: response.status, errors: answer.errors ?? { form: ["The request was rejected. Nothing changed."] } };
  } catch {
    return unknown("The console is not responding.");
  }
}

const unknown = (why) => ({ ok: false, unknown: true, errors: { form: [`${why} The outcome is unknown. Send the request again: a repeated request runs only once.`] } });

/** A name for one submission. (randomUUID is there on https and this host only, and consoles stand in plain networks.) */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A form's values; times are typed in the reader's zone, or in UTC where the field says so, and sent with their zone. */
export function valuesOf(form, submitter = null) {
  const values = new FormData(form, submitter);
  for (const field of form.querySelectorAll("input[type=datetime-local]:not(:disabled)")) {
    if (field.name && field.value) values.set(field.name, new Date(`${field.value}${"utc" in field.dataset ? "Z" : ""}`).toISOString());
  }
  return values;
}

export const isLogin = (response) => response.redirected && response.url.includes("/login/");

/** The session has ended: what is typed is kept, and stands in its form again after the login. */
export function logIn() {
  keep();
  location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  return { ok: false, errors: { form: ["Your session ended. Log in again. Your input is kept."] } };
}

/** An act of consequence takes a proof of the last minutes: what is typed is kept until one has given it. */
function confirmFirst({ confirm, errors }) {
  keep();
  location.assign(`${confirm}?next=${encodeURIComponent(location.pathname + location.search)}`);
  return { ok: false, errors };
}

function csrfToken() {
  const cookie = document.cookie.split("; ").find((each) => each.startsWith("csrftoken="));
  return cookie ? decodeURIComponent(cookie.slice("csrftoken=".length)) : "";
}
