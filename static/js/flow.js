// The flow map: producers → queues → nodes → pipeline and workers → sinks. Width is rate; a band has colour only where
// it arrives at a node in trouble. The order is fixed, and everything is updated in place, so the map is smooth but still.
import { model, unit } from "./flow_model.js";
import { subscribe } from "./store.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1200, TOP = 40, GAP = 12, LEAST_BAND = 1, LEAST_HEIGHT = 330;
const COLUMNS = [
  { title: "Producers", x: 0, width: 128 }, { title: "Queues", x: 256, width: 150 }, { title: "Nodes", x: 534, width: 140 },
  { title: "Pipeline and workers", x: 794, width: 140 }, { title: "Sinks", x: 1036, width: 164 },
];
const HEIGHTS = [32, 46, 50, 46, 32];

let shown = "rate", unitHeight = null, latest = null;

/** Places for boxes and bands. The scale only changes when it must, so that bands don't breathe with every second. */
function layout({ boxes, links }) {
  const height = Math.max(LEAST_HEIGHT, ...boxes.map((column, index) => column.length * (HEIGHTS[index] + 20) + GAP * column.length));
  const widest = Math.max(1e-6, ...boxes.map((column) => column.reduce((total, box) => total + (box.rate ?? 0), 0)));
  const fitting = 0.62 * height / widest;
  if (unitHeight === null || fitting < unitHeight * 0.98 || fitting > unitHeight * 1.6) unitHeight = fitting;
  const placed = new Map();
  for (const link of links) link.width = link.rate ? Math.max(LEAST_BAND, link.rate * unitHeight) : 0;
  boxes.forEach((column, index) => placeColumn(column, index, height, placed, links));
  const sides = { out: new Map(), in: new Map() };
  for (const link of links) {
    link.start = advance(sides.out, link.from, link.width);
    link.end = advance(sides.in, link.to, link.width);
  }
  for (const link of links) band(link, placed, sides);
  return { placed, height: TOP + height };
}

function placeColumn(column, index, height, placed, links) {
  const held = (side, id) => links.filter((link) => link[side] === id).reduce((total, link) => total + link.width, 0);
  const sizes = column.map((box) => Math.max(HEIGHTS[index], held("from", box.id) + 8, held("to", box.id) + 8));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const gap = column.length > 1 ? Math.min(28, Math.max(4, (height - total) / (column.length - 1))) : 0;
  let y = TOP + Math.max(0, (height - total - gap * (column.length - 1)) / 2);
  column.forEach((box, place) => {
    placed.set(box.id, { ...box, ...COLUMNS[index], y, height: sizes[place] });
    y += sizes[place] + gap;
  });
}

function advance(side, id, width) {
  const at = side.get(id) ?? 0;
  side.set(id, at + width);
  return at;
}

function band(link, placed, sides) {
  const from = placed.get(link.from), to = placed.get(link.to);
  const middle = (box, total) => box.y + Math.max(2, (box.height - total) / 2);
  const y0 = middle(from, sides.out.get(link.from)) + link.start, y1 = middle(to, sides.in.get(link.to)) + link.end;
  const x0 = from.x + from.width, x1 = to.x, bend = (x1 - x0) * 0.5;
  const at = (value) => value.toFixed(1);
  link.path = `M${at(x0)} ${at(y0)}C${at(x0 + bend)} ${at(y0)} ${at(x1 - bend)} ${at(y1)} ${at(x1)} ${at(y1)}`
    + `L${at(x1)} ${at(y1 + link.width)}C${at(x1 - bend)} ${at(y1 + link.width)} ${at(x0 + bend)} ${at(y0 + link.width)} ${at(x0)} ${at(y0 + link.width)}Z`;
}

// --- drawing, in place -------------------------------------------------------------------------------------

const drawn = new Map();

function element(parent, key, name, attributes) {
  let found = drawn.get(key);
  if (!found) {
    found = document.createElementNS(SVG, name);
    drawn.set(key, found);
    parent.append(found);
  }
  found.used = latest;
  for (const [attribute, value] of Object.entries(attributes)) {
    if (found.getAttribute(attribute) !== String(value)) found.setAttribute(attribute, value);
  }
  return found;
}

