// The pipeline's map: queues → intra-event replicas → result queue → combiner → operators, level by level → sinks.
import { bandMap } from "../charts/band_map.js";
import { STATE_WORDS } from "../values/rules.js";
import { unit } from "../values/format.js";
import { NOT_JUDGED } from "../values/bind.js";
import { resolve, subscribe } from "../values/store.js";

const host = document.getElementById("pipeline-map");
// Thresholds of a busy part, as for nodes (queues/nodes/node_state.py).
const BUSY = Number(host?.dataset.busy), TOOBUSY = Number(host?.dataset.toobusy);
/** @type {Record<string, number>} */
const WIDTHS = { source: 126, replicas: 150, result: 152, combiner: 152, operators: 152, sinks: 126 };
/** @type {Record<string, number>} */
const HEIGHTS = { source: 64, result: 104, sinks: 46 };
const MIN_WIDTH = 1200, MIN_GAP = 44;

/** Return the state by utilization. Parts have no thresholds of their own, so those of nodes apply.
 * @param {{ utilisation: number | null, in_per_second: number | null }} row */
function stateOf(row) {
  if (row.utilisation == null) return "UNKNOWN";
  if (row.utilisation >= TOOBUSY) return "TOOBUSY";
  if (row.utilisation >= BUSY) return "BUSY";
  return (row.in_per_second ?? 0) > 0 ? "NORMAL" : "IDLE";
}

const OVERLOADED = ["BUSY", "TOOBUSY"];

/** @param {number} levels */
function columns(levels) {
  const kinds = ["source", "replicas", "result", "combiner", ...Array(levels).fill("operators"), "sinks"];
  const titles = ["Source", "Replicas", "", "", ...Array.from({ length: levels }, (_, level) => (level ? `Level ${level + 1}` : "Operators")), "Sinks"];
  const whole = kinds.reduce((total, kind) => total + WIDTHS[kind], 0);
  const gap = Math.max(MIN_GAP, (MIN_WIDTH - whole) / (kinds.length - 1));
  let x = 0;
  const made = kinds.map((kind, place) => {
    const column = { title: titles[place], x, width: WIDTHS[kind], height: HEIGHTS[kind] ?? 74 };
    x += WIDTHS[kind] + gap;
    return column;
  });
  return { columns: made, width: x - gap };
}

/** @param {string} id @param {string} name @param {(ReplicaStatus | OperatorStatus) & { shed_share?: number }} row
 * @param {string} word @param {string} text @param {string} [url] @returns {Box} */
function busyBox(id, name, row, word, text, url) {
  const state = stateOf(row);
  const shed = (row.shed_share ?? 0) > 0 ? [["shed", unit(row.shed_share, "percent1", "%")]] : [];
  return {
    id, name, rate: row.in_per_second, state, url, share: row.utilisation ?? 0,
    lines: [[word, text], ...shed, [STATE_WORDS[state] ?? "Unknown", unit(row.utilisation, "percent", "%")]],
  };
}

/** Return the boxes, the links, and the number of operator levels of an application's map.
 * @param {LiveSnapshot} snapshot @param {string} name @param {ApplicationStatus} row
 * @param {string | undefined} chosen */
export function model(snapshot, name, row, chosen) {
  const levels = Math.max(0, ...Object.values(row.operators).map((each) => each.level)) + 1;
  const setpoint = snapshot.loops?.[`flow/${name}`]?.setpoint, room = row.result_queue, capacity = room.capacity_bytes ?? 0;
  const fullness = { utilisation: room.used_bytes / capacity, in_per_second: row.kept_per_second };
  const replicas = Object.entries(row.replicas), operators = Object.entries(row.operators);
  /** @type {Box[][]} */
  const boxes = [
    row.queues.map((queue) => ({ id: `queue ${queue}`, name: queue, rate: snapshot.queues?.[queue]?.in_per_second, url: `/queues/${queue}/`, lines: [["waiting", unit(snapshot.queues?.[queue]?.waiting_events, "integer")], ["wait", unit(snapshot.queues?.[queue]?.wait_seconds, "seconds", "s")]] })),
    replicas.map(([id, each]) => busyBox(`replica ${id}`, id, each, "share", unit(each.share, "percent", "%"))),
    [{
      id: "result", name: "Result queue", figure: unit(room.used_bytes / capacity, "percent", "%"), state: stateOf(fullness),
      lines: [["free", unit(room.free_bytes, "mebibytes", "MiB")], ...(setpoint ? [["setpoint", unit(setpoint, "mebibytes", "MiB")]] : []), ["in flight", unit(row.in_flight_events, "integer")], [STATE_WORDS[stateOf(fullness)], unit(room.used_bytes, "mebibytes", "MiB")]],
      share: room.used_bytes / capacity, ...(setpoint ? { mark: 1 - setpoint / capacity, url: `/loops/${snapshot.loops[`flow/${name}`].id}/` } : {}),
    }],
    [{
      id: "combiner", name: "Combiner", rate: row.kept_per_second,
      lines: [["event time", unit(row.watermark_lag_seconds, "seconds", "s")], ["waiting on", row.combiner.waits_for ?? "none"], ["late", unit(row.late_events, "integer")]],
    }],
    ...Array.from({ length: levels }, (_, level) => operators.filter(([, each]) => each.level === level).map(([id, each]) => ({
      ...busyBox(`operator ${id}`, id, each, `${each.patterns.length} pattern${each.patterns.length === 1 ? "" : "s"}`, `${unit(each.tasks, "integer")} task${each.tasks === 1 ? "" : "s"}`, `/pipeline/${name}/operators/${id}/`),
      chosen: id === chosen,
    }))),
    sinks(row),
  ];
  const state = snapshot.states?.[`application/${name}`], made = links(row, replicas, operators);
  if (state && state.sign !== "NORMAL") markAs(state, boxes.slice(1).flat(), made);
  return { boxes, links: made, levels };
}

