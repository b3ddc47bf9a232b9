// Short texts under the figures, computed from several values of the snapshot. A merge patch removes unknown values, so
// an unknown value is null or absent: "== null" covers both.
import { UNKNOWN, age, formatted, isFormat } from "./format.js";
import { writeSentence } from "./names.js";
import { STATE_WORDS } from "./rules.js";

const NEARLY = 0.05; // slots: the measured share of a fully busy slot is slightly below 1
/** @type {Record<string, string>} */
const TRENDS = { rising: "Backlog rising", falling: "Backlog falling", steady: "Backlog steady" };

/** @type {Record<string, (element: HTMLElement, snapshot: LiveSnapshot) => void>} */
export const derived = {
  in_out(element, { totals }) {
    const inwards = totals.in_per_second, outwards = totals.out_per_second;
    if (inwards == null || outwards == null) return set(element, "");
    const difference = outwards - inwards;
    const larger = Math.max(inwards, outwards);
    if (Math.abs(difference) <= Math.max(0.02 * larger, 1)) return set(element, larger ? "equal to out" : "no events");
    set(element, `${formatted(Math.abs(difference), "rate")}/s ${difference > 0 ? "less" : "more"} than out`);
  },
  latency(element, { totals }) {
    const limit = Number(element.dataset.limit || NaN), value = totals.latency_p95_seconds ?? null;
    judge(element, value !== null && value >= limit);
    set(element, Number.isFinite(limit) ? `limit ${formatted(limit)} s` : "publish to processed");
  },
  oldest(element, { queues, totals }) {
    const limit = Number(element.dataset.limit || NaN), longest = totals.backlog_seconds ?? null;
    const [name] = Object.entries(queues).reduce((worst, row) => ((row[1].wait_seconds ?? 0) > worst[1] ? [row[0], row[1].wait_seconds ?? 0] : worst), ["", 0]);
    judge(element, longest !== null && longest >= limit);
    set(element, [Number.isFinite(limit) ? `limit ${formatted(limit)} s` : "", name ? `in ${name}` : ""].filter(Boolean).join(", "));
  },
  slots(element, { totals, hosts = {}, queues }) {
    const { worker_slots: slots, workers_at_work: busy } = totals;
    if (slots == null || busy == null) return set(element, "");
    const waits = jobs(queues).some((queue) => Object.values(queue.containers).some((container) => container.waiting_to_run));
    const free = slots - busy, holders = slotHolders(queues).map(([name]) => name);
    judge(element, slots > 0 && free < NEARLY && waits);
    if (!slots) return set(element, Object.values(hosts).some((host) => host.role === "jobs") ? "Drained" : "No worker host");
    set(element, free >= NEARLY ? `${formatted(free, "rate")} free` : holders.length === 1 ? `all held by ${holders[0]}` : "none free");
  },
  finding(element, { health }) {
    const { key, part: shown } = element.dataset, found = health.findings?.find(({ subject, incident, actions = [] }) => key === `${subject}#${incident ?? ""}#${actions[0]?.words ?? ""}`);
    if (found) writeSentence(element, shown === "impact" ? found.impact || found.step || "" : found.sentence, found);
  },
  effect(element, { health }) {
    const actions = health.findings?.flatMap((finding) => finding.actions ?? []) ?? [];
    const alike = actions.filter(({ action, subject, value = "" }) => element.dataset.action === `${action}-${subject}-${value}`.replace(/[./@ ]/g, "-"));
    // The same action has another effect for each of several problems: then the one that the server rendered stays.
    if (alike.length === 1 && alike[0].effect) set(element, alike[0].effect);
  },
  backlog(element, { totals }) {
    set(element, TRENDS[totals.backlog_trend ?? ""] ?? "");
  },
  shed(element, { totals }) {
    set(element, totals.shed_share == null ? "" : totals.shed_share > 0 ? "Share of pattern events" : "No shedding");
  },
  nodes(element, { nodes }) {
    const counts = count(Object.values(nodes)), never = Object.values(nodes).filter((node) => !node.state).length;
    const worst = ["OFFLINE", "TOOBUSY", "BUSY"].filter((state) => counts[state]);
    const others = worst.slice(1).reduce((total, state) => total + counts[state], 0);
    if (worst.length) return set(element, `${counts[worst[0]]} ${STATE_WORDS[worst[0]].toLowerCase()}${others ? `, ${others} more` : ""}`);
    if (never) return set(element, `${never} not reporting`);
    const drained = Object.entries(nodes).filter(([, node]) => node.drained).map(([name]) => name);
    if (drained.length) return set(element, `${drained.length === 1 ? drained[0] : drained.length} drained`);
    set(element, counts.IDLE ? `${counts.IDLE} idle` : Object.keys(nodes).length ? "All normal" : "");
    if (counts.IDLE && counts.IDLE === Object.keys(nodes).length) set(element, "All idle");
  },
  node_blocks(element, { nodes }) {
    const states = Object.values(nodes).map(({ state, drained }) => (state === "OFFLINE" || !drained ? state ?? "" : "drained"));
    if (element.dataset.shown === states.join()) return;
    element.dataset.shown = states.join();
    element.replaceChildren(...states.map(block));
  },
  workers(element, { totals }) {
    const share = totals.worker_slots ? (totals.workers_at_work ?? totals.workers_busy ?? 0) / totals.worker_slots : 0;
    element.style.setProperty("--share", Math.min(share, 1).toFixed(3));
  },
  host_share(element, { hosts }) {
    const host = hosts[element.dataset.host ?? ""];
    element.style.setProperty("--share", host?.slots ? Math.min((host.at_work ?? host.busy) / host.slots, 1).toFixed(3) : "0");
  },
  host_intake(element, { hosts }) {
    const host = hosts[element.dataset.host ?? ""];
    set(element, !host ? UNKNOWN : host.drained ? "Stopped" : host.draining ? "Stopping" : "Accepted");
  },
  host_progress(element, { hosts }) {
    const host = hosts[element.dataset.host ?? ""];
    if (!host?.draining) return set(element, host?.drained ? "Resumes within 1 s" : "");
    set(element, !host.drained ? "Drain starts within 1 s" : host.reserved ? `Draining: ${host.reserved} task${host.reserved === 1 ? "" : "s"} left` : "Drained: no tasks left");
  },
  host_flags(element, { hosts }) {
    const host = hosts[element.dataset.host ?? ""];
    set(element, host?.draining ? (host.drained && !host.reserved ? "drained" : "draining") : "");
  },
  busiest(element, { nodes }) {
    const found = busiestNode(nodes);
    set(element, formatted(found?.[1].utilisation ?? null, "percent"));
  },
  busiest_name(element, { nodes }) {
    set(element, busiestNode(nodes)?.[0] ?? "");
  },
  dead_letters(element, { queues }) {
    const held = Object.entries(queues).filter(([, queue]) => queue.dead_letters).map(([name]) => name);
    const unknown = Object.values(queues).some((queue) => queue.dead_letters == null);
    set(element, held.length ? `In ${held.join(", ")}` : unknown ? "" : "No dead letters");
  },
  points_sum(element, { queues }) {
    const containers = Object.values(queues[element.dataset.queue ?? ""]?.containers ?? {});
    set(element, formatted(sum(containers.map((container) => container.points ?? 0)) ?? 0, "integer"));
  },
  split(element, { queues, nodes }) {
    const containers = queues[element.dataset.queue ?? ""]?.containers ?? {};
    const parts = Object.entries(nodes).map(([name, node]) => /** @type {[string, number, string]} */ ([name, containers[name]?.points ?? 0, node.state ?? ""]))
      .filter(([, points]) => points > 0);
    const shown = parts.join();
    if (element.dataset.shown === shown) return;
    element.dataset.shown = shown;
    element.replaceChildren(...parts.map(([name, points, state]) => part(name, points, state)));
  },
  trend(element, { queues }) {
    const queue = queues[element.dataset.queue ?? ""], pauses = queue?.pauses ?? [];
    if (pauses.length) return set(element, `${pauses.map((/** @type {PauseStatus} */ pause) => pause.part).join(" and ")} paused`);
    set(element, queue?.trend ?? "");
  },
  node_flags(element, { nodes }) {
    const { drained, cordoned } = nodes[element.dataset.node ?? ""] ?? {};
    set(element, [drained && "drained", cordoned && "cordoned"].filter(Boolean).join(", "));
  },
  open_alerts(element, snapshot) {
    badge(element, calling(snapshot).length, "open");
  },
  manual_changes(element, snapshot) {
    badge(element, manualChanges(snapshot), "in force");
  },
  control_count(element, snapshot) {
    badge(element, manualChanges(snapshot) + proposed(snapshot), "in force or to approve");
  },
  loops_worst(element, { loops = {} }) {
    const values = (element.dataset.loops ?? "").split(" ").map((name) => loops[name]?.measured).filter((value) => typeof value === "number");
    const { format } = element.dataset;
    set(element, formatted(values.length ? Math.max(...values) : null, isFormat(format) ? format : "number"));
  },
  alert_value(element, { alerts = [] }) {
    const alert = alertOf(alerts, element);
    if (alert) set(element, formatted(alert.value ?? null, "rate"));
  },
  alert_worst(element, { alerts = [] }) {
    const value = alertOf(alerts, element)?.value ?? null;
    if (value === null) return;
    const { worst, above } = element.dataset; // the stored value can lag behind the measured one
    element.dataset.worst = String((above === "yes" ? Math.max : Math.min)(Number(worst), value));
    set(element, formatted(Number(element.dataset.worst), "rate"));
  },
  alert_sentence(element, { alerts = [] }) {
    const alert = alertOf(alerts, element);
    if (alert) set(element, alert.sentence);
  },
  open_proposals(element, snapshot) {
    badge(element, proposed(snapshot), "to approve");
  },
  plan_progress(element, { plans = [] }) {
    const plan = planOf(plans, element);
    if (plan) element.style.setProperty("--share", plan.progress_share.toFixed(3));
  },
  plan_percent(element, { plans = [] }) {
    const plan = planOf(plans, element);
    if (plan) set(element, `${formatted(plan.progress_share, "percent")} %`);
  },
  run_progress(element, { runs = {} }) {
    const run = runs[element.dataset.run ?? ""];
    if (!run) return;
    element.toggleAttribute("data-unknown", run.share == null);
    element.style.setProperty("--share", (run.share ?? 0).toFixed(3));
  },
  run_percent(element, { runs = {} }) {
    const run = runs[element.dataset.run ?? ""];
    if (run) set(element, run.share == null ? UNKNOWN : `${formatted(run.share, "percent")} %`);
  },
  run_words(element, { runs = {} }) {
    const run = runs[element.dataset.run ?? ""];
    if (!run) return;
    const stages = run.stages_total ? `, stage ${run.stages_done} of ${run.stages_total}` : "";
    set(element, `${formatted(run.rows, "integer")} rows, chunk ${run.chunks_done} of ${formatted(run.chunks_total, "integer")}${stages}, ${run.working} running`);
  },
  run_elapsed(element, { runs = {}, at }) {
    const run = runs[element.dataset.run ?? ""];
    if (run) set(element, run.started_at == null ? UNKNOWN : age(Math.max(0, at - run.started_at)));
  },
  run_left(element, { runs = {}, at }) {
    const run = runs[element.dataset.run ?? ""];
    if (!run || !run.started_at || !run.share || run.state !== "running") return set(element, "");
    set(element, `About ${age((at - run.started_at) * (1 - run.share) / run.share)} left`);
  },
  jobs_out(element, { queues }) {
    set(element, formatted(sum(jobs(queues).map((queue) => queue.out_per_second)), "rate"));
  },
  waiting_to_run(element, { queues }) {
    const containers = jobs(queues).flatMap((queue) => Object.values(queue.containers));
    set(element, formatted(sum(containers.map((container) => container.waiting_to_run)), "integer"));
  },
  kept(element, { pipeline }) {
    const share = pipeline?.in_per_second ? (pipeline.kept_per_second ?? 0) / pipeline.in_per_second : null;
    set(element, share === null ? "" : `${formatted(share, "percent")} % of input`);
  },
};

