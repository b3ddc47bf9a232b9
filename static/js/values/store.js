// The newest snapshot and its listeners. Merge patches (RFC 7396) are applied here.

/** @type {Set<(snapshot: LiveSnapshot) => void>} */
const listeners = new Set();

/** @type {{ snapshot: LiveSnapshot | null, connection: Connection }} */
export const store = {
  snapshot: null,
  connection: { state: "starting", since: Date.now() },
};

/** Call listener(snapshot) now, if there is a snapshot, and after each change. Returns a function that unsubscribes.
 * @param {SnapshotListener} listener */
export function subscribe(listener) {
  listeners.add(listener);
  if (store.snapshot) listener(store.snapshot);
  return () => listeners.delete(listener);
}

/** @param {LiveSnapshot | null} snapshot */
export function replace(snapshot) {
  store.snapshot = snapshot;
  if (!snapshot) return;
  for (const listener of listeners) listener(snapshot);
}

/** Return a document with a merge patch applied. Neither is modified, and unchanged parts are shared.
 * @param {any} document @param {any} patch @returns {any} */
export function merged(document, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const result = document !== null && typeof document === "object" && !Array.isArray(document) ? { ...document } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}

/** Return the value at a dotted path. A key, such as a host name, may contain dots: the longest matching key wins.
 * @param {object | null} document @param {string} path @returns {any} */
export function resolve(document, path) {
  let parts = path.split("."), /** @type {any} */ value = document;
  while (parts.length) {
    if (value === null || value === undefined || typeof value !== "object") return null;
    let taken = parts.length;
    while (taken > 0 && !Object.hasOwn(value, parts.slice(0, taken).join("."))) taken -= 1;
    if (!taken) return null;
    value = value[parts.slice(0, taken).join(".")];
    parts = parts.slice(taken);
  }
  return value ?? null;
}

/** Store the connection state and dispatch the event weir:connection.
 * @param {string} state */
export function connect(state, /** @type {{ word?: string }} */ details = {}) {
  const before = store.connection;
  store.connection = { ...details, state, since: before.state === state ? before.since : Date.now() };
  document.dispatchEvent(new CustomEvent("weir:connection", { detail: store.connection }));
}
