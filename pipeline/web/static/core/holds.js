// Holds as an operator thinks of them: one per reason, whatever stages it stands on, the worst first.

/** Lane states, worst first. */
export const SEVERITY = ["hard_stopped", "stopped", "draining", "paused", "degraded", "running"];

const ORDER = ["draining", "stopped", "drop_rate", "auth", "credit", "journal", "manual", "success_limit", "breaker",
  "callback_backlog", "backpressure"];
export const RESUMABLE = ["manual", "credit", "auth", "drop_rate", "success_limit"];
const TONES = { drop_rate: "bad", auth: "bad", credit: "bad", journal: "bad", stopped: "bad", breaker: "warn",
  callback_backlog: "warn", backpressure: "info", manual: "warn", success_limit: "warn", draining: "info" };

/** @typedef {{reason: string, since: number, by: string, detail: string, releases: string, stages: string[]}} Held */

const place = (reason) => (ORDER.includes(reason) ? ORDER.indexOf(reason) : ORDER.length);

/** @returns {Held[]} */
export function holdsOf(lane) {
  /** @type {Map<string, Held>} */
  const found = new Map();
  for (const [stage, holds] of Object.entries(lane.holds)) {
    for (const hold of holds) {
      const known = found.get(hold.reason);
      if (known) known.stages.push(stage);
      else found.set(hold.reason, { ...hold, stages: [stage] });
    }
  }
  return [...found.values()].sort((a, b) => place(a.reason) - place(b.reason));
}

export const toneOf = (reason) => TONES[reason] ?? "warn";

const STATE_TONES = { running: "ok", degraded: "warn", paused: "warn", draining: "info", stopped: "bad", hard_stopped: "bad" };

/** A lane is as bad as its worst hold: one that waits for credit is paused like any other, but wants somebody. */
export function laneTone(lane) {
  const wanted = holdsOf(lane).some((hold) => toneOf(hold.reason) === "bad");
  return wanted ? "bad" : (STATE_TONES[lane.state] ?? "plain");
}

/** Seconds until the hold ends by its time, begun ones as whole; null where it has none. */
export function secondsLeft(hold, lane, now) {
  if (hold.reason === "breaker") return Math.max(...hold.stages.map((stage) => Math.ceil(lane.stages[stage].open_for)));
  const timed = /after ([\d.]+) s$/.exec(hold.releases);
  return timed ? Math.max(0, Math.ceil(hold.since + Number(timed[1]) - now)) : null;
}
