// Holds and alerts of a lane, as marks in time.
import { holdsOf, toneOf } from "./holds.js";

/** @typedef {{from: number, to: number, tone: string, reason?: string, event?: any}} Mark  from = to for a moment */

const ALERT_TONES = { warning: "warn", error: "bad" };
/** What else happens around a hold is told by the hold's own band. */
const TOLD_BY_BANDS = ["hold", "breaker"];

/** Bands for holds, lines for alerts; the worst last, so that it is painted over the others. @returns {Mark[]} */
export function marksOf(events, name, lane, now) {
  const standing = holdsOf(lane).map(({ reason, since }) => ({ from: since, to: now, tone: toneOf(reason), reason }));
  const past = [];
  for (const event of events) {
    const { kind, level, at, detail } = event;
    if (event.lane && event.lane !== name) continue;
    if (kind === "release") past.push({ from: at - detail.lasted, to: at, tone: toneOf(detail.reason), reason: detail.reason });
    else if (level in ALERT_TONES && !TOLD_BY_BANDS.includes(kind)) past.push({ from: at, to: at, tone: ALERT_TONES[level], event });
  }
  const order = ["info", "warn", "bad"];
  return [...past, ...standing].sort((a, b) => order.indexOf(a.tone) - order.indexOf(b.tone));
}

/** Those at one moment; a line is hit from a little beside it. */
export const marksAt = (marks, at, near) => marks.filter((mark) => mark.from - near <= at && at <= mark.to + near);
