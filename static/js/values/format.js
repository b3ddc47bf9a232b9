// Numbers as text: the twin of console/display/formats.py, same names, same precision. Unknown is a dash.

export const UNKNOWN = "—";
export const STATE_WORDS = { IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline" };
/** What is read before the plant's sentence, or at a node. An observer of an earlier version gives no word. */
export const healthWord = (row) => row?.word || (STATE_WORDS[row?.state] ?? "Unknown");
export const SEVERITY_STATES = { critical: "TOOBUSY", warning: "BUSY", notice: "IDLE" };
export const VERDICT_WORDS = {
  checking: "Checking", effective: "Effective", ineffective: "No effect", harmful: "Harmful", "no action": "No action",
};

const grouped = (digits) => {
  const format = new Intl.NumberFormat("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits, roundingMode: "halfEven" });
  return (value) => format.format(value);
};
const whole = grouped(0), one = grouped(1), two = grouped(2);
const significant = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4, roundingMode: "halfEven" });
const fallsBelow = (limit) => (value) => (Math.abs(value) < limit ? one(value) : whole(value));
const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minuteFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const dateFormat = new Intl.DateTimeFormat("en-GB", {
  weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

export const FORMATS = {
  integer: whole,
  rate: fallsBelow(100),
  seconds: fallsBelow(100),
  milliseconds: (value) => one(value * 1000),
  percent: (value) => fallsBelow(10)(value * 100),
  percent1: (value) => one(value * 100),
  share: (value) => two(value * 100),
  mebibytes: (value) => one(value / 2 ** 20),
  fraction: two,
  number: (value) => (Math.abs(value) < 1000 ? significant.format(value) : whole(value)),
  age,
  countdown,
  clock: (value) => clockFormat.format(new Date(value * 1000)),
};

/** A value as text in one of FORMATS; text stays text. */
export function formatted(value, name = "number") {
  if (value === null || value === undefined || value === "") return UNKNOWN;
  if (typeof value !== "number") return String(value);
  return Number.isFinite(value) ? FORMATS[name](value) : UNKNOWN;
}

/** @type {[number, string][]} */
const AGE_STEPS = [[86400, "d"], [3600, "h"], [60, "min"]];

/** Seconds as the largest whole unit: 0.4 s, 14 s, 4 min, 2 h, 3 d. */
export function age(seconds) {
  for (const [step, unit] of AGE_STEPS) {
    if (seconds >= step) return `${whole(seconds / step)} ${unit}`;
  }
  return seconds < 10 ? `${one(seconds)} s` : `${whole(seconds)} s`;
}

/** Seconds as m:ss, or h:mm:ss from one hour on; never below zero. */
export function countdown(value) {
  const seconds = Math.max(0, Math.round(value));
  const two_digits = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  if (!hours) return `${minutes}:${two_digits(seconds % 60)}`;
  return `${hours}:${two_digits(minutes)}:${two_digits(seconds % 60)}`;
}

const TIMESTAMP_FORMATS = { clock: clockFormat, minute: minuteFormat, day: dayFormat, date: dateFormat };

/** An instant in the reader's own zone: name is clock, minute, day or date. */
export function timestamp(date, name = "clock") {
  return TIMESTAMP_FORMATS[name].format(date);
}

/** Of today the clock alone; of another day with the day, as a page may stand open for days. */
export function clockOrDay(date, name = "clock") {
  const clock = timestamp(date, name);
  return date.toDateString() === new Date().toDateString() ? clock : `${timestamp(date, "day")}, ${clock}`;
}

/** UTC, for the hover. */
export function utc(date) {
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** snake_case as words. */
export const words = (name) => String(name).replaceAll("_", " ");
