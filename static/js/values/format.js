// Number formats, with the names and precision of console/display/formats.py. Unknown values become a dash.

export const UNKNOWN = "—";
export const STATE_WORDS = { IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline" };
/** Return the health word of the plant or of a node. Observers of earlier versions send no word. */
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

/** Format a value by one of FORMATS. Text is returned unchanged. */
export function formatted(value, name = "number") {
  if (value === null || value === undefined || value === "") return UNKNOWN;
  if (typeof value !== "number") return String(value);
  return Number.isFinite(value) ? FORMATS[name](value) : UNKNOWN;
}

/** @type {[number, string][]} */
const AGE_STEPS = [[86400, "d"], [3600, "h"], [60, "min"]];

/** Format seconds in the largest whole unit: 0.4 s, 14 s, 4 min, 2 h, 3 d. */
export function age(seconds) {
  for (const [step, unit] of AGE_STEPS) {
    if (seconds >= step) return `${whole(seconds / step)} ${unit}`;
  }
  return seconds < 10 ? `${one(seconds)} s` : `${whole(seconds)} s`;
}

/** Format seconds as m:ss, or as h:mm:ss from one hour. Negative values become zero. */
export function countdown(value) {
  const seconds = Math.max(0, Math.round(value));
  const two_digits = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  if (!hours) return `${minutes}:${two_digits(seconds % 60)}`;
  return `${hours}:${two_digits(minutes)}:${two_digits(seconds % 60)}`;
}

const TIMESTAMP_FORMATS = { clock: clockFormat, minute: minuteFormat, day: dayFormat, date: dateFormat };

/** Format an instant in the user's time zone. name: clock, minute, day, or date. */
export function timestamp(date, name = "clock") {
  return TIMESTAMP_FORMATS[name].format(date);
}

/** Format an instant of today as a time, any other with its day, because a page may stay open for days. */
export function clockOrDay(date, name = "clock") {
  const clock = timestamp(date, name);
  return date.toDateString() === new Date().toDateString() ? clock : `${timestamp(date, "day")}, ${clock}`;
}

/** Format an instant as UTC, for tooltips. */
export function utc(date) {
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Convert snake_case to words. */
export const words = (name) => String(name).replaceAll("_", " ");
