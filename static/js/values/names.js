// Sentences with the names of subjects on a tint, so that the queue "slow" does not read as a word. The server does the
// same (console/templatetags/filters.py, named).

const UNITS = /(\d) (?=(?:ms|s|min|h|d|%|MiB|GiB)(?!\w))/g;

/** Return the names of the queues, nodes, and worker hosts that a finding is about.
 * @param {SubjectFinding} finding */
function namesOf({ subject, affected = [] }) {
  const parts = [subject, ...affected].map((key) => /** @type {const} */ ([key.split("/")[0], key.slice(key.indexOf("/") + 1)]));
  return parts.filter(([kind]) => ["queue", "node", "host"].includes(kind)).map(([, name]) => name);
}

/** Write a sentence into an element, only if it changed.
 * @param {Element} element @param {string} sentence @param {SubjectFinding | undefined} finding */
export function writeSentence(element, sentence, finding) {
  const text = sentence.replace(UNITS, "$1\u00a0"), names = finding ? namesOf(finding) : [];
  if (element.textContent === text) return;
  if (!names.length) return element.replaceChildren(text);
  const escaped = names.sort((one, other) => other.length - one.length).map((name) => name.replace(/[^\w]/g, "\\$&"));
  const parts = text.split(new RegExp(`(?<![\\w-])(${escaped.join("|")})(?![\\w-])`));
  element.replaceChildren(...parts.map((part, place) => (place % 2 ? Object.assign(document.createElement("mark"), { textContent: part }) : part)));
}
