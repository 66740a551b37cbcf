// How one step of a ticket is said.
import { nameOf, say } from "../core/texts.js";

const TONES = { answered: "ok", delivered: "ok", queued: "plain", joined: "plain", offline: "plain",
  duplicates: "plain", asking: "plain", calling: "plain", processing: "info" };
export const toneOf = (what) => TONES[what] ?? "bad";

/** Deadlines are in seconds, so ages are too. */
export const age = (seconds) => say("duration.seconds", { seconds: Math.round(seconds) });

export const triesOf = ({ attempt }) => (attempt > 1 ? `${say("panel.tickets.try", { attempt })} ` : "");

/** A step is a verdict, an outcome, or one of our own words. */
export const nameOfStep = (what) => {
  const step = nameOf("step", what);
  return step === what ? nameOf("outcome", what) : step;
};