/** Return the open alerts that notify someone, or that someone acknowledged.
 * @param {LiveSnapshot | null} snapshot */
export const calling = (snapshot) => (snapshot?.alerts ?? []).filter(({ quiet }) => quiet == null || quiet === "acknowledged");

/** @param {LiveSnapshot} snapshot */
const manualChanges = ({ hands = [] }) => hands.length;

/** @param {LiveSnapshot} snapshot */
const proposed = ({ plans = [] }) => plans.filter((plan) => plan.state === "proposed").length;

/** @param {AlertStatus[]} alerts @param {HTMLElement} element */
const alertOf = (alerts, element) => alerts.find((alert) => alert.id === Number(element.dataset.alert));

/** @param {PlanStatus[]} plans @param {HTMLElement} element */
const planOf = (plans, element) => plans.find((plan) => plan.id === Number(element.dataset.plan));

/** Create a node's segment of a split bar.
 * @param {string} name @param {number} points @param {string} state */
function part(name, points, state) {
  const element = document.createElement("i");
  Object.assign(element.dataset, { node: name, state });
  element.style.flexGrow = String(points);
  element.title = `${name}: ${formatted(points, "integer")}`;
  return element;
}

/** @param {Record<string, QueueStatus>} queues */
const jobs = (queues) => Object.values(queues).filter((queue) => queue.kind === "jobs");

