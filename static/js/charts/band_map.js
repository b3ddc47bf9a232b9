// A map of boxes in columns with bands between them. The width of a band is its rate. A band has a color only if it
// leads to an overloaded box. The order is fixed and elements are updated in place, so that the map changes smoothly.
import { UNKNOWN, formatted } from "../values/format.js";

const SVG = "http://www.w3.org/2000/svg";
const TOP = 28, MIN_GAP = 6, MIN_BAND = 1, LEFT = 9, PADDING = 8, LINE = 17;
const MAX_GLIDING = 40; // bands
const EASE = 0.3, GRID = 8; // share of a change that a width takes per drawing; step of a box's height, px
const SHRUNK = 0.92, REGROWN = 1.6; // shares of the fitting scale: the new scale; the limit for growth

/**
 * Draw into the element "host". columns: [{title, x, width, height}]. leastHeight: minimum height of the map. fill:
 * share of the height that the bands of the widest column take.
 * Returns draw({boxes: one list per column, links: [{from, to, rate, state}]}).
 * A box: {id, subject, name, rate | figure, lines: [[left, right]], state, stale, url, share (a bar of 0 … 1),
 * mark (0 … 1)}.
 * @param {HTMLElement} host @param {MapOptions} options */
export function bandMap(host, { columns, width, leastHeight, fill = 0.62, name }) {
  /** @type {Map<string, SVGElement>} elements by key */
  const drawn = new Map();
  /** @type {Map<SVGElement, number>} the last drawing that used an element */
  const used = new Map();
  /** @type {Map<string, number>} smoothed rates by band */
  const eased = new Map();
  let /** @type {number | null} */ scale = null, latest = 0; // pixels per event/s; number of the current drawing

  /** @param {Element} parent @param {string} key @param {string} tag
   * @param {Record<string, string | number>} attributes @returns {SVGElement} */
  function element(parent, key, tag, attributes) {
    let found = drawn.get(key);
    if (!found) {
      found = document.createElementNS(SVG, tag);
      drawn.set(key, found);
      parent.append(found);
    }
    used.set(found, latest);
    for (const [attribute, value] of Object.entries(attributes)) {
      if (found.getAttribute(attribute) !== String(value)) found.setAttribute(attribute, String(value));
    }
    return found;
  }

  /** @param {Element} parent @param {string} key @param {string | number} x @param {string | number} y
   * @param {string} text */
  function label(parent, key, x, y, text, /** @type {Record<string, string>} */ attributes = {}) {
    const found = element(parent, key, "text", { x, y, ...attributes });
    if (found.textContent !== text) found.textContent = text;
  }

  /** Compute the places of boxes and bands. The scale changes only if necessary, so that widths stay stable.
   * @param {{ boxes: Box[][], links: PlacedLink[] }} options */
  function layout({ boxes, links }) {
    const height = Math.max(leastHeight, ...boxes.map((column, index) => column.reduce((total, box) => total + leastOf(box, columns[index]) + MIN_GAP, 0)));
    ease(links);
    const fitting = fittingScale(boxes, columns, links, height, fill);
    if (scale === null || fitting < scale) scale = fitting * SHRUNK;
    else if (fitting > scale * REGROWN) scale = fitting;
    for (const link of links) link.width = link.rate || link.eased * scale > MIN_BAND ? Math.max(MIN_BAND, link.eased * scale) : 0;
    /** @type {Map<string, PlacedBox>} */
    const placed = new Map();
    boxes.forEach((column, index) => placeColumn(column, columns[index], height, placed, links));
    /** @type {Sides} */
    const sides = { out: new Map(), in: new Map() };
    for (const link of links) {
      link.start = advance(sides.out, link.from, link.width);
      link.end = advance(sides.in, link.to, link.width);
    }
    for (const link of links) band(link, placed, sides);
    return { placed, height: TOP + height };
  }

  /** Smooth the rates, because workers take thousands of events at once. The scale must fit the smoothed rate, which is
   * far above the rate after a burst.
   * @param {PlacedLink[]} links */
  function ease(links) {
    const before = new Map(eased);
    eased.clear();
    for (const link of links) {
      const key = `${link.from}>${link.to}`, rate = link.rate ?? 0, was = before.get(key) ?? rate;
      link.eased = was + EASE * (rate - was);
      eased.set(key, link.eased);
    }
  }

  /** @param {SVGElement} svg */
  function hatch(svg) {
    const defs = document.createElementNS(SVG, "defs");
    defs.innerHTML = '<pattern id="stale-hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch-line" x1="0" y1="0" x2="0" y2="8"/></pattern>';
    svg.prepend(defs);
    drawn.set("defs", defs);
  }

  /** @param {SVGElement} svg @param {PlacedBox} box */
  function drawBox(svg, box) {
    const key = box.id, right = box.x + box.width - LEFT, left = box.x + LEFT;
    const classes = [box.state ? `at-${box.state}` : "plain", ...(box.chosen ? ["chosen"] : []), ...(box.stale ? ["stale"] : [])].join(" ");
    const group = element(svg, `box ${key}`, box.url ? "a" : "g", { class: classes, ...(box.url ? { href: box.url } : {}) });
    if (box.subject) group.dataset.subject = box.subject;
    const frame = { x: box.x, y: box.y.toFixed(1), width: box.width, height: box.height.toFixed(1), rx: 4 };
    const rect = element(group, `rect ${key}`, "rect", { class: "box", ...frame });
    if (box.stale) {
      // The hatching is behind the text of the box, even if the text was drawn first.
      const hatched = element(group, `hatch ${key}`, "rect", { class: "hatch", ...frame });
      if (rect.nextSibling !== hatched) rect.after(hatched);
    }
    const lines = box.lines ?? [], bar = box.share === undefined ? 0 : 8;
    const first = box.y + box.height / 2 + 4 - (LINE * lines.length + bar) / 2;
    const figure = box.figure ?? rateOf(box.rate);
    label(group, `name ${key}`, left, first.toFixed(1), clipped(box.name, box.width, figure), { class: "name" });
    label(group, `figure ${key}`, right, first.toFixed(1), figure, { "text-anchor": "end" });
    lines.forEach(([word, text], index) => drawLine(group, `${key} ${index}`, box, word, text, first + LINE * (index + 1)));
    if (bar) drawShare(group, key, box, first + LINE * lines.length + 9);
  }

  /** Draw a line of a box. The last line of a box with a state begins with the state's sign.
   * @param {Element} group @param {string} key @param {PlacedBox} box @param {string} word @param {string} text
   * @param {number} y */
  function drawLine(group, key, box, word, text, y) {
    const left = box.x + LEFT, right = box.x + box.width - LEFT, signed = box.state && key.endsWith(` ${(box.lines?.length ?? 0) - 1}`);
    if (box.state && signed) element(group, `sign ${key}`, "path", { class: "sign", d: SIGNS[box.state] ?? SIGNS.ROUND, transform: `translate(${left + 5} ${(y - 4).toFixed(1)})` });
    label(group, `word ${key}`, signed ? left + 16 : left, y.toFixed(1), word || text, { class: signed ? "state-word" : "second" });
    if (word) label(group, `second ${key}`, right, y.toFixed(1), text, { class: "second", "text-anchor": "end" });
  }

  /** Draw a bar of the used share, and a mark at the setpoint.
   * @param {Element} group @param {string} key @param {PlacedBox} box @param {number} y */
  function drawShare(group, key, box, y) {
    const whole = box.width - 2 * LEFT, at = (/** @type {number} */ share) => (box.x + LEFT + whole * Math.min(1, Math.max(0, share))).toFixed(1);
    const line = { y: y.toFixed(1), height: 3 };
    element(group, `groove ${key}`, "rect", { class: "groove", x: box.x + LEFT, width: whole, ...line });
    element(group, `share ${key}`, "rect", { class: "share", x: box.x + LEFT, width: (whole * Math.min(1, box.share ?? 0)).toFixed(1), ...line });
    if (box.mark !== undefined) element(group, `mark ${key}`, "path", { class: "mark", d: `M${at(box.mark)} ${(y - 3).toFixed(1)}V${(y + 6).toFixed(1)}` });
  }

  /** @param {BandMap} options */
  return function draw({ boxes, links }) {
    latest += 1; // not the snapshot's number: a snapshot may be drawn twice
    const present = new Set(boxes.flat().map((box) => box.id));
    const shown = /** @type {PlacedLink[]} the layout adds the places */ (links.filter((link) => present.has(link.from) && present.has(link.to)));
    host.classList.toggle("many", shown.length > MAX_GLIDING);
    const { placed, height } = layout({ boxes, links: shown });
    const svg = element(host, "svg", "svg", { viewBox: `-1 0 ${width + 2} ${height + 2}`, role: "group", "aria-label": name });
    if (!drawn.has("defs")) hatch(svg);
    for (const { title, x } of columns) if (title) label(svg, `heading ${title}`, x, 14, title, { class: "heading" });
    const bands = element(svg, "bands", "g", { "aria-hidden": "true" });
    for (const link of shown) {
      if (link.width) element(bands, `band ${link.from}>${link.to}`, "path", { d: link.path, class: `band${link.state ? ` to-${link.state}` : ""}${link.old ? " old" : ""}` });
    }
    for (const box of placed.values()) drawBox(svg, box);
    for (const [key, found] of drawn) if (used.get(found) !== latest && key !== "defs") { found.remove(); drawn.delete(key); }
    return { svg, label };
  };
}

