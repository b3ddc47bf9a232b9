// Passkeys: asks the browser for a passkey, and sends its answer with the form.
import { send } from "./sending.js";

export function start() {
  // Older browsers can't read the options as JSON. Over plain HTTP, no browser has this interface.
  const supported = typeof window.PublicKeyCredential?.parseRequestOptionsFromJSON === "function";
  for (const part of document.querySelectorAll(supported ? "[data-passkey-offer]" : "[data-passkey-missing]")) part.hidden = false;
  document.addEventListener("submit", (event) => {
    if (event.target.matches("form[data-passkey]")) ask(event, event.target);
  });
}

/** @param {Event} event @param {HTMLFormElement} form */
async function ask(event, form) {
  event.preventDefault();
  show(form, "");
  const { options: address = "", passkey: purpose = "" } = form.dataset;
  const body = new FormData();
  body.set("purpose", purpose);
  const answer = await send(address, body);
  if (!answer.ok) return show(form, Object.entries(answer.errors).map(([field, messages]) => sentence(field, messages)).join(" "));
  try {
    form.elements.passkey.value = JSON.stringify(await credential(purpose, answer));
    form.submit();
  } catch (error) {
    show(form, reason(/** @type {DOMException} */ (error)));
  }
}

/** @param {string} purpose @param {any} options */
function credential(purpose, options) {
  if (purpose === "register") return navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
  return navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
}

/** @param {string} field @param {string[]} messages */
const sentence = (field, messages) => (field === "form" ? messages.join(" ") : `${field.charAt(0).toUpperCase()}${field.slice(1)} ${messages.join(" ")}`);

/** @param {DOMException} error */
function reason(error) {
  if (error.name === "InvalidStateError") return "This device already has a passkey for your account.";
  if (error.name === "NotAllowedError") return "The browser didn't return a passkey: the request was canceled, it timed out, or no passkey matches.";
  return `The browser couldn't use a passkey: ${error.message}`;
}

/** @param {HTMLFormElement} form @param {string} text */
function show(form, text) {
  const line = document.querySelector(`[data-passkey-error="${form.dataset.passkey}"]`);
  if (!line) return;
  line.textContent = text;
  line.hidden = !text;
}
