// Plotly charts with one layout based on the tokens. A figure declares its lanes and series in the page. The history is
// requested once, live snapshots continue it, and only visible charts are drawn.
import { decisions, watch } from "./decisions.js";
import { banded, changesOf, edgesOf, marked } from "./expected.js";
import { VERDICT_WORDS } from "../values/rules.js";
import { AGAIN_MILLISECONDS, GAP_SECONDS, history } from "../values/history.js";
import { kept } from "../frame/past.js";
import { BOTTOM, NARROW, TOP, frame, heading, labels, plain, scale, tokens } from "./plot.js";
import * as ranges from "./range.js";
import { write } from "../values/bind.js";
import { resolve, store, subscribe } from "../values/store.js";

const POINTS = 450;
const LANE_HEIGHTS = [190, 110], LANE_GAP = 34, TRIANGLE_LANE = 26, BAR_LANE = 24, HEADING_LANE = 22;
const KEPT_SECONDS = 7200; // maximum range that live snapshots continue; a longer one is requested again
const MAX_BARS = 3, CHARACTER_WIDTH = 6.5;
/** @type {Record<string, string>} */
const VERDICT_SYMBOLS = { effective: "triangle-up", harmful: "triangle-up", ineffective: "triangle-up-open", checking: "triangle-up-open-dot", "no action": "line-ew-open" };

// Up to four areas are distinguished by their labels and two shades, more by their hues.
const MAX_SHADES = 4;

/** @type {Set<Chart>} */
const charts = new Set();

