// Plotly charts with one layout based on the tokens. A figure declares its lanes and series in the page. The history is
// requested once, live snapshots continue it, and only visible charts are drawn. A zoom is a range in the address.
import { follow } from "./crosshair.js";
import { decisions, watch } from "./decisions.js";
import { banded, changeAt, changesOf, edgesOf, marked } from "./expected.js";
import { breaches, coloursOf, isEntity, isLimit, pickEntities, rangeOf, readLane, withUnit } from "./lanes.js";
import { BAR_LANE, NEAR_PIXELS, TRIANGLE_LANE, countActions, decisionAt, drawBar, drawMarks, listBars, loadMarks, triangles } from "./marks.js";
import { AGAIN_MILLISECONDS, GAP_SECONDS, history } from "../values/history.js";
import { BOTTOM, NARROW, TOP, brief, faded, frame, labels, limitLabels, marginFor, roundRange, scale, shortened, tokens } from "./plot.js";
import * as ranges from "./range.js";
import { write } from "../values/bind.js";
import { resolve, store, subscribe } from "../values/store.js";

const POINTS = 450;
const LANE_HEIGHTS = [190, 110], LANE_GAP = 40, NARROW_GAP = 24, HEADING_LANE = 22;
const TITLE_GAP = 10;
const MIN_SHOWN_SECONDS = 60; // of the axis of a young plant
const KEPT_SECONDS = 7200; // maximum range that live snapshots continue; a longer one is requested again
const MAX_LABEL_SHARE = 0.36; // of the width of a small chart
const BREACH_OPACITY = 0.13, AREA_OPACITY = 0.2, STACK_OPACITY = 0.6;
const CONFIG = { displaylogo: false, displayModeBar: false, responsive: false, doubleClick: false };

/** @type {Set<Chart>} */
const charts = new Set();