function label(parent, key, x, y, text, attributes = {}) {
  const found = element(parent, key, "text", { x, y, ...attributes });
  if (found.textContent !== text) found.textContent = text;
}

function draw(host, snapshot) {
  latest = snapshot.seq;
  const map = model(snapshot, shown), { placed, height } = layout(map);
  const svg = element(host, "svg", "svg", { viewBox: `-1 0 ${WIDTH + 2} ${height + 2}`, role: "group", "aria-label": "Flow of events through the plant" });
  if (!drawn.has("defs")) hatch(svg);
  for (const { title, x } of COLUMNS) label(svg, `heading ${title}`, x, 14, title, { class: "heading" });
  const bands = element(svg, "bands", "g", { "aria-hidden": "true" });
  for (const link of map.links) {
    if (link.width) element(bands, `band ${link.from}>${link.to}`, "path", { d: link.path, class: `band${link.state ? ` to-${link.state}` : ""}` });
  }
  for (const box of placed.values()) drawBox(svg, box);
  if (!map.boxes[0].length) label(svg, "no producers", 0, TOP + 20, "No producer publishes now.", { class: "second" });
  for (const [key, found] of drawn) if (found.used !== latest && key !== "defs") { found.remove(); drawn.delete(key); }
}

function hatch(svg) {
  const defs = document.createElementNS(SVG, "defs");
  defs.innerHTML = '<pattern id="stale-hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch-line" x1="0" y1="0" x2="0" y2="8"/></pattern>';
  svg.prepend(defs);
  drawn.set("defs", defs);
}

function drawBox(svg, box) {
  const key = box.id, right = box.x + box.width - 9, left = box.x + 9;
  const group = element(svg, `box ${key}`, box.url ? "a" : "g", { class: box.state ? `at-${box.state}` : "plain", ...(box.url ? { href: box.url } : {}) });
  element(group, `rect ${key}`, "rect", { class: "box", x: box.x, y: box.y.toFixed(1), width: box.width, height: box.height.toFixed(1), rx: 4 });
  if (box.stale) element(group, `hatch ${key}`, "rect", { class: "hatch", x: box.x, y: box.y.toFixed(1), width: box.width, height: box.height.toFixed(1), rx: 4 });
  const middle = box.y + box.height / 2, first = box.second ? middle - 4 : middle + 4;
  label(group, `name ${key}`, left, first.toFixed(1), clipped(box.name, box.width, box.figure ?? unit(box.rate, "rate", "")), { class: "name" });
  label(group, `figure ${key}`, right, first.toFixed(1), box.figure ?? unit(box.rate, "rate", ""), { "text-anchor": "end" });
  if (!box.second) return;
  const second = middle + 13;
  if (box.state) sign(group, key, box.state, left + 5, second - 4);
  label(group, `word ${key}`, box.state ? left + 16 : left, second.toFixed(1), box.second[0] || box.second[1], { class: box.state ? "state-word" : "second" });
  if (box.second[0]) label(group, `second ${key}`, right, second.toFixed(1), box.second[1], { class: "second", "text-anchor": "end" });
}

const SIGNS = {
  BUSY: "M0 -5L5 4.5H-5Z", TOOBUSY: "M-4.5 -4.5H4.5V4.5H-4.5Z",
  ROUND: "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1 -4.5 0Z",
};

function sign(group, key, state, x, y) {
  element(group, `sign ${key}`, "path", { class: "sign", d: SIGNS[state] ?? SIGNS.ROUND, transform: `translate(${x} ${y.toFixed(1)})` });
}

/** A name that would run into its figure is cut; the page behind it has the whole. */
function clipped(name, width, figure) {
  const most = Math.floor((width - 24 - figure.length * 7) / 7.6);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

const host = document.getElementById("flow");
if (host) {
  host.replaceChildren();
  let newest = null;
  subscribe((snapshot) => { newest = snapshot; if (!document.hidden) draw(host, snapshot); });
  document.getElementById("flow-figure").addEventListener("click", ({ target }) => {
    if (!target.value) return;
    shown = target.value;
    for (const button of target.parentElement.children) button.setAttribute("aria-pressed", String(button === target));
    if (newest) draw(host, newest);
  });
}
