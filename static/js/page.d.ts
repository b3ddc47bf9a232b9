// Types of Weir's pages that the browser's types lack: events, elements, answers of the API, charts, and maps.
// Only the checker reads it (jsconfig.json).

/** A listener hears what happens to any element inside: a click, a key, a field's input, a form's submit. */
interface PageEvents {
  click: PointerEvent & { readonly target: HTMLButtonElement }; // or what else is clicked: ask `closest` first
  focusin: FocusEvent & { readonly target: HTMLElement };
  pointerdown: PointerEvent & { readonly target: HTMLElement };
  mousedown: MouseEvent & { readonly target: HTMLElement };
  keydown: KeyboardEvent & { readonly target: HTMLElement };
  input: InputEvent & { readonly target: HTMLInputElement };
  change: Event & { readonly target: HTMLInputElement };
  submit: SubmitEvent & { readonly target: HTMLFormElement; readonly submitter: HTMLButtonElement | null };
  reset: Event & { readonly target: HTMLFormElement };
  "weir:line": CustomEvent<number | null>; // an editor marks this line
  "weir:names": CustomEvent<{ symbols: string[]; columns: string[]; functions: string[]; patterns: string[] }>;
  "weir:part": CustomEvent<HTMLElement>; // a part of the page was replaced by this one
}

interface Document {
  addEventListener<K extends keyof PageEvents>(type: K, listener: (event: PageEvents[K]) => void, capture?: boolean): void;
}

interface HTMLElement {
  addEventListener<K extends keyof PageEvents>(type: K, listener: (event: PageEvents[K]) => void): void;
}

/** What a selector finds, by the tag of its last part: `form.steer` finds forms, `.steer` any HTML element. */
type Found<S extends string> = S extends `${infer One}, ${infer Other}` ? Found<One> | Found<Other>
  : S extends `${string} ${infer Last}` ? Found<Last>
    : Tag<S> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag<S>]
      : [Marked<S>] extends [never] ? HTMLElement : Marked<S>;
type Tag<S extends string> = S extends `${infer Before}${"[" | "." | ":" | "#"}${string}` ? Tag<Before> : S;

interface ParentNode {
  querySelector<S extends string>(selectors: S): Found<S> | null;
  querySelectorAll<S extends string>(selectors: S): NodeListOf<Found<S>>;
}

interface Element {
  closest<S extends string>(selectors: S): Found<S> | null;
}

/** A form's fields by their names: `form.elements.reason.value`. */
interface HTMLFormControlsCollection {
  [name: string]: any;
  [Symbol.iterator](): ArrayIterator<HTMLInputElement>;
}

/** The notifier's window is a worker's. */
interface WindowEventMap {
  notificationclick: Event & { readonly notification: Notification; waitUntil(done: Promise<unknown>): void };
}

interface Window {
  readonly clients: { openWindow(url: string): Promise<unknown> };
  Plotly?: {
    react(plot: Element, data: object[], layout: object, options: object): Promise<Element>;
    purge(plot: Element): void;
  };
}

/** Elements that the templates always contain where scripts select them. */
interface Parts {
  ".is": HTMLElement;
  ".plot": PlotElement;
  ".was": HTMLInputElement;
  ".would": HTMLInputElement;
  ".primary": HTMLButtonElement;
  "[data-cancel]": HTMLButtonElement;
  "[data-covers]": HTMLElement;
  "[data-custom-expiry]": HTMLElement;
  "[data-difference]": HTMLElement;
  "[data-do]": HTMLElement;
  "[data-effect]": HTMLButtonElement;
  "[data-flag]": HTMLElement;
  "[data-manual]": HTMLElement;
  "[data-notify]": HTMLElement;
  "[data-present]": HTMLElement;
  "[data-sum]": HTMLElement;
  "[data-what]": HTMLElement;
  "[data-words]": HTMLElement;
  "summary": HTMLElement;
  "b": HTMLElement;
  "form": HTMLFormElement;
  "input": HTMLInputElement;
  "textarea": HTMLTextAreaElement;
  ".gutter": HTMLElement;
  ".would-be": HTMLElement;
}

interface ParentNode {
  querySelector<S extends keyof Parts>(selectors: S): Parts[S];
}