/** Draw all charts for the range in the address. */
const showAll = () => charts.forEach((chart) => chart.show());

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
  first = Infinity; // the first time with a value
  /** @type {(MetricHistory & { words: string }) | null} values of a day or a week earlier, shifted to the current times */
  before = null;
  /** @type {Decisions | null} */
  signs = null;
  /** @type {Mark[]} */
  marks = [];
  /** @type {ChartArea | null} where the values are drawn; null while there are none */
  area = null;
  /** @type {DrawnLane[]} */
  drawn = [];
  /** @type {Lane[]} */
  lanes = [];
  /** @type {Series[]} the measured ones of all lanes */
  series = [];
  /** @type {string[]} */
  paths = [];
  /** @type {Map<string, Numbers>} */
  columns = new Map();

  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
    this.over = Object.assign(document.createElement("div"), { className: "chart-over" });
    this.plot.after(this.over);
    this.read();
    // A figure with an end doesn't move. A figure with its own length follows the address only to a zoom.
    const end = figure.dataset.end ? Number(figure.dataset.end) : null;
    this.own = figure.dataset.minutes ? { seconds: Number(figure.dataset.minutes) * 60, until: end } : null;
    this.ranged();
    this.question = 0; // number of the newest request; answers to older ones are dropped
    this.failed = false;
    this.acted = watch();
    this.seen = this.held = false; // held: a pointer is down, which may drag a zoom
    figure.addEventListener("pointerdown", () => { this.held = true; });
    addEventListener("pointerup", () => { this.held = false; });
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; if (this.seen) this.draw(); }).observe(figure);
    // A chart out of sight follows its width, too: the page would stay wider than the screen.
    new ResizeObserver(() => this.draw(this.listening)).observe(figure);
    follow(this);
    this.load();
  }

  /** Read the lanes that the page declares. Values that are known already are kept. */
  read() {
    this.lanes = [...this.figure.querySelectorAll("[data-lane]")].map(readLane);
    this.series = this.lanes.flatMap((lane) => lane.series).filter((series) => series.constant === null);
    this.paths = this.series.flatMap((series) => [series.path, ...edgesOf(series)]);
    this.columns = new Map(this.paths.map((path) => [path, this.columns.get(path) ?? this.time.map(() => null)]));
    /** @type {Map<Lane, { named: Series[], others: Series[] }>} */
    this.picked = new Map();
  }

  /** Set the range from the address, unless the figure declares its own. */
  ranged() {
    const { seconds, until, before } = ranges.range(this.own);
    Object.assign(this, { seconds, until, compared: before });
  }

  /** Show another range or comparison. */
  show() {
    this.ranged();
    this.load();
  }

  async load() {
    const question = this.question += 1;
    this.decided();
    const to = this.until ?? store.snapshot?.at ?? Date.now() / 1000;
    this.asked = to;
    this.compare(to, question);
    this.mark(to, question);
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
    this.first = this.time.find((_, place) => this.paths.some((path) => typeof this.values(path)[place] === "number")) ?? Infinity;
    this.picked.clear();
  }

  /** Return the start of the time axis. Live charts of a young plant start together with its data.
   * @param {number} until */
  from(until) {
    const from = until - this.seconds, first = Math.min(...[...charts].map((chart) => chart.first));
    return this.until === null && !this.compared && first < Infinity ? Math.max(from, Math.min(first, until - MIN_SHOWN_SECONDS)) : from;
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

  /** @param {number} to @param {number} question */
  async mark(to, question) {
    const found = await loadMarks(to - this.seconds, to);
    if (question !== this.question) return;
    this.marks = found;
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
    for (const [path, column] of this.columns) {
      const value = resolve(snapshot, path);
      column.push(value);
      if (typeof value === "number") this.first = Math.min(this.first, snapshot.at);
    }
    while (this.time[0] < snapshot.at - KEPT_SECONDS) {
      this.time.shift();
      for (const column of this.columns.values()) column.shift();
    }
    if (missed) this.load();
    this.draw();
  }

  draw(shown = this.seen) {
    if (!(shown || this.seen) || this.held || document.hidden || !window.Plotly || !this.figure.offsetWidth) return;
    if (!this.known()) return this.say(this.why());
    this.plot.querySelector(".nothing")?.remove();
    const { data, layout } = this.compose();
    window.Plotly.react(this.plot, data, layout, CONFIG);
    if (!this.listening) this.listen();
  }

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
    const titles = this.lanes.map(({ title }) => title).join(", ");
    return this.continues() ? `${titles}: no data yet. The chart starts with the next value.` : `${titles}: no data for this period.`;
  }

  /** @param {string} text */
  say(text) {
    this.area = null;
    this.over.replaceChildren();
    const said = this.plot.querySelector(".nothing");
    if (said) return write(said, text);
    if (this.listening) window.Plotly?.purge(this.plot); // otherwise Plotly would draw into the removed element
    this.listening = false;
    this.plot.replaceChildren(Object.assign(document.createElement("p"), { className: "nothing", textContent: text }));
  }

  listen() {
    this.listening = true;
    this.plot.on("plotly_relayout", (change) => {
      // The axis has local times without a zone, as Date has them.
      const [from, to] = ["xaxis.range[0]", "xaxis.range[1]"].map((end) => (change[end] === undefined ? NaN : Number(new Date(change[end]))));
      if (from < to) ranges.zoom(from, to, showAll);
    });
    this.plot.on("plotly_doubleclick", () => ranges.resume(showAll));
  }

  compose() {
    const colours = tokens(), width = this.plot.clientWidth, narrow = width < NARROW;
    const until = this.until ?? this.time.at(-1) ?? Date.now() / 1000, bars = listBars(until), signs = this.shownSigns();
    this.drawn = this.lanes.map((lane) => this.prepare(lane, colours, narrow));
    const labelled = marginFor([...this.drawn.flatMap(({ ends }) => ends), { label: countActions(signs?.decisions ?? []), value: "" }]);
    const titled = narrow && labelled > width * MAX_LABEL_SHARE, extra = titled ? NARROW_GAP : 0; // the titles have the labels of the lines, too
    // The first lane's title is below the bars, or in the margin if there are none.
    const above = bars.length ? BAR_LANE * bars.length + HEADING_LANE + extra : 0, decided = signs ? TRIANGLE_LANE : 0;
    const plotted = this.drawn.reduce((total, _, index) => total + laneHeight(index) + (index ? LANE_GAP + extra : 0), above + decided);
    const right = titled ? 12 : labelled;
    const layout = frame(colours, plotted + TOP + extra + BOTTOM, narrow, right), plotWidth = width - layout.margin.l - right;
    const [from, to] = [this.from(until), until].map((at) => at * 1000);
    Object.assign(layout, { hovermode: false });
    layout.margin.t = TOP + extra;
    Object.assign(layout.xaxis, { range: [new Date(from), new Date(to)], tickformatstops: ranges.TICK_FORMATS });
    this.area = { from, to, left: layout.margin.l, width: plotWidth, top: TOP + extra, height: plotted, decisions: decided };
    const data = this.composeLanes(layout, colours, { titled, plotted, above, plotWidth, extra });
    if (signs && !titled) layout.annotations.push({ text: countActions(signs.decisions), x: 1, xref: "paper", xshift: 6, y: TRIANGLE_LANE / plotted / 2, yref: "paper", xanchor: "left", yanchor: "middle", showarrow: false });
    if (signs) data.push(...triangles(signs, colours, layout, TRIANGLE_LANE / plotted));
    drawMarks(this.marks, { from, to, width: plotWidth, top: 1 - above / plotted }, colours, layout);
    bars.forEach((bar, row) => drawBar(bar, row, colours, layout, { height: plotted, width: plotWidth }));
    return { data, layout };
  }

  shownSigns() {
    return this.signs?.decisions.length || this.signs?.guard.length ? this.signs : null;
  }

  /** Compose all lanes from the top to the bottom, with their titles.
   * @param {PlotLayout} layout @param {Colours} colours
   * @param {{ titled: boolean, plotted: number, above: number, plotWidth: number, extra: number }} size @returns {object[]} */
  composeLanes(layout, colours, { titled, plotted, above, plotWidth, extra }) {
    let top = plotted - above;
    /** @type {HTMLElement[]} */
    const titles = [];
    const data = this.drawn.flatMap((drawn, index) => {
      const axis = index ? `y${index + 1}` : "y", { lane, range } = drawn, height = laneHeight(index);
      Object.assign(drawn, { top: TOP + extra + plotted - top, height });
      const place = scale(colours, [Math.max(0, (top - height) / plotted), Math.min(1, top / plotted)], range);
      layout[axis.replace("y", "yaxis")] = { ...place, showticklabels: this.known(lane.series) };
      const bands = banded(lane, axis, this, colours), faint = this.before && !lane.stacked ? this.faint(lane, axis, colours) : [];
      titles.push(this.title(drawn, bands.length > 0, titled));
      if (!titled) labels(drawn.ends, axis, layout, range, height);
      limitLabels(drawn.limits, axis, layout, range, height);
      const shape = { axis, factor: lane.factor, highest: range.high, lowest: range.low, width: plotWidth };
      top -= height + LANE_GAP + extra;
      return [...bands, ...faint, ...this.traces(drawn, axis, colours), ...marked(changesOf(lane, store.snapshot), shape, colours, layout)];
    });
    this.over.querySelectorAll(".lane-title").forEach((title) => title.remove());
    this.over.prepend(...titles);
    return data;
  }

  /** Choose what a lane draws: its series with their colors and last values, its limits, and its axis.
   * @param {Lane} lane @param {Colours} colours @param {boolean} narrow @returns {DrawnLane} */
  prepare(lane, colours, narrow) {
    const picked = this.picked.get(lane) ?? pickEntities(lane, (path) => this.values(path));
    if (this.time.length) this.picked.set(lane, picked);
    const named = new Set(picked.named), candidates = lane.series.filter((row) => !isEntity(row) || named.has(row));
    const limits = candidates.filter(isLimit).flatMap((row) => { const value = this.last(row); return value === null ? [] : [{ row, value: value * lane.factor }]; });
    const { low, high, above } = rangeOf(lane, this.visible(lane), limits);
    const range = lane.highest ? { low: 0, high: lane.highest, step: lane.highest / 4 } : roundRange(low, high, lane.whole ? 1 : 0), far = new Set(above.map(({ row }) => row));
    const series = candidates.filter((row) => !far.has(row)), colour = coloursOf(series, colours);
    const all = series.flatMap((row) => {
      const value = this.last(row), at = (value ?? 0) * lane.factor;
      return value === null ? [] : [{ label: row.label, value: isLimit(row) ? withUnit(at, lane.unit) : brief(at), at, colour: colour.get(row) ?? colours.muted, strong: !isLimit(row) }];
    });
    // A small chart names its limits on their lines.
    const [ends, within] = narrow ? [all.filter(({ strong }) => strong), all.filter(({ strong }) => !strong)] : [all, []];
    if (picked.others.length && !lane.stacked) ends.push({ label: `${picked.others.length} others`, value: "", at: range.low, colour: colours.muted, strong: false });
    return { lane, series, others: picked.others, colour, range, above, ends: lane.stacked ? middles(ends) : ends, limits: within, top: 0, height: 0 };
  }

  /** Return the last known value of a series, null if there is none.
   * @param {Series} row */
  last({ constant, path }) {
    return constant ?? this.values(path).findLast((value) => typeof value === "number") ?? null;
  }

  /** Return the values of a lane in the time range, without limits, and those of a day or a week earlier.
   * @param {Lane} lane */
  visible(lane) {
    const from = this.from(this.until ?? this.time.at(-1) ?? 0), first = this.time.findIndex((at) => at >= from), { before } = this;
    const measured = lane.series.filter((row) => !isLimit(row)), known = (/** @type {Numbers} */ values) => values.filter((value) => typeof value === "number");
    const values = first < 0 ? [] : lane.stacked ? this.sums(measured, first) : measured.flatMap(({ path }) => known(this.values(path).slice(first)));
    const earlier = before ? measured.flatMap(({ path }) => known(before.series[path] ?? [])) : [];
    return [...values, ...earlier].map((value) => value * lane.factor);
  }

  /** Return the sums of series at each time from a place on.
   * @param {Series[]} series @param {number} first */
  sums(series, first) {
    const columns = series.map(({ path }) => this.values(path));
    return first < 0 ? [] : this.time.slice(first).map((_, place) => columns.reduce((total, column) => total + (column[first + place] ?? 0), 0));
  }

  /** Return the title of a lane: its name, unit, and what is not on the axis. A chart without room for labels has them there.
   * @param {DrawnLane} drawn @param {boolean} isBanded @param {boolean} titled */
  title({ lane, above, ends, top }, isBanded, titled) {
    const made = (/** @type {string} */ text, className = "") => Object.assign(document.createElement("span"), { textContent: text, className });
    const title = made("", "lane-title"), name = Object.assign(document.createElement("b"), { textContent: lane.title });
    title.append(name, ...lane.unit ? [" ", made(lane.unit)] : []);
    const notes = [...isBanded ? ["shaded: expected range"] : [], ...this.before ? [`faint: ${this.before.words}`] : [], ...above.map(({ row, value }) => `${row.label} ${withUnit(value, lane.unit)}, above range`)];
    if (titled) {
      for (const { label, value, colour } of ends) {
        const key = made(`${shortened(label)} ${value}`, "lane-key");
        key.style.color = colour;
        title.append(" ", key);
      }
    }
    if (notes.length) title.append(" ", made(notes.join("; "), "lane-notes"));
    title.style.bottom = `calc(100% - ${top - TITLE_GAP}px)`;
    return title;
  }

  /** @param {DrawnLane} drawn @param {string} axis @param {Colours} colours @returns {object[]} */
  traces({ lane, series, others, colour, range }, axis, colours) {
    const holes = gaps(this.time), times = withHoles(this.time, holes, (at) => date(at)), to = this.until ?? this.time.at(-1) ?? 0;
    const scaled = (/** @type {Numbers} */ values) => withHoles(values, holes, (value) => (typeof value === "number" ? value * lane.factor : null));
    const common = { type: "scatter", mode: "lines", yaxis: axis, connectgaps: false, hoverinfo: "skip", cliponaxis: true };
    const measured = series.find((row) => row.kind === "measured");
    const lines = series.map((row) => {
      const { constant } = row, level = (constant ?? 0) * lane.factor, ink = colour.get(row) ?? colours.muted;
      return {
        ...common, x: constant === null ? times : [date(this.from(to)), date(to)], y: constant === null ? scaled(this.values(row.path)) : [level, level], name: row.label, line: lineOf(row.kind, ink, colours, lane.whole),
        ...lane.stacked && !isLimit(row) ? { stackgroup: axis, fillcolor: faded(ink, STACK_OPACITY) } : {},
      };
    });
    const rest = lane.stacked && others.length
      ? [{ ...common, x: times, y: withHoles(this.sums(others, 0), holes, (value) => value * lane.factor), name: "others", line: lineOf("stacked", colours.muted, colours), stackgroup: axis, fillcolor: colours.band }]
      : others.map(({ path, label }) => ({ ...common, x: times, y: scaled(this.values(path)), name: label, opacity: 0.5, line: { color: colours.muted, width: 0.75 } }));
    const areas = series.filter((row) => row.kind === "step" && !range.low && !lane.stacked).map((row) => ({ ...common, x: times, y: scaled(this.values(row.path)), name: "area", mode: "none", line: { shape: "hv" }, fill: "tozeroy", fillcolor: faded(colour.get(row) ?? colours.muted, AREA_OPACITY) }));
    const tints = series.filter(({ breach }) => breach && measured).map((row) => {
      const limit = row.constant === null ? scaled(this.values(row.path)) : times.map(() => (row.constant ?? 0) * lane.factor);
      return { ...common, ...breaches(times, scaled(this.values(measured?.path ?? "")), limit, row.breach), name: "breach", mode: "none", fill: "toself", fillcolor: faded(colours.toobusy, BREACH_OPACITY) };
    });
    return [...tints, ...areas, ...rest, ...lines];
  }

  /** Return the lines of a day or a week earlier, which are behind the current ones.
   * @param {Lane} lane @param {string} axis @param {Colours} colours */
  faint(lane, axis, colours) {
    if (!this.before) return [];
    const { time, series, words } = this.before, holes = gaps(time);
    return lane.series.filter((row) => row.constant === null && !isLimit(row)).map(({ path, kind }) => ({
      x: withHoles(time, holes, (at) => date(at)), y: withHoles(series[path] ?? time.map(() => null), holes, (value) => (typeof value === "number" ? value * lane.factor : null)),
      type: "scatter", mode: "lines", name: words, yaxis: axis, connectgaps: false, hoverinfo: "skip", opacity: 0.6, line: { ...lineOf(kind, colours.muted, colours, lane.whole), width: 1 },
    }));
  }

  /** Return the values at a time, ms, of each series and of the same a day or a week earlier.
   * @param {number} at @returns {Reading[]} */
  readings(at) {
    const place = nearest(this.time, at / 1000), earlier = nearest(this.before?.time ?? [], at / 1000);
    return this.drawn.flatMap((drawn) => [...drawn.series, ...drawn.others].flatMap((row) => {
      const { lane } = drawn, value = row.constant ?? this.values(row.path)[place], was = isLimit(row) ? null : this.before?.series[row.path]?.[earlier];
      const colour = drawn.colour.get(row) ?? "", level = typeof value === "number" ? value * lane.factor : null;
      const now = { label: row.label, text: level === null ? "" : withUnit(level, lane.unit), colour, dashed: isLimit(row) || row.kind === "wanted", y: isLimit(row) || !colour ? null : dotPlace(drawn, level) };
      return typeof was === "number" ? [now, { label: `${row.label}, ${this.before?.words}`, text: withUnit(was * lane.factor, lane.unit), colour: "", dashed: false, y: null }] : [now];
    }));
  }

  /** Return what is drawn near a time, ms: a decision with its address, or a changed level of a rate.
   * @param {number} at */
  noteAt(at) {
    if (!this.area) return null;
    const secondsPerPixel = (this.area.to - this.area.from) / 1000 / this.area.width, decision = decisionAt(this.signs, at / 1000, secondsPerPixel);
    const changed = this.lanes.map((lane) => changeAt(lane, store.snapshot, at / 1000, NEAR_PIXELS * secondsPerPixel)).filter(Boolean).join(". ");
    return decision ?? (changed ? { words: changed, url: "" } : null);
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

}