class Chart {
  seconds = 0; // the range
  asked = 0; // the end of the last requested history
  listening = false;
  /** @type {number | null} null: now */
  until = null;
  /** @type {{ seconds: number, words: string } | null} */
  compared = null;
  /** @type {number[]} */
  time = [];
  /** @type {(MetricHistory & { words: string }) | null} values of a day or a week earlier, shifted to the current times */
  before = null;
  /** @type {Decisions | null} */
  signs = null;
  /** @type {HTMLButtonElement | null} */
  button = null;
  /** @type {HTMLAnchorElement | null} */
  link = null;

  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
    this.lanes = [...figure.querySelectorAll("[data-lane]")].map(readLane);
    this.series = this.lanes.flatMap((lane) => lane.series).filter((series) => series.constant === null);
    this.paths = this.series.flatMap((series) => [series.path, ...edgesOf(series)]);
    // A figure with an end doesn't move. A figure with its own length ignores the address.
    this.own = figure.dataset.minutes ? Number(figure.dataset.minutes) * 60 : null;
    this.end = figure.dataset.end ? Number(figure.dataset.end) : null;
    this.ranged();
    this.question = 0; // number of the newest request; answers to older ones are dropped
    this.failed = false;
    /** @type {Map<string, Numbers>} */
    this.columns = new Map(this.paths.map((path) => [path, []]));
    this.acted = watch();
    this.paused = false;
    this.seen = false;
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; if (this.seen) this.draw(); }).observe(figure);
    new ResizeObserver(() => this.draw()).observe(figure);
    this.load();
  }

  /** Set the range from the address, unless the figure declares its own. */
  ranged() {
    const { seconds, until, before } = ranges.range();
    this.seconds = this.own ?? seconds;
    this.until = this.end ?? (this.own === null ? until : null);
    this.compared = this.own === null ? before : null;
  }

  /** Show another range or comparison. This ends a zoom. */
  show() {
    this.ranged();
    if (this.paused) this.resume();
    this.load();
  }

  async load() {
    const question = this.question += 1;
    this.decided();
    const to = this.until ?? store.snapshot?.at ?? Date.now() / 1000;
    this.asked = to;
    this.compare(to, question);
    const found = await history(this.paths, { from: to - this.seconds, to, points: POINTS });
    if (question !== this.question) return;
    this.failed = found === null;
    if (found) this.take(found);
    else setTimeout(() => { if (question === this.question) this.load(); }, AGAIN_MILLISECONDS);
    this.draw();
  }

  /** Join the history with the live values after it. For earlier times, the history is more complete.
   * @param {MetricHistory} options */
  take({ time, series }) {
    const last = time.at(-1) ?? -Infinity, after = this.continues() ? this.time.filter((at) => at > last) : [];
    for (const path of this.paths) {
      const live = this.values(path);
      this.columns.set(path, [...series[path] ?? time.map(() => null), ...live.slice(live.length - after.length)]);
    }
    this.time = [...time, ...after];
  }

  /** Check if live snapshots continue the lines. */
  continues() {
    return this.until === null && this.seconds <= KEPT_SECONDS;
  }

  /** @param {number} to @param {number} question */
  async compare(to, question) {
    if (this.before?.words !== this.compared?.words) this.before = null;
    if (!this.compared) return;
    const { seconds: shift, words } = this.compared, from = to - shift - this.seconds;
    const found = await history(this.series.map((series) => series.path), { from, to: to - shift, points: POINTS });
    if (question !== this.question || !found) return;
    this.before = { words, time: found.time.map((at) => at + shift), series: found.series };
    this.draw();
  }

  /** @param {LiveSnapshot} snapshot */
  add(snapshot) {
    if (this.until === null && this.acted(snapshot)) this.decided();
    if (this.until !== null || (this.time.length && snapshot.at <= this.time[this.time.length - 1])) return;
    if (!this.continues()) {
      if (snapshot.at - this.asked > this.seconds / POINTS) this.load();
      return;
    }
    const missed = snapshot.at - this.time[this.time.length - 1] > GAP_SECONDS;
    this.time.push(snapshot.at);
    for (const [path, column] of this.columns) column.push(resolve(snapshot, path));
    while (this.time[0] < snapshot.at - KEPT_SECONDS) {
      this.time.shift();
      for (const column of this.columns.values()) column.shift();
    }
    if (missed) this.load();
    this.draw();
  }

  draw() {
    if (!this.seen || document.hidden || this.paused || !window.Plotly || !this.figure.offsetWidth) return;
    if (!this.known()) return this.say(this.why());
    this.plot.querySelector(".nothing")?.remove();
    const { data, layout } = this.compose();
    window.Plotly.react(this.plot, data, layout, { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] });
    if (!this.listening) this.listen();
  }

  /** @param {Series[]} series */
  /** @param {string} path */
  values(path) {
    return this.columns.get(path) ?? [];
  }

  known(series = this.series) {
    return series.some(({ path, constant }) => constant !== null || this.values(path).some((value) => typeof value === "number"));
  }

  /** Return why nothing is drawn. */
  why() {
    if (this.failed) return "The console is not responding.";
    return this.continues() ? "No data yet. The chart starts with the next snapshot." : "No data for this period.";
  }

  /** @param {string} text */
  say(text) {
    const said = this.plot.querySelector(".nothing");
    if (said) return write(said, text);
    if (this.listening) window.Plotly?.purge(this.plot); // otherwise Plotly would draw into the removed element
    this.listening = false;
    this.plot.replaceChildren(Object.assign(document.createElement("p"), { className: "nothing", textContent: text }));
  }

  listen() {
    this.listening = true;
    // Live updates pause during a zoom.
    this.plot.on("plotly_relayout", (change) => {
      if (change["xaxis.autorange"] || change["xaxis.range"]) this.resume(); // a double click or the reset button
      else if (change["xaxis.range[0]"]) this.pause(change["xaxis.range[0]"], change["xaxis.range[1]"]);
    });
    this.plot.on("plotly_click", ({ points }) => { const link = points.find((point) => point.data.name === "decisions")?.customdata?.[1]; if (link) location.assign(kept(link)); });
  }

  /** Pause live updates at a zoom. from and to: local times without a zone, as the axis and Date have them.
   * @param {string} from @param {string} to */
  pause(from, to) {
    const [since, until] = [from, to].map((at) => new Date(at).toISOString());
    const address = `/differences/?${new URLSearchParams({ from: since, to: until })}`;
    if (this.link) this.link.href = address;
    if (this.paused) return;
    this.paused = true;
    this.link = Object.assign(document.createElement("a"), { className: "button small", href: address, textContent: "Compare this range" });
    const button = Object.assign(document.createElement("button"), { className: "button small", type: "button", textContent: "Resume live" });
    button.addEventListener("click", () => this.resume());
    this.figure.before(button, this.link);
    this.button = button;
  }

  resume() {
    this.paused = false;
    this.button?.remove();
    this.link?.remove();
    this.link = null;
    this.draw();
  }

  compose() {
    const colours = tokens(), narrow = this.figure.offsetWidth < NARROW;
    const signs = this.signs?.decisions.length || this.signs?.guard.length ? this.signs : null, bars = this.bars();
    const heights = this.lanes.map((_, index) => LANE_HEIGHTS[Math.min(index, 1)]);
    // The first lane's title is below the bars, or in the margin if there are none.
    const above = bars.length ? BAR_LANE * bars.length + HEADING_LANE : 0;
    const space = TOP + BOTTOM + above + (signs ? TRIANGLE_LANE : 0);
    const inner = heights.reduce((total, height) => total + height, 0) + LANE_GAP * (heights.length - 1);
    const height = inner + space, plotted = height - TOP - BOTTOM;
    const layout = frame(colours, height, narrow);
    const until = this.until ?? this.time.at(-1) ?? Date.now() / 1000;
    layout.xaxis.range = [date(until - this.seconds), date(until)];
    Object.assign(layout.xaxis, ranges.timeFormats(this.seconds));
    const data = [];
    let top = plotted - above;
    this.lanes.forEach((lane, index) => {
      const axis = index ? `y${index + 1}` : "y", name = index ? `yaxis${index + 1}` : "yaxis";
      const highest = this.highest(lane);
      layout[name] = scale(colours, [Math.max(0, (top - heights[index]) / plotted), Math.min(1, top / plotted)], highest);
      layout[name].showticklabels = this.known(lane.series);
      const bands = banded(lane, axis, this, colours);
      layout.annotations.push(heading(colours, this.title(lane, bands.length > 0), top / plotted, narrow));
      data.push(...bands);
      if (this.before && !lane.stacked) data.push(...this.faint(lane, axis, colours));
      data.push(...this.traces(lane, axis, colours, layout, narrow, heights[index]));
      const shape = { axis, factor: lane.factor, highest, width: this.figure.offsetWidth - layout.margin.l - layout.margin.r };
      data.push(...marked(changesOf(lane, store.snapshot), shape, colours, layout));
      top -= heights[index] + LANE_GAP;
    });
    if (signs) data.push(triangles(signs.decisions, colours, layout, TRIANGLE_LANE / plotted), guarded(signs.guard, colours));
    bars.forEach((bar, row) => overrideBar(bar, row, colours, layout, { height: plotted, width: this.plot.clientWidth - layout.margin.l - layout.margin.r }));
    return { data, layout };
  }

  /** @param {Lane} lane @param {boolean} isBanded */
  title(lane, isBanded) {
    return [lane.title, ...isBanded ? ["shaded: expected range"] : [], ...this.before ? [`faint: ${this.before.words}`] : []].join("; ");
  }

  /** @param {Lane} lane @param {string} axis @param {Colours} colours @param {PlotLayout} layout
   * @param {boolean} narrow @param {number} height */
  traces(lane, axis, colours, layout, narrow, height) {
    const from = (this.time.at(-1) ?? 0) - this.seconds, /** @type {LabelEnd[]} */ ends = [], holes = gaps(this.time), times = withHoles(this.time, holes, (at) => date(at));
    const traces = lane.series.map((series) => {
      const { constant } = series, values = constant === null
        ? withHoles(this.values(series.path), holes, (value) => (typeof value === "number" ? value * lane.factor : null)) : null;
      const x = values ? times : [date(from), date(this.time.at(-1) ?? 0)];
      const level = (constant ?? 0) * lane.factor, y = values ?? [level, level];
      const last = y.findLast((value) => typeof value === "number");
      if (last !== undefined) ends.push({ series, last });
      return {
        x, y, type: "scatter", mode: "lines", name: series.label, yaxis: axis, connectgaps: false,
        line: lineOf(series.kind, colours), ...this.area(lane, series, colours, axis), hovertemplate: `${plain(series.label)} %{y:,.4~g}<extra></extra>`,
        hoverinfo: series.kind === "threshold" ? "skip" : undefined, cliponaxis: true,
      };
    });
    if (!narrow) labels(lane.stacked ? middles(ends) : ends, axis, colours, layout, this.highest(lane), height);
    return traces;
  }

  /** Return the lines of a day or a week earlier, which are behind the current ones.
   * @param {Lane} lane @param {string} axis @param {Colours} colours */
  faint(lane, axis, colours) {
    if (!this.before) return [];
    const { time, series, words } = this.before, holes = gaps(time);
    return lane.series.filter(({ constant, kind }) => constant === null && kind !== "reference").map(({ path, label, kind }) => ({
      x: withHoles(time, holes, (at) => date(at)), y: withHoles(series[path] ?? time.map(() => null), holes, (value) => (typeof value === "number" ? value * lane.factor : null)),
      type: "scatter", mode: "lines", name: words, yaxis: axis, connectgaps: false, opacity: 0.45, line: { ...lineOf(kind, colours), color: colours.muted, width: 1 },
      hovertemplate: `${plain(label)}, ${words} %{y:,.4~g}<extra></extra>`,
    }));
  }

  /** Return the fill of a stacked area, in declared order. Adjacent areas differ; empty ones don't count.
   * @param {Lane} lane @param {Series} series @param {Colours} colours @param {string} axis */
  area(lane, series, colours, axis) {
    if (!lane.stacked) return {};
    const there = lane.series.filter(({ path }) => this.values(path).some(Boolean)), index = Math.max(0, there.indexOf(series));
    const few = lane.series.length <= MAX_SHADES;
    return { stackgroup: axis, fillcolor: few ? colours.shades[index % 2] : colours.hues[lane.series.indexOf(series) % colours.hues.length] };
  }

  /** @param {Lane} lane */
  highest(lane) {
    if (lane.highest) return lane.highest;
    const from = (this.time.at(-1) ?? 0) - this.seconds;
    const values = lane.series.flatMap((series) => (series.constant === null
      ? this.values(series.path).filter((value, index) => typeof value === "number" && this.time[index] >= from) : [series.constant]));
    const { before } = this, earlier = before ? lane.series.flatMap(({ path }) => (before.series[path] ?? []).filter((value) => typeof value === "number")) : [];
    const highest = [...values, ...earlier].reduce((/** @type {number} */ most, value) => Math.max(most, value ?? 0), 0) * lane.factor;
    return highest > 0 ? highest * 1.12 : 1;
  }

  /** Load the decisions that this chart marks by triangles, if it has a lane for them. */
  async decided() {
    const about = this.figure.dataset.decisions;
    if (about === undefined) return;
    const { seconds, until } = this, to = until ?? store.snapshot?.at ?? Date.now() / 1000;
    const found = await decisions(about, { from: to - seconds, to });
    if (seconds !== this.seconds || until !== this.until) return; // the range has changed since
    this.signs = found;
    this.draw();
  }

  bars() {
    return [...document.querySelectorAll("[data-override], [data-bar]")]
      .map(({ dataset }) => ({ from: dataset.from ?? "", to: dataset.to || new Date((this.time.at(-1) ?? 0) * 1000), label: dataset.bar ?? `Override: ${dataset.label}` }))
      .slice(0, MAX_BARS);
  }
}