/** Elements by their ids, on every page whose scripts use them. */
interface PageElements {
  announcer: HTMLElement;
  content: HTMLElement;
  "flow-figure": HTMLElement;
  keys: HTMLDialogElement;
  notifier: HTMLLinkElement;
  palette: HTMLDialogElement;
  search: HTMLInputElement;
  "search-results": HTMLElement;
  snapshot: HTMLElement;
  steer: HTMLFormElement;
  strips: HTMLElement;
  toasts: HTMLElement;
  why: HTMLElement;
}

interface Document {
  getElementById<Id extends keyof PageElements>(id: Id): PageElements[Id];
  getElementById(id: string | undefined): HTMLElement | null;
}

/** Plotly adds its events to the element that it draws into. */
interface PlotElement extends HTMLElement {
  on(event: "plotly_relayout", listener: (change: Record<string, any>) => void): void;
  on(event: "plotly_doubleclick", listener: () => void): void;
}

/** Elements that a selector without a tag finds. */
interface Marks extends Pick<Parts, ".would" | ".was" | "[data-effect]"> {
  "[data-all]": HTMLInputElement;
  "[data-choice]": HTMLInputElement;
  "[data-counts]": HTMLButtonElement;
  "[data-drag": HTMLInputElement;
  "[data-expiry]": HTMLSelectElement;
  "[data-is]": HTMLInputElement;
}
type Marked<S extends string> = { [M in keyof Marks]: S extends `${M}${string}` ? Marks[M] : never }[keyof Marks];

type Field = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;
type LiveSnapshot = Snapshot & { at: number };
type States = Record<string, SubjectState>;
type Numbers = Array<number | null>;
type Points = Array<[at: number, value: number | null]>;
type Emptied = Set<string | null> | null; // the actions whose forms are cleared

interface Connection {
  state: string;
  since: number;
  word?: string;
}

/** A message of the socket: a snapshot, its difference from the previous one, or how long the observer is silent. */
interface LiveMessage {
  silent_seconds?: number;
  snapshot?: LiveSnapshot;
  delta?: object;
  seq: number;
  at: number;
}

// Answers of the API (console/api).
interface MetricHistory {
  time: number[];
  series: Record<string, Numbers>;
}

interface Decision {
  at: number;
  verdict: string;
  count: number;
  url: string;
  title: string;
}

interface Decisions {
  decisions: Decision[];
  guard: Decision[];
}

interface PaletteResult {
  kind: string;
  label: string;
  about: string;
  url: string;
  group: string;
  icon: string;
  narrow: string;
}

interface Success {
  ok: true;
  message: string;
  go?: string;
  overrides?: number[];
  undo?: { url: string, fields: Record<string, string> };
  unknown?: undefined;
}

interface Refusal {
  ok: false;
  errors: Record<string, string[]>;
  unknown?: boolean;
}
type Answer = Success | Refusal;

interface PreviewRow {
  title: string;
  url?: string;
  at?: number;
  note?: string;
}

interface TrialMatch {
  number: number;
  events: string[];
  measures: { name: string; value: string }[];
  conditions: string[];
  suppressed: boolean;
}

interface TriedEvent {
  id: string;
  time: number;
  type: string | null;
  key: string | null;
  match: number | null;
  symbol: string | null;
  reasons: string[];
}

interface DifferenceLine {
  sign: string;
  text: string;
}

interface Preview {
  sentence: string;
  names?: { symbols: string[]; columns: string[]; functions: string[]; patterns: string[] };
  rows: PreviewRow[];
  difference?: DifferenceLine[];
  line?: number | null;
}

type Laws = Record<string, Record<string, { seconds: number[]; values: Numbers; low: Numbers; high: Numbers }>>;
interface PaperFigure {
  values: { run: string; law: string; case: string; metric: string; low: number | null; high: number | null; ours: number | null; band: [number, number] | null }[];
}
type LawLine = { law: string; seconds: number[]; values: Numbers; low: Numbers; high: Numbers };

interface TimelineData {
  since: number;
  until: number;
  reach: number;
  times: number[];
  columns: Record<string, Numbers>;
}

// Forms.
interface FormDraft {
  action: string | null;
  nth: number;
  fields: Array<[name: string, index: number, value: string | boolean]>;
}

