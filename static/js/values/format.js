// Number formats: those of console/display/formats.py, by the same rules. Unknown values become a dash.
import { AGE_STEPS, NUMBER_RULES, STATE_WORDS } from "./rules.js";

export const UNKNOWN = "—";
/** Return the health word of the plant or of a node. Observers of earlier versions send no word.
 * @param {{ word?: string, state?: string | null } | null | undefined} row */
export const healthWord = (row) => row?.word || (STATE_WORDS[row?.state ?? ""] ?? "Unknown");

const fixed = [0, 1, 2].map((digits) => new Intl.NumberFormat("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits, roundingMode: "halfEven" }));
const significant = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4, roundingMode: "halfEven" });
const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minuteFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const dateFormat = new Intl.DateTimeFormat("en-GB", {
  weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

/** @param {number} value @param {NumberRule} rule */
function byRule(value, { digits, factor, limit }) {
  const number = value * factor;
  return fixed[limit === null || Math.abs(number) < limit ? digits : 0].format(number);
}

/** @type {Record<Exclude<FormatName, NumberFormat>, (value: number) => string>} */
const FORMATS = {
  number: (value) => (Math.abs(value) < 1000 ? significant : fixed[0]).format(value),
  age,
  countdown,
  clock: (value) => clockFormat.format(new Date(value * 1000)),
};

/** Check if an element's format is the name of a format. @param {string | undefined} name @returns {name is FormatName} */
export const isFormat = (name) => name !== undefined && (name in NUMBER_RULES || name in FORMATS);

/** Format a value. Text is returned unchanged. @param {unknown} value @param {FormatName} name */
export function formatted(value, name = "number") {
  if (value === null || value === undefined || value === "") return UNKNOWN;
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return UNKNOWN;
  return name in FORMATS ? FORMATS[/** @type {keyof typeof FORMATS} */ (name)](value) : byRule(value, NUMBER_RULES[/** @type {NumberFormat} */ (name)]);
}

/** Format a value with a unit. @param {number | null | undefined} value @param {FormatName} format */
export const unit = (value, format, word = "") => (value == null ? UNKNOWN : `${formatted(value, format)}${word ? ` ${word}` : ""}`);

/** Format seconds in the largest whole unit: 0.4 s, 14 s, 4 min, 2 h, 3 d.
 * @param {number} seconds */
export function age(seconds) {
  for (const [step, word] of AGE_STEPS) {
    if (seconds >= step) return unit(seconds / step, "integer", word);
  }
  return `${fixed[Math.abs(seconds) < 10 ? 1 : 0].format(seconds)} s`;
}

/** Format seconds as m:ss, or as h:mm:ss from one hour. Negative values become zero.
 * @param {number} value */
export function countdown(value) {
  const seconds = Math.max(0, Math.round(value));
  const two_digits = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  if (!hours) return `${minutes}:${two_digits(seconds % 60)}`;
  return `${hours}:${two_digits(minutes)}:${two_digits(seconds % 60)}`;
}

const TIMESTAMP_FORMATS = { clock: clockFormat, minute: minuteFormat, day: dayFormat, date: dateFormat };

/** Format an instant in the user's time zone. name: clock, minute, day, or date.
 * @param {Date} date @param {keyof typeof TIMESTAMP_FORMATS} name */
export function timestamp(date, name = "clock") {
  return TIMESTAMP_FORMATS[name].format(date);
}

/** Format an instant of today as a time, any other with its day, because a page may stay open for days.
 * @param {Date} date @param {keyof typeof TIMESTAMP_FORMATS} name */
export function clockOrDay(date, name = "clock") {
  const clock = timestamp(date, name);
  return date.toDateString() === new Date().toDateString() ? clock : `${timestamp(date, "day")}, ${clock}`;
}

/** Format an instant as UTC, for tooltips.
 * @param {Date} date */
export function utc(date) {
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Convert snake_case to words.
 * @param {unknown} name */
export const words = (name) => String(name).replaceAll("_", " ");