/** @param {HTMLElement} element @returns {Lane} */
function readLane(element) {
  const factor = Number(element.dataset.scale ?? 1);
  const series = [...element.querySelectorAll("[data-series]")].map(({ dataset }) => ({
    path: dataset.series ?? "", label: dataset.label ?? "", kind: dataset.kind ?? "", constant: dataset.value === undefined ? null : Number(dataset.value),
  }));
  return { title: element.dataset.lane ?? "", factor, series, stacked: "stacked" in element.dataset, highest: Number(element.dataset.highest ?? 0) };
}

/** @param {number} seconds */
const date = (seconds) => new Date(seconds * 1000);

/** Return the places of gaps without measurements, so that no line spans them.
 * @param {number[]} time */
function gaps(time) {
  const steps = time.slice(1).map((at, index) => at - time[index]);
  const usual = [...steps].sort((one, other) => one - other)[Math.floor(steps.length / 2)] ?? 0;
  const longest = Math.max(GAP_SECONDS, 4 * usual);
  return new Set(steps.flatMap((step, index) => (step > longest ? [index] : [])));
}

/** @template Value, Shown @param {Value[]} values @param {Set<number>} holes @param {(value: Value) => Shown} shown
 * @returns {(Shown | null)[]} */
const withHoles = (values, holes, shown) => (holes.size
  ? values.flatMap((value, index) => (holes.has(index) ? [shown(value), null] : [shown(value)])) : values.map(shown));

