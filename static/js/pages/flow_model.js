// The data of the flow map: boxes in five columns, and the bands between them. Drawing is in flow.js.
import { formatted, unit } from "../values/format.js";
import { STATE_WORDS } from "../values/rules.js";
import { folded } from "../values/fold.js";
import { slotHolders } from "../values/derived.js";

const MAX_PRODUCERS = 4, MAX_QUEUES = 5, MAX_NODES = 5, MAX_SINKS = 5, MAX_HOLDERS = 3; // the map has one height
const OVERLOADED = ["BUSY", "TOOBUSY"], /** @type {Record<string, number>} */ RANKS = { OFFLINE: 3, TOOBUSY: 2, BUSY: 1 };
/** @type {Record<string, number>} */
const SEVERITIES = { critical: 3, warning: 2, notice: 1, unknown: 1 }; // a healthy subject has no severity here

/** Return {boxes: five columns, links}. shown: rate, waiting, or latency, for the second line of a box.
 * @param {LiveSnapshot} snapshot @param {Figure} shown */
export function model(snapshot, shown) {
  const parts = folds(snapshot), places = placesOf(parts), bands = new Bands();
  for (const [name, row] of Object.entries(snapshot.producers ?? {})) {
    for (const [queue, rate] of Object.entries(row.queues ?? {})) bands.add(places.producer(name), places.queue(queue), rate);
  }
  const pool = poolState(snapshot);
  for (const [name, queue] of Object.entries(snapshot.queues)) addContainers(bands, snapshot, places, name, queue, pool);
  const ends = sinks(snapshot, Object.entries(snapshot.queues));
  for (const sink of ends) bands.add(`3:${sink.of}`, sink.id, sink.rate, null, Boolean(sink.stale));
  const boxes = [producerBoxes(parts.producers), queueBoxes(parts.queues, shown, snapshot.states ?? {}), nodeBoxes(parts.nodes, snapshot.states ?? {}), consumers(snapshot, shown), ends];
  const present = new Set(boxes.flat().map((box) => box.id));
  // In the order of the boxes, so that the bands of a box do not cross.
  const order = boxes.flat().map((box) => box.id);
  const links = bands.all().filter((band) => present.has(band.from) && present.has(band.to))
    .sort((one, other) => order.indexOf(one.from) - order.indexOf(other.from) || order.indexOf(one.to) - order.indexOf(other.to));
  return { boxes, links };
}

/** Add the bands from a queue to its nodes, and from these to their consumer.
 * @param {Bands} bands @param {LiveSnapshot} snapshot @param {Places} places @param {string} name
 * @param {QueueStatus} queue @param {string | null} pool the state of the worker slots */
function addContainers(bands, snapshot, places, name, queue, pool) {
  const old = queue.kind === "pipeline" && Boolean(snapshot.states?.["pipeline/main"]?.stale);
  for (const [node, container] of Object.entries(queue.containers ?? {})) {
    const state = snapshot.nodes[node]?.state, alone = places.node(node) !== "2:";
    bands.add(places.queue(name), places.node(node), container.in_per_second, alone && state && OVERLOADED.includes(state) ? state : null);
    bands.add(places.node(node), `3:${queue.kind}`, container.out_per_second, queue.kind === "jobs" ? pool : null, old);
  }
}

/** Bands by their ends. Rates with the same ends are added. The rate is unknown only if all of them are. */
class Bands {
  /** @type {Map<string, Link>} */
  #bands = new Map();

  /** Add a rate to a band. old: the rate is from the pipeline's last report.
   * @param {string} from @param {string} to @param {number | null | undefined} rate
   * @param {string | null | undefined} state */
  add(from, to, rate, state = null, old = false) {
    const key = `${from}>${to}`, band = this.#bands.get(key) ?? { from, to, rate: null, state, old };
    if (typeof rate === "number") band.rate = (band.rate ?? 0) + rate;
    this.#bands.set(key, band);
  }

