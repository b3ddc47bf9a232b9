// Of many rows the worst stand alone and the others are one. Who stands alone changes only when it must, so that a map of
// two hundred nodes is as still as one of three.

const KEPT_MILLISECONDS = 30_000;
const kept = new Map(); // kind → { names, at }

/**
 * {single, rest} of [name, row] pairs, both in their order. `badness(row)` is 0 for what is well; up to `most` stand alone.
 * The choice holds for 30 s, unless something is overloaded that is not among them.
 */
export function folded(kind, rows, most, badness, now = performance.now()) {
  if (rows.length <= most + 1) return { single: rows, rest: [] };
  const before = kept.get(kind), names = new Set(rows.map(([name]) => name));
  const overlooked = before && rows.some(([name, row]) => badness(row) >= 1 && !before.names.has(name));
  const held = before && now - before.at < KEPT_MILLISECONDS && [...before.names].every((name) => names.has(name))
    && (!overlooked || [...before.names].every((name) => badness(rows.find(([other]) => other === name)[1]) >= 1));
  if (!held) kept.set(kind, { names: new Set(worst(rows, most, badness)), at: now });
  const alone = kept.get(kind).names;
  return { single: rows.filter(([name]) => alone.has(name)), rest: rows.filter(([name]) => !alone.has(name)) };
}

function worst(rows, most, badness) {
  return [...rows].sort((one, other) => badness(other[1]) - badness(one[1])).slice(0, most).map(([name]) => name);
}
