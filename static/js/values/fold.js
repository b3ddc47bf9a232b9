// Folding of long lists: the worst rows stay single, and the others become one row. The selection is stable, so that a
// map of many nodes doesn't keep moving.

const KEPT_MILLISECONDS = 30_000;
/** @type {Map<string, { names: Set<string>, at: number }>} the selection by kind */
const kept = new Map();

/**
 * Split [name, row] pairs into {single, rest}, both in their order. The worst rows are single, as many as "most" says.
 * badness(row) is at least 1 for an overloaded row. The selection lasts 30 s. An overloaded row outside it causes a new
 * selection, unless all selected rows are overloaded too.
 * @template Row @param {string} kind @param {[string, Row][]} rows @param {number} most
 * @param {(row: Row) => number} badness
 */
export function folded(kind, rows, most, badness, now = performance.now()) {
  if (rows.length <= most + 1) return { single: rows, rest: [] };
  const before = kept.get(kind), names = new Set(rows.map(([name]) => name));
  const overlooked = before && rows.some(([name, row]) => badness(row) >= 1 && !before.names.has(name));
  const held = before && now - before.at < KEPT_MILLISECONDS && [...before.names].every((name) => names.has(name))
    && (!overlooked || rows.every(([name, row]) => !before.names.has(name) || badness(row) >= 1));
  const alone = held ? before.names : new Set(worst(rows, most, badness));
  if (!held) kept.set(kind, { names: alone, at: now });
  return { single: rows.filter(([name]) => alone.has(name)), rest: rows.filter(([name]) => !alone.has(name)) };
}

/** @template Row @param {[string, Row][]} rows @param {number} most @param {(row: Row) => number} badness */
function worst(rows, most, badness) {
  return [...rows].sort((one, other) => badness(other[1]) - badness(one[1])).slice(0, most).map(([name]) => name);
}
