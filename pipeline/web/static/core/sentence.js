// Events in the reader's words.
import { percent } from "./format.js";
import { duration, listed, nameOf, say, translated, whoIs } from "./texts.js";

/** Events that tell of a change, and the group of words that names its ends. */
const CHANGES = { breaker: "mode", drop_rate: "level" };

/** Events that are told in one of several ways. */
const TELLERS = {
  clock_skew: ({ offset, likely }) => say(offset ? "event.clock_skew" : "event.clock_skew_over",
    { offset: duration(Math.abs(offset)), likely: translated(likely) }),
  config: ({ error, changed, needs_restart: waiting }) => {
    if (error) return say("event.config_refused", { error });
    return [!waiting.length || changed.length ? say("event.config", { changed: listed(changed) || "–" }) : "",
      waiting.length ? say("event.config_restart", { waiting: listed(waiting) }) : ""].filter(Boolean).join(" · ");
  },
  started: (detail) => say(detail.unclean ? "event.started_unclean" : "event.started", detail),
};

/** The event in one sentence. */
export function sentence({ kind, detail }) {
  if (kind in TELLERS) return TELLERS[kind](detail);
  const group = CHANGES[kind];
  return say(`event.${kind}`, {
    ...detail,
    ...(group && { before: nameOf(group, detail.before), after: nameOf(group, detail.after) }),
    reason: nameOf("reason", detail.reason),
    what: nameOf("journal", detail.what),
    lasted: duration(detail.lasted ?? 0),
    rate: percent(detail.rate ?? 0),
  });
}

/** What an operator typed is his own; the rest is the daemon's and can be translated. */
export const reasonGiven = (reason, text) => (reason === "manual" ? text : translated(text));

/** Why, and by whom. A journal's sentence has its own why. */
export function remark({ kind, detail }) {
  const whys = kind === "journal" ? [] : [detail.detail, detail.why].filter(Boolean);
  return [...whys.map((text) => reasonGiven(detail.reason, text)), detail.by && whoIs(detail.by)].filter(Boolean).join(" · ");
}