/** @param {string} kind @param {Colours} colours */
function lineOf(kind, colours) {
  return /** @type {Record<string, object>} */ ({
    measured: { color: colours.text, width: 1.5 },
    second: { color: colours.muted, width: 1.25 },
    step: { color: colours.text, width: 1.5, shape: "hv" },
    reference: { color: colours.muted, width: 1.25, dash: "dash" },
    threshold: { color: colours.muted, width: 0.75 },
    stacked: { color: colours.surface, width: 1, shape: "hv" },
  })[kind];
}

/** Move the labels of stacked areas to the middle of each area.
 * @param {LabelEnd[]} ends */
function middles(ends) {
  let below = 0;
  return ends.map((end) => {
    below += end.last;
    return { ...end, last: below - end.last / 2, value: end.last };
  }).filter((end) => end.value > 0);
}

/** @param {Decision[]} signs @param {Colours} colours @param {PlotLayout} layout @param {number} share */
function triangles(signs, colours, layout, share) {
  layout.yaxis9 = { domain: [0, share], visible: false, fixedrange: true, range: [-1, 1] };
  return {
    x: signs.map((row) => date(row.at)), y: signs.map(() => 0.15), type: "scatter", mode: "markers", name: "decisions", yaxis: "y9",
    marker: { symbol: signs.map((row) => VERDICT_SYMBOLS[row.verdict] ?? "triangle-up"), size: 9, color: signs.map((row) => (row.verdict === "harmful" ? colours.toobusy : colours.text)) },
    customdata: signs.map((row) => [`${row.count > 1 ? "" : `${VERDICT_WORDS[row.verdict] ?? row.verdict}: `}${plain(row.title)}`, row.url]), hovertemplate: "%{customdata[0]}<extra></extra>",
  };
}