  all() {
    return [...this.#bands.values()];
  }
}

/** @param {LiveSnapshot} options @returns {Folds} */
function folds({ producers = {}, queues, nodes, states = {} }) {
  const badnessOf = new Map(Object.entries(queues).map(([name, queue]) => [queue, queueBadness(queue, states[`queue/${name}`])]));
  return {
    producers: folded("producers", Object.entries(producers), MAX_PRODUCERS, (row) => (row.in_per_second ?? 0) * 1e-12),
    queues: folded("queues", Object.entries(queues), MAX_QUEUES, (queue) => badnessOf.get(queue) ?? 0),
    nodes: folded("nodes", Object.entries(nodes), MAX_NODES, nodeBadness),
  };
}

/** @param {NodeStatus} node */
const nodeBadness = (node) => (RANKS[node.state ?? ""] ?? 0) + Math.min(node.utilisation ?? 0, 0.99) * (RANKS[node.state ?? ""] ? 1 : 0.5);

/** Rank a queue by its severity. Healthy queues rank by their input rate.
 * @param {QueueStatus} queue @param {SubjectState | undefined} state */
function queueBadness(queue, state) {
  const below = (/** @type {number | null} */ value) => 0.9 * (1 - 1 / (1 + (value ?? 0))), severity = SEVERITIES[state?.severity ?? ""];
  return severity ? severity + below(queue.wait_seconds) : below(queue.in_per_second);
}

/** @param {Folds} options @returns {Places} */
function placesOf({ producers, queues, nodes }) {
  const place = (/** @type {number} */ column, /** @type {Folded<unknown>} */ { rest }) => {
    const hidden = new Set(rest.map(([name]) => name));
    return (/** @type {string} */ name) => (hidden.has(name) ? `${column}:` : `${column}:${name}`);
  };
  return { producer: place(0, producers), queue: place(1, queues), node: place(2, nodes) };
}

/** @param {Folds["producers"]} options @returns {Box[]} */
function producerBoxes({ single, rest }) {
  const boxes = single.map(([name, row]) => ({ id: `0:${name}`, name, rate: row.in_per_second }));
  if (rest.length) boxes.push({ id: "0:", name: `and ${rest.length} more`, rate: known(rest.map(([, row]) => row.in_per_second)) });
  return boxes;
}

/** @param {Folds["queues"]} options @param {Figure} shown @param {States} states @returns {Box[]} */
function queueBoxes({ single, rest }, shown, states) {
  const boxes = single.map(([name, queue]) => {
    const second = {
      rate: ["wait", unit(queue.wait_seconds, "seconds", "s")],
      waiting: ["waiting", unit(queue.waiting_events, "integer", "")],
      latency: ["p95", unit(queue.latency_p95_seconds, "seconds", "s")],
    }[shown];
    const paused = queue.pauses?.length ? ["", `${queue.pauses.map((pause) => pause.part).join(", ")} paused`] : null;
    return { id: `1:${name}`, name, rate: queue.in_per_second, second: paused ?? second, ...drawn(states, `queue/${name}`), url: `/queues/${name}/` };
  });
  if (!rest.length) return boxes;
  const of = (/** @type {"in_per_second" | "wait_seconds" | "waiting_events" | "latency_p95_seconds"} */ field, measure = sum) => known(rest.map(([, queue]) => queue[field]), measure);
  const second = {
    rate: ["longest wait", unit(of("wait_seconds", Math.max), "seconds", "s")],
    waiting: ["waiting", unit(of("waiting_events"), "integer", "")],
    latency: ["highest p95", unit(of("latency_p95_seconds", Math.max), "seconds", "s")],
  }[shown];
  return [...boxes, { id: "1:", name: `and ${rest.length} more`, rate: of("in_per_second"), second, url: "/queues/" }];
}

/** @param {Folds["nodes"]} options @param {States} states @returns {Box[]} */
function nodeBoxes({ single, rest }, states) {
  const boxes = single.map(([name, node]) => {
    const state = states[`node/${name}`] ?? { sign: node.state, stale: node.stale, word: STATE_WORDS[node.state ?? ""] };
    return {
      id: `2:${name}`, subject: `node/${name}`, name, rate: node.in_per_second, state: state.sign ?? "UNKNOWN", stale: state.stale, url: `/nodes/${name}/`,
      figure: unit(node.utilisation, "percent", "%"), second: [state.word ?? "Unknown", formatted(node.in_per_second ?? null, "rate")],
    };
  });
  if (!rest.length) return boxes;
  const rate = known(rest.map(([, node]) => node.in_per_second)), highest = known(rest.map(([, node]) => node.utilisation), Math.max);
  const words = new Set(rest.map(([, node]) => (STATE_WORDS[node.state ?? ""] ?? "Unknown").toLowerCase()));
  const most = words.size === 1 ? `all ${[...words][0]}` : `at most ${unit(highest, "percent", "%")}`;
  return [...boxes, { id: "2:", name: `and ${rest.length} more`, rate, url: "/nodes/", figure: "", second: [most, formatted(rate, "rate")] }];
}

/** @param {LiveSnapshot} snapshot @param {Figure} shown */
function consumers(snapshot, shown) {
  const queues = Object.values(snapshot.queues), { pipeline } = snapshot;
  const of = (/** @type {string} */ kind) => queues.filter((queue) => queue.kind === kind);
  const rate = (/** @type {string} */ kind) => known(of(kind).map((queue) => queue.out_per_second));
  /** @type {Box[]} */
  const boxes = [];
  const state = snapshot.states?.["pipeline/main"];
  const pipelineSecond = { rate: ["", state?.word ?? "No report"], waiting: ["waiting", unit(pipeline?.waiting_events, "integer", "")], latency: ["batch", unit(pipeline?.batch_seconds, "seconds", "s")] }[shown];
  if (of("pipeline").length) boxes.push({ id: "3:pipeline", name: "Pipeline", rate: rate("pipeline"), second: pipelineSecond, ...drawn(snapshot.states ?? {}, "pipeline/main"), url: "/pipeline/" });
  if (of("jobs").length) boxes.unshift(slotBox(snapshot, of("jobs"), shown));
  return boxes;
}

/** Return the box of the worker slots: who holds them, and who waits for one.
 * @param {LiveSnapshot} snapshot @param {QueueStatus[]} rows the jobs queues @param {Figure} shown @returns {Box} */
function slotBox(snapshot, rows, shown) {
  const { totals } = snapshot, holders = slotHolders(snapshot.queues), state = poolState(snapshot);
  const waiting = known(rows.map((queue) => queue.waiting_events)), p95 = known(rows.map((queue) => queue.latency_p95_seconds), Math.max);
  const held = holders.slice(0, MAX_HOLDERS).map(([name, count]) => /** @type {[string, string]} */ ([name, `${count} slot${count === 1 ? "" : "s"}`]));
  const last = /** @type {Record<Figure, [string, string]>} */ ({ rate: ["wait for a slot", formatted(waitingToRun(rows), "integer")], waiting: ["waiting", unit(waiting, "integer", "")], latency: ["p95", unit(p95, "seconds", "s")] })[shown];
  const figure = `${formatted(totals.workers_at_work ?? totals.workers_busy ?? null, "rate")} of ${formatted(totals.worker_slots ?? null, "integer")}`;
  return { id: "3:jobs", name: "Worker slots", rate: null, figure, lines: [...held, last], url: "/workers/", ...(state ? { state } : {}) };
}

/** @param {QueueStatus[]} rows */
const waitingToRun = (rows) => known(rows.flatMap((queue) => Object.values(queue.containers).map((container) => container.waiting_to_run)));

/** Return the state of the worker slots while all are held and others wait: that of the worst queue.
 * @param {LiveSnapshot} snapshot @returns {string | null} */
function poolState({ totals, queues, states = {} }) {
  const jobs = Object.entries(queues).filter(([, queue]) => queue.kind === "jobs"), busy = totals.workers_at_work ?? totals.workers_busy ?? 0;
  if (!totals.worker_slots || busy < totals.worker_slots - 0.1 || !waitingToRun(jobs.map(([, queue]) => queue))) return null;
  const severities = jobs.map(([name]) => states[`queue/${name}`]?.severity);
  return severities.includes("critical") ? "TOOBUSY" : severities.includes("warning") ? "BUSY" : null;
}

/** Return the sinks: the complex events of the pipeline, and the targets of the queues' handlers.
 * @param {LiveSnapshot} snapshot @param {[string, QueueStatus][]} queues */
function sinks(snapshot, queues) {
  /** @type {(Box & { of: string })[]} */
  const boxes = [];
  if (queues.some(([, queue]) => queue.kind === "pipeline")) {
    boxes.push({ id: "4:complex", of: "pipeline", name: "Complex events", rate: snapshot.pipeline?.alerts_per_second, stale: snapshot.states?.["pipeline/main"]?.stale });
  }
  const bySink = Map.groupBy(queues.filter(([, queue]) => queue.kind === "jobs"), ([, queue]) => queue.sink ?? queue.handler ?? "handler");
  const rates = [...bySink].map(([sink, rows]) => /** @type {[string, { rate: number | null }]} */ ([sink, { rate: known(rows.map(([, queue]) => queue.out_per_second)) }]));
  const { single, rest } = folded("sinks", rates, MAX_SINKS, (row) => 0.9 * (1 - 1 / (1 + (row.rate ?? 0))));
  for (const [sink, { rate }] of single) boxes.push({ id: `4:of ${sink}`, of: "jobs", name: sink, rate });
  if (rest.length) boxes.push({ id: "4:", of: "jobs", name: `and ${rest.length} more`, rate: known(rest.map(([, row]) => row.rate)) });
  return boxes;
}

/** Return how to draw a subject's box: with its sign only if something is wrong, and hatched if its data is old.
 * @param {States} states @param {string} subject */
function drawn(states, subject) {
  const state = states[subject], wrong = state && state.sign !== "NORMAL" && state.severity !== "well";
  return { subject, stale: state?.stale ?? false, ...(wrong ? { state: state.sign ?? "UNKNOWN" } : {}) };
}

/** @param {number[]} values */
const sum = (...values) => values.reduce((total, value) => total + value, 0);

/** Return the sum (or another measure) of the known values, or null if none is known.
 * @param {Array<number | null | undefined>} values @returns {number | null} */
function known(values, measure = sum) {
  const numbers = values.filter((value) => typeof value === "number");
  return numbers.length ? measure(...numbers) : null;
}