/** @param {number} index */
const laneHeight = (index) => LANE_HEIGHTS[Math.min(index, LANE_HEIGHTS.length - 1)];

/** Return where a value is on its lane, px; null if it is unknown or in a stack.
 * @param {DrawnLane} drawn @param {number | null} level */
const dotPlace = ({ lane, range, top, height }, level) => (level === null || lane.stacked ? null
  : top + height * (1 - (Math.min(level, range.high) - range.low) / (range.high - range.low)));

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

/** Return the place of the time nearest to an instant, -1 if there is none.
 * @param {number[]} time @param {number} at */
function nearest(time, at) {
  let low = 0, high = time.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (time[middle] < at) low = middle;
    else high = middle;
  }
  return high >= 0 && Math.abs(time[high] - at) < Math.abs(time[low] - at) ? high : Math.min(low, high);
}

/** @param {string} kind @param {string} color @param {Colours} colours @param {boolean} isWhole @returns {object} */
function lineOf(kind, color, colours, isWhole = false) {
  if (kind === "stacked") return { color: colours.surface, width: 1, shape: "hv" };
  if (kind === "limit" || kind === "reference") return { color, width: 1.25, dash: "dash" };
  return { color, width: 1.5, shape: isWhole || kind === "step" || kind === "wanted" ? "hv" : "linear", dash: kind === "wanted" ? "dash" : "solid" };
}

/** Move the labels of stacked areas to the middle of each area.
 * @param {LabelEnd[]} ends */
function middles(ends) {
  let below = 0;
  return ends.filter(({ at }) => at > 0).map((end) => {
    below += end.at;
    return { ...end, at: below - end.at / 2 };
  });
}

function start() {
  ranges.start(showAll);
  document.querySelectorAll("figure.chart").forEach((figure) => {
    figure.setAttribute("role", "figure");
    figure.setAttribute("aria-label", figure.dataset.chart ?? "");
    charts.add(new Chart(figure));
  });
  document.addEventListener("weir:part", ({ detail }) => charts.forEach((chart) => {
    if (!chart.figure.contains(detail)) return;
    chart.read();
    chart.load();
  }));
  subscribe((snapshot) => charts.forEach((chart) => chart.add(snapshot)));
  document.addEventListener("weir:theme", () => charts.forEach((chart) => chart.draw()));
}

start();
