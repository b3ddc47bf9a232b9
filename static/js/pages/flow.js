// The flow map: producers → queues → nodes → pipeline and workers → sinks.
import { bandMap } from "../charts/band_map.js";
import { model } from "./flow_model.js";
import { subscribe } from "../values/store.js";

const COLUMNS = [
  { title: "Producers", x: 0, width: 128, height: 32 }, { title: "Queues", x: 232, width: 168, height: 42 },
  { title: "Nodes", x: 512, width: 140, height: 42 }, { title: "Workers and pipeline", x: 752, width: 200, height: 42 },
  { title: "Sinks", x: 1036, width: 164, height: 32 },
];

const host = document.getElementById("flow");
if (host) {
  host.replaceChildren();
  const drawMap = bandMap(host, { columns: COLUMNS, width: 1200, leastHeight: 240, name: "Flow of events through the plant" });
  let /** @type {Figure} */ shown = "rate", /** @type {LiveSnapshot | null} */ newest = null;
  const draw = () => {
    if (!newest) return;
    const { boxes, links } = model(newest, shown);
    const lined = boxes.map((column) => column.map((box) => ({ ...box, lines: box.lines ?? (box.second ? [box.second] : []) })));
    const { svg, label } = drawMap({ boxes: lined, links });
    svg.dataset.snapshot = String(newest.seq); // sequence number of the drawn snapshot
    if (!boxes[0].length) label(svg, "no producers", 0, 60, "No active producers", { class: "second" });
  };
  subscribe((snapshot) => { newest = snapshot; if (!document.hidden) draw(); });
  document.getElementById("flow-figure").addEventListener("click", ({ target }) => {
    if (!target.value) return;
    shown = /** @type {Figure} */ (target.value);
    for (const button of target.parentElement?.children ?? []) button.setAttribute("aria-pressed", String(button === target));
    if (newest) draw();
  });
}
