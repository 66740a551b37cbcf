// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const NOT_KNOWN = "–";

/** @param {number | null | undefined} value */
export const count = (value) => (value == null ? NOT_KNOWN : whole.format(value));

/** Three figures are enough to act on. */
export function rate(value) {
  if (value == null) return NOT_KNOWN;
  return value < 99.95 ? value.toFixed(1) : whole.format(value);
}

export const percent = (share) => `${(share * 100).toFixed(1)} %`;

export const seconds = (value) => (value == null ? NOT_KNOWN : `${value.toFixed(value < 10 ? 2 : 1)} s`);

/** With so many digits after the point, and its thousands apart. */
export const exact = (value, digits) =>
  value == null ? NOT_KNOWN : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export const megabytes = (bytes) => `${exact(bytes / 1e6, 1)} MB`;

export const money = (value) => (value == null ? NOT_KNOWN : Number(value.toFixed(value < 100 ? 2 : 0)).toLocaleString("en"));

/** @param {number} at seconds since the epoch */
export function time(at) {
  const date = new Date(at * 1000);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export function day(at) {
  const date = new Date(at * 1000);
  return [date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

/** How far the reader's clock, by which the page tells all times, is from the world's. */
export function zone(at) {
  const east = -new Date(at * 1000).getTimezoneOffset();
  const [hours, minutes] = [Math.floor(Math.abs(east) / 60), Math.abs(east) % 60];
  return `UTC${east < 0 ? "−" : "+"}${hours}${minutes ? `:${minutes}` : ""}`;
}

const UNSEEN = /[\u202a-\u202e\u2066-\u2069]/g;
/** A stranger's word without the marks that turn the text around them: they are shown, not obeyed. */
export const visible = (text) => text.replace(UNSEEN, (mark) => `\\u${mark.charCodeAt(0).toString(16)}`);

/** The time, and the day before it where that is not today. */
export const moment = (at, now) => (day(at) === day(now) ? time(at) : `${day(at)} ${time(at)}`);