/** Return the sum of the known values, or null if none is known.
 * @param {Array<number | null | undefined>} values */
function sum(values) {
  const known = values.filter((value) => typeof value === "number");
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
}

/** Show a count beside a navigation link, nothing at zero. The label tells screen readers what is counted.
 * @param {HTMLElement} element @param {number} number @param {string} of */
function badge(element, number, of) {
  set(element, number ? String(number) : "");
  if (element.ariaLabel !== null && element.ariaLabel !== `${number} ${of}`) element.ariaLabel = `${number} ${of}`;
}

/** Mark the figure of an element as beyond its limit.
 * @param {HTMLElement} element @param {boolean} bad */
function judge(element, bad) {
  element.closest(".figure")?.toggleAttribute("data-bad", bad);
}

/** Return the jobs queues that hold worker slots, as [queue, slots], the most slots first.
 * @param {Record<string, QueueStatus>} queues @returns {[string, number][]} */
export function slotHolders(queues) {
  const busy = Object.entries(queues).filter(([, queue]) => queue.kind === "jobs").map(([name, queue]) => /** @type {[string, number]} */ (
    [name, sum(Object.values(queue.containers).map((container) => container.workers_busy)) ?? 0]));
  return busy.filter(([, slots]) => slots > 0).sort((one, other) => other[1] - one[1]);
}

/** @param {string} state */
function block(state) {
  const element = document.createElement("i");
  element.dataset.state = state;
  return element;
}

/** @param {NodeStatus[]} rows */
function count(rows) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const { state } of rows) if (state) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

/** Return the busiest node. The last report of a silent node doesn't say how busy it is now.
 * @param {Record<string, NodeStatus>} nodes */
function busiestNode(nodes) {
  return Object.entries(nodes).filter(([, node]) => node.utilisation != null && !node.stale && node.state !== "OFFLINE")
    .sort((one, other) => (other[1].utilisation ?? 0) - (one[1].utilisation ?? 0))[0];
}

/** @param {Element} element @param {string} text */
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