/** Return the marks of decisions that the guard limited, delayed, or held. They are below the triangles.
 * @param {Decision[]} events @param {Colours} colours */
function guarded(events, colours) {
  return {
    x: events.map((row) => date(row.at)), y: events.map(() => -0.75), type: "scatter", mode: "markers", name: "decisions", yaxis: "y9",
    marker: { symbol: "line-ew-open", size: 7, color: colours.muted, line: { width: 3 } },
    customdata: events.map((row) => [plain(row.title), row.url]), hovertemplate: "%{customdata[0]}<extra></extra>",
  };
}

/** @param {OverrideBar} bar @param {number} row @param {Colours} colours @param {PlotLayout} layout
 * @param {{ height: number, width: number }} plotted */
function overrideBar(bar, row, colours, layout, plotted) {
  const high = 1 - row * BAR_LANE / plotted.height, low = high - (BAR_LANE - 6) / plotted.height;
  const [from, to] = layout.xaxis.range.map(Number);
  const left = Math.max(Number(new Date(bar.from)), from), right = Math.min(Number(new Date(bar.to)), to);
  if (right <= left) return;
  layout.shapes.push({ type: "rect", xref: "x", yref: "paper", x0: new Date(left), x1: new Date(right), y0: low, y1: high, line: { color: colours.text, width: 1 }, fillcolor: colours.surface });
  // A bar that is too short for its label has it on its left.
  const fits = (right - left) / (to - from) * plotted.width > bar.label.length * CHARACTER_WIDTH + 12;
  if (!fits && plotted.width < NARROW) return; // no room on its left either
  layout.annotations.push({ text: plain(bar.label), x: new Date(fits ? right : left), xref: "x", xshift: -4, y: (low + high) / 2, yref: "paper", xanchor: "right", yanchor: "middle", showarrow: false, font: { size: 12, color: colours.text } });
}

function start() {
  ranges.start(() => { for (const chart of charts) if (chart.own === null) chart.show(); });
  document.querySelectorAll("figure.chart").forEach((figure) => {
    figure.setAttribute("role", "figure");
    figure.setAttribute("aria-label", figure.dataset.chart ?? "");
    charts.add(new Chart(figure));
  });
  subscribe((snapshot) => charts.forEach((chart) => chart.add(snapshot)));
  document.addEventListener("weir:theme", () => charts.forEach((chart) => chart.draw()));
}

start();
