// Holds and alerts of a lane, as marks in time.
import { toneOf } from "./holds.js";

/** @typedef {{from: number, to: number, tone: string}} Mark  from = to for a moment */

/** Bands for holds, lines for alerts. @returns {Mark[]} */
export function marksOf(events, lane, now) {
  const open = new Map();
  const marks = [];
  for (const event of [...events].reverse()) {
    if (event.lane !== lane) continue;
    const { kind, at, detail } = event;
    const key = `${detail.reason} ${event.stage}`;
    if (kind === "hold") open.set(key, at);
    else if (kind === "release") {
      if (open.has(key)) marks.push({ from: open.get(key), to: at, tone: toneOf(detail.reason) });
      open.delete(key);
    } else if (kind === "alert" || event.level === "error") marks.push({ from: at, to: at, tone: "bad" });
  }
  for (const [key, from] of open) marks.push({ from, to: now, tone: toneOf(key.split(" ")[0]) });
  return marks;
}
