// Marks on the time axis of a chart: decisions as triangles, deploys and notes as dotted lines, and overrides and alerts
// as bars.
import { VERDICT_WORDS } from "../values/rules.js";
import { NARROW, plain } from "./plot.js";

export const TRIANGLE_LANE = 26, BAR_LANE = 24, NEAR_PIXELS = 8;
const MAX_BARS = 6, CHARACTER_WIDTH = 6.5, LABEL_GAP = 8;
/** @type {Record<string, string>} */
const VERDICT_SYMBOLS = { effective: "triangle-up", harmful: "triangle-up", ineffective: "triangle-up-open", checking: "triangle-up-open-dot", "no action": "line-ew-open" };
/** @type {Map<string, Promise<Mark[]>>} the requested marks by time range, which all charts of a page share */
const asked = new Map();

/** Return the deploys and notes of a time range, Unix time.
 * @param {number} from @param {number} to @returns {Promise<Mark[]>} */
export function loadMarks(from, to) {
  const [since, until] = [from, to].map((at) => `${new Date(at * 1000).toISOString().slice(0, 19)}Z`);
  const address = `/api/v1/marks?${new URLSearchParams({ from: since, to: until })}`;
  const found = asked.get(address) ?? request(address);
  if (!asked.has(address)) asked.clear();
  asked.set(address, found);
  return found;
}

/** @param {string} address @returns {Promise<Mark[]>} */
async function request(address) {
  try {
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    return response.ok ? (await response.json()).marks : [];
  } catch {
    return []; // disconnected: the strip says so
  }
}

/** Draw a dotted line with its name for each mark. A name that would cover the next one is left out.
 * @param {Mark[]} marks @param {{ from: number, to: number, width: number, top: number }} shape @param {Colours} colours
 * @param {PlotLayout} layout */
export function drawMarks(marks, { from, to, width, top }, colours, layout) {
  let free = 0;
  for (const { at, title } of marks) {
    const time = Date.parse(at), x = (time - from) / (to - from) * width, room = title.length * CHARACTER_WIDTH + LABEL_GAP;
    if (x < 0 || x > width) continue;
    layout.shapes.push({ type: "line", xref: "x", yref: "paper", x0: new Date(time), x1: new Date(time), y0: 0, y1: top, line: { color: colours.muted, width: 1, dash: "dot" } });
    const isLeft = x - room >= free;
    if (!isLeft && (x < free || x + room > width)) continue;
    layout.annotations.push({ text: plain(title), x: new Date(time), xref: "x", xshift: isLeft ? -4 : 4, y: top, yref: "paper", xanchor: isLeft ? "right" : "left", yanchor: "top", showarrow: false, font: { size: 12, color: colours.text }, bgcolor: colours.surface });
    free = isLeft ? x : x + room;
  }
}

/** Return the number of actions, and how many did not help.
 * @param {Decision[]} decisions */
export function countActions(decisions) {
  const count = (/** @type {Decision[]} */ rows) => rows.reduce((total, row) => total + row.count, 0);
  const all = count(decisions), without = count(decisions.filter(({ verdict }) => verdict === "ineffective")), harmful = count(decisions.filter(({ verdict }) => verdict === "harmful"));
  if (harmful) return `${harmful} harmful`;
  if (without) return `${without} no effect`;
  return all ? `${all} action${all === 1 ? "" : "s"}` : "";
}

/** @param {Decisions} signs @param {Colours} colours @param {PlotLayout} layout @param {number} share */
export function triangles({ decisions, guard }, colours, layout, share) {
  layout.yaxis9 = { domain: [0, share], visible: false, fixedrange: true, range: [-1, 1] };
  const common = { type: "scatter", mode: "markers", name: "decisions", yaxis: "y9", hoverinfo: "skip" };
  return [
    {
      ...common, x: decisions.map(({ at }) => new Date(at * 1000)), y: decisions.map(() => 0.15),
      marker: { symbol: decisions.map(({ verdict }) => VERDICT_SYMBOLS[verdict] ?? "triangle-up"), size: 9, color: decisions.map(({ verdict }) => (verdict === "harmful" ? colours.toobusy : colours.text)) },
    },
    // What the guard limited, delayed, or held is below the triangles.
    { ...common, x: guard.map(({ at }) => new Date(at * 1000)), y: guard.map(() => -0.75), marker: { symbol: "line-ew-open", size: 7, color: colours.muted, line: { width: 3 } } },
  ];
}

