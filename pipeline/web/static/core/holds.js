// Holds as an operator thinks of them: what was put on several stages at once is one. The worst first.

/** Lane states, worst first. */
export const SEVERITY = ["hard_stopped", "stopped", "draining", "paused", "degraded", "running"];

const ORDER = ["draining", "stopped", "drop_rate", "auth", "credit", "journal", "manual", "success_limit", "breaker",
  "callback_backlog", "backpressure"];
const RESUMABLE = ["manual", "credit", "auth", "drop_rate", "success_limit"];
/** Worst first. */
export const TONES = ["bad", "warn", "info", "ok", "plain"];
const REASON_TONES = { drop_rate: "bad", auth: "bad", credit: "bad", journal: "bad", stopped: "bad", breaker: "bad",
  callback_backlog: "warn", backpressure: "info", manual: "warn", success_limit: "warn", draining: "info" };

/** @typedef {{reason: string, since: number, by: string, detail: string, releases: string, stages: string[]}} Held */

const place = (reason) => (ORDER.includes(reason) ? ORDER.indexOf(reason) : ORDER.length);

/** Two breakers that opened one after the other are two holds, each with its own why. */
const isSame = (one, other) => ["reason", "by", "detail"].every((name) => one[name] === other[name])
  && Math.abs(one.since - other.since) < 1;

/** @returns {Held[]} */
export function holdsOf(lane) {
  /** @type {Held[]} */
  const found = [];
  for (const [stage, holds] of Object.entries(lane.holds)) {
    for (const hold of holds) {
      const known = found.find((each) => isSame(each, hold));
      if (known) known.stages.push(stage);
      else found.push({ ...hold, stages: [stage] });
    }
  }
  return found.sort((a, b) => place(a.reason) - place(b.reason) || a.since - b.since);
}

export const resumable = (lane) => holdsOf(lane).filter((hold) => RESUMABLE.includes(hold.reason));

export const toneOf = (reason) => REASON_TONES[reason] ?? "warn";

const STATE_TONES = { running: "ok", degraded: "warn", paused: "warn", draining: "info", stopped: "bad", hard_stopped: "bad" };

export const worstTone = (holds) => TONES.find((tone) => holds.some((hold) => toneOf(hold.reason) === tone));

/** A lane is as bad as its worst hold: one that waits for credit is paused like any other, but wants somebody. */
export function laneTone(lane) {
  const wanted = worstTone(holdsOf(lane)) === "bad";
  return wanted ? "bad" : (STATE_TONES[lane.state] ?? "plain");
}

/** When a pause ends by its time; null where it has none. */
export function endsAt(hold) {
  const timed = hold.reason === "manual" && /after ([\d.]+) s$/.exec(hold.releases);
  return timed ? hold.since + Number(timed[1]) : null;
}

/** Seconds until the hold ends by its time, begun ones as whole; null where it has none. */
export function secondsLeft(hold, lane, now) {
  if (hold.reason === "breaker") return Math.max(...hold.stages.map((stage) => Math.ceil(lane.stages[stage].open_for)));
  const end = endsAt(hold);
  return end == null ? null : Math.max(0, Math.ceil(end - now));
}