/** Apply the application's state to its parts, because no part of a stopped application is idle. If the state is stale,
 * the parts show their last values, hatched.
 * @param {SubjectState} state @param {Box[]} boxes @param {Link[]} made */
function markAs(state, boxes, made) {
  for (const box of boxes) {
    box.stale = state.stale;
    if (box.state && box.lines) {
      box.state = state.sign || "UNKNOWN";
      box.lines = [...box.lines.slice(0, -1), [state.word, ""]];
    }
  }
  if (state.stale) for (const link of made) Object.assign(link, { old: true, state: null });
}

/** @param {ApplicationStatus} row */
function sinks(row) {
  const queues = [...new Set(Object.values(row.sinks).flat())].sort();
  return queues.map((queue) => ({ id: `sink ${queue}`, name: queue, rate: toSink(row, queue), url: `/queues/${queue}/`, lines: [["", "complex events"]] }));
}

/** @param {Array<number | null | undefined>} values */
const sum = (values) => values.reduce((/** @type {number} */ total, value) => total + (value ?? 0), 0);
/** @param {ApplicationStatus} row @param {string | undefined} operator @param {string} type */
const emitting = (row, operator, type) => sum(Object.values(row.patterns).filter((each) => each.emits === type && (!operator || each.operator === operator)).map((each) => each.out_per_second));
/** @param {ApplicationStatus} row @param {string} queue */
const toSink = (row, queue, operator = "") => sum(Object.entries(row.sinks).filter(([, queues]) => queues.includes(queue)).map(([type]) => emitting(row, operator, type)));

/** @param {ApplicationStatus} row @param {[string, ReplicaStatus][]} replicas
 * @param {[string, OperatorStatus][]} operators */
function links(row, replicas, operators) {
  const overload = (/** @type {ReplicaStatus | OperatorStatus} */ each) => (OVERLOADED.includes(stateOf(each)) ? stateOf(each) : null);
  /** @type {Map<string, number>} */
  const inner = new Map();
  /** @type {Link[]} */
  const made = [];
  for (const queue of row.queues) for (const [id, each] of replicas) made.push({ from: `queue ${queue}`, to: `replica ${id}`, rate: each.in_per_second / row.queues.length, state: overload(each) });
  for (const [id, each] of replicas) made.push({ from: `replica ${id}`, to: "result", rate: each.kept_per_second });
  made.push({ from: "result", to: "combiner", rate: row.kept_per_second });
  for (const { source, target, type } of row.edges) {
    const rate = emitting(row, source, type), each = row.operators[target];
    inner.set(target, (inner.get(target) ?? 0) + rate);
    made.push({ from: `operator ${source}`, to: `operator ${target}`, rate, state: overload(each) });
  }
  for (const [id, each] of operators) made.push({ from: "combiner", to: `operator ${id}`, rate: Math.max(0, each.in_per_second - (inner.get(id) ?? 0)), state: overload(each) });
  const queues = [...new Set(Object.values(row.sinks).flat())];
  for (const [id] of operators) for (const queue of queues) made.push({ from: `operator ${id}`, to: `sink ${queue}`, rate: toSink(row, queue, id) });
  return made;
}

if (host) {
  host.replaceChildren();
  const { application = "", operator } = host.dataset;
  /** @type {ReturnType<typeof bandMap> | null} */
  let drawMap = null;
  let levelsDrawn = 0, /** @type {ApplicationStatus | null} */ last = null;
  subscribe((snapshot) => {
    // A restarted process reports no applications at first: the last ones are shown as stale.
    const said = resolve(snapshot, "pipeline.applications")?.[application], row = said ?? last;
    if (!row || document.hidden) return;
    last = row;
    const states = said ? snapshot.states : { ...snapshot.states, [`application/${application}`]: /** @type {SubjectState} */ (NOT_JUDGED) };
    const { levels, ...map } = model({ ...snapshot, states }, application, row, operator);
    if (levels !== levelsDrawn) {
      host.replaceChildren();
      drawMap = bandMap(host, { ...columns(levels), leastHeight: 260, fill: 0.5, name: `Operators of ${application}` });
      levelsDrawn = levels;
    }
    drawMap?.(map);
  });
}