interface PointsRow {
  field: HTMLInputElement;
  node: string;
  closed: string | undefined;
  is: number;
  would: number;
}

// Charts.
interface Colours {
  text: string;
  muted: string;
  line: string;
  surface: string;
  raised: string;
  toobusy: string;
  busy: string;
  accent: string;
  expected: string;
  band: string;
  series: string[];
}

interface PlotLayout {
  annotations: object[];
  shapes: object[];
  margin: { l: number; r: number; t: number; b: number; pad: number };
  xaxis: Record<string, any>;
  [name: string]: any;
}

interface Series {
  path: string;
  label: string;
  kind: string;
  constant: number | null;
  breach: string; // above or below: values on this side of the limit are tinted
}

interface Lane {
  title: string;
  unit: string;
  factor: number;
  series: Series[];
  stacked: boolean;
  highest: number;
  fits: boolean; // the axis may start above zero
  whole: boolean; // whole numbers
}

interface AxisRange {
  low: number;
  high: number;
  step: number;
}

interface DrawnLane {
  lane: Lane;
  series: Series[];
  others: Series[];
  colour: Map<Series, string>;
  range: AxisRange;
  above: { row: Series; value: number }[];
  ends: LabelEnd[];
  limits: LabelEnd[]; // those that a small chart names on their lines
  top: number; // px
  height: number;
}

interface LabelEnd {
  label: string;
  value: string;
  at: number;
  colour: string;
  strong: boolean;
}

interface ChartArea {
  from: number; // ms
  to: number;
  left: number; // px
  width: number;
  top: number;
  height: number;
  decisions: number; // height of the triangles
}

interface Reading {
  label: string;
  text: string;
  colour: string;
  dashed: boolean;
  y: number | null; // px
}

interface ReadableChart {
  figure: HTMLElement;
  plot: HTMLElement;
  over: HTMLElement;
  area: ChartArea | null;
  readings(at: number): Reading[];
  noteAt(at: number): { words: string; url: string } | null;
}

interface Mark {
  at: string;
  title: string;
  kind: string;
}

interface OverrideBar {
  from: string;
  to: string | Date;
  label: string;
  severity: string; // of an alert; empty for an override
}

// Maps of boxes and bands.
interface Column {
  title: string;
  x: number;
  width: number;
  height: number;
}

interface MapOptions {
  columns: Column[];
  width: number;
  leastHeight: number;
  fill?: number;
  name: string;
}

interface Box {
  id: string;
  name: string;
  subject?: string;
  rate?: number | null;
  figure?: string;
  lines?: string[][]; // the texts at the left and at the right
  second?: string[];
  lines?: [string, string][];
  state?: string;
  stale?: boolean;
  url?: string;
  share?: number;
  mark?: number;
  chosen?: boolean;
}

interface PlacedBox extends Box, Omit<Column, "title"> {
  y: number;
}

interface Link {
  from: string;
  to: string;
  rate: number | null;
  state?: string | null;
  old?: boolean;
}

interface PlacedLink extends Link {
  eased: number;
  width: number;
  start: number;
  end: number;
  path: string;
}

interface BandMap {
  boxes: Box[][];
  links: Link[];
}

interface Sides {
  out: Map<string, number>;
  in: Map<string, number>;
}

type Figure = "rate" | "waiting" | "latency";
interface Folded<Row> {
  single: Array<[string, Row]>;
  rest: Array<[string, Row]>;
}

interface Folds {
  producers: Folded<ProducerStatus>;
  queues: Folded<QueueStatus>;
  nodes: Folded<NodeStatus>;
}

interface Places {
  producer(name: string): string;
  queue(name: string): string;
  node(name: string): string;
}

// Formats of numbers (console/display).
type NumberFormat = "integer" | "rate" | "seconds" | "milliseconds" | "percent" | "percent1" | "share" | "mebibytes" | "fraction";
type FormatName = NumberFormat | "number" | "age" | "countdown" | "clock";
interface NumberRule {
  digits: number;
  factor: number;
  limit: number | null;
}

type Act = () => unknown;
type SnapshotListener = (snapshot: LiveSnapshot) => void;