/** Return the decision that is drawn near a time, with its words; null if none is.
 * @param {Decisions | null} signs @param {number} at @param {number} secondsPerPixel @returns {{ words: string, url: string } | null} */
export function decisionAt(signs, at, secondsPerPixel) {
  const near = [...signs?.decisions ?? [], ...signs?.guard ?? []].filter((row) => Math.abs(row.at - at) <= NEAR_PIXELS * secondsPerPixel)
    .sort((one, other) => Math.abs(one.at - at) - Math.abs(other.at - at))[0];
  if (!near) return null;
  const verdict = near.count === 1 && near.verdict ? `${VERDICT_WORDS[near.verdict] ?? near.verdict}: ` : "";
  return { words: `${verdict}${near.title}`, url: near.url };
}

/** Return the bars that the page declares: overrides, and the time in which an alert fired.
 * @param {number} now @returns {OverrideBar[]} */
export const listBars = (now) => [...document.querySelectorAll("[data-override], [data-bar]")]
  .map(({ dataset }) => ({ from: dataset.from ?? "", to: dataset.to || new Date(now * 1000), label: dataset.bar ?? `Override: ${dataset.label}`, severity: dataset.severity ?? "" }))
  .slice(0, MAX_BARS);

/** @param {OverrideBar} bar @param {number} row @param {Colours} colours @param {PlotLayout} layout
 * @param {{ height: number, width: number }} plotted */
export function drawBar(bar, row, colours, layout, plotted) {
  const high = 1 - row * BAR_LANE / plotted.height, low = high - (BAR_LANE - 6) / plotted.height;
  const [from, to] = layout.xaxis.range.map(Number);
  const left = Math.max(Number(new Date(bar.from)), from), right = Math.min(Number(new Date(bar.to)), to);
  if (right <= left) return;
  const isAlert = bar.severity !== "", edge = isAlert ? colours[bar.severity === "critical" ? "toobusy" : "busy"] : colours.text;
  layout.shapes.push({ type: "rect", xref: "x", yref: "paper", x0: new Date(left), x1: new Date(right), y0: low, y1: high, line: { color: edge, width: 1 }, fillcolor: isAlert ? edge : colours.surface });
  const pixels = (/** @type {number} */ span) => span / (to - from) * plotted.width, needed = bar.label.length * CHARACTER_WIDTH + 12, fits = pixels(right - left) > needed;
  if (!fits && plotted.width < NARROW) return; // no room beside it either
  const place = placeLabel(isAlert, fits, pixels(left - from) > needed), atLeft = place === "before" || place === "start", toLeft = place === "before" || place === "end";
  layout.annotations.push({ text: plain(bar.label), x: new Date(atLeft ? left : right), xref: "x", xshift: toLeft ? -4 : 4, xanchor: toLeft ? "right" : "left", y: (low + high) / 2, yref: "paper", yanchor: "middle", showarrow: false, font: { size: 12, color: place === "start" ? colours.surface : colours.text } });
}

/** Return the place of a bar's label: before or after the bar, or at the start or end in it. The bar of an alert is
 * filled, so its label is before it.
 * @param {boolean} isAlert @param {boolean} fits in the bar @param {boolean} hasRoom before the bar */
function placeLabel(isAlert, fits, hasRoom) {
  if (hasRoom && (isAlert || !fits)) return "before";
  if (!fits) return "after";
  return isAlert ? "start" : "end";
}