/** Return the largest scale, in pixels per event/s, at which no column is higher than the map. Boxes, gaps, and bands
 * count with their minimum sizes.
 * @param {Box[][]} boxes @param {Column[]} columns @param {PlacedLink[]} links @param {number} height
 * @param {number} fill */
function fittingScale(boxes, columns, links, height, fill) {
  const through = (/** @type {"from" | "to"} */ side, /** @type {string} */ id) => links.filter((link) => link[side] === id).reduce((total, link) => total + link.eased, 0);
  const scales = boxes.map((column, index) => {
    const ids = new Set(column.map((box) => box.id)), ends = links.filter((link) => ids.has(link.from) || ids.has(link.to)).length;
    const flow = column.reduce((total, box) => total + Math.max(through("from", box.id), through("to", box.id)), 1e-6);
    const least = column.reduce((total, box) => total + leastOf(box, columns[index]) + MIN_GAP, 0) + MIN_BAND * ends;
    return Math.max(0, Math.min(fill * height, height - least)) / flow;
  });
  return Math.min(...scales);
}

/** @param {Box[]} column @param {Column} options @param {number} height @param {Map<string, PlacedBox>} placed
 * @param {PlacedLink[]} links */
function placeColumn(column, options, height, placed, links) {
  const { x, width } = options, leasts = column.map((box) => leastOf(box, options)), needed = leasts.reduce((sum, size) => sum + size, 0);
  const held = (/** @type {"from" | "to"} */ side, /** @type {string} */ id) => links.filter((link) => link[side] === id).reduce((total, link) => total + link.width, 0);
  const grid = (/** @type {number} */ size) => Math.ceil(size / GRID) * GRID; // a change below one step moves nothing
  const most = (/** @type {number} */ place) => height - (column.length - 1) * MIN_GAP - needed + leasts[place]; // the others keep their minimum
  const sizes = column.map((box, place) => Math.min(most(place), Math.max(leasts[place], grid(Math.max(held("from", box.id), held("to", box.id)) + PADDING))));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const gap = column.length > 1 ? Math.min(28, Math.max(MIN_GAP, (height - total) / (column.length - 1))) : 0;
  let y = TOP + Math.max(0, (height - total - gap * (column.length - 1)) / 2);
  column.forEach((box, place) => {
    placed.set(box.id, { ...box, x, width, y, height: sizes[place] });
    y += sizes[place] + gap;
  });
}

