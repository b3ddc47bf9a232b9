// The newest snapshot and who wants to know of it. Merge patches (RFC 7396) are applied here.

const listeners = new Set();

export const store = {
  snapshot: null,
  connection: { state: "starting", since: Date.now() },
};

/** Calls back with (snapshot) now, when there is one, and after every change. */
export function subscribe(listener) {
  listeners.add(listener);
  if (store.snapshot) listener(store.snapshot);
  return () => listeners.delete(listener);
}

export function replace(snapshot) {
  store.snapshot = snapshot;
  if (!snapshot) return;
  for (const listener of listeners) listener(snapshot);
}

/** A merge patch applied to a document; neither is changed, and what the patch leaves alone is shared. */
export function merged(document, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const result = document !== null && typeof document === "object" && !Array.isArray(document) ? { ...document } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}

/** The value at a dotted path. A key may hold dots itself (host names), so the longest key that fits is taken. */
export function resolve(document, path) {
  let parts = path.split("."), value = document;
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

/** Remembers the state of the connection and tells the frame. */
export function connect(state, details = {}) {
  const before = store.connection;
  store.connection = { ...details, state, since: before.state === state ? before.since : Date.now() };
  document.dispatchEvent(new CustomEvent("weir:connection", { detail: store.connection }));
}