/** Return the minimum height of a box: its lines must fit.
 * @param {Box} box @param {Column} column */
const leastOf = ({ lines = [], share }, { height }) => Math.max(height, LINE * (lines.length + 1) + 8 + (share === undefined ? 0 : 8));

/** @param {Map<string, number>} side @param {string} id @param {number} width */
function advance(side, id, width) {
  const at = side.get(id) ?? 0;
  side.set(id, at + width);
  return at;
}

/** @param {PlacedLink} link @param {Map<string, PlacedBox>} placed @param {Sides} sides */
function band(link, placed, sides) {
  const from = placed.get(link.from), to = placed.get(link.to);
  if (!from || !to) return;
  const middle = (/** @type {PlacedBox} */ box, total = 0) => box.y + Math.max(2, (box.height - total) / 2);
  const y0 = middle(from, sides.out.get(link.from)) + link.start, y1 = middle(to, sides.in.get(link.to)) + link.end;
  const x0 = from.x + from.width, x1 = to.x, bend = (x1 - x0) * 0.5;
  const at = (/** @type {number} */ value) => value.toFixed(1);
  link.path = `M${at(x0)} ${at(y0)}C${at(x0 + bend)} ${at(y0)} ${at(x1 - bend)} ${at(y1)} ${at(x1)} ${at(y1)}`
    + `L${at(x1)} ${at(y1 + link.width)}C${at(x1 - bend)} ${at(y1 + link.width)} ${at(x0 + bend)} ${at(y0 + link.width)} ${at(x0)} ${at(y0 + link.width)}Z`;
}

/** @type {Record<string, string>} */
const SIGNS = {
  BUSY: "M0 -5L5 4.5H-5Z", TOOBUSY: "M-4.5 -4.5H4.5V4.5H-4.5Z",
  ROUND: "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1 -4.5 0Z",
};

/** @param {number | null | undefined} value */
function rateOf(value) {
  return value == null ? UNKNOWN : formatted(value, "rate");
}

/** Shorten a name that would overlap its figure. The linked page shows the whole name.
 * @param {string} name @param {number} width @param {string} figure */
function clipped(name, width, figure) {
  const most = Math.floor((width - 24 - figure.length * 7) / 6.9);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}
