// The one sentence that says what is the matter. A screen reader reads it out, so no number in it may change by itself.
import { laneTone, TONES, toneOf } from "./holds.js";
import { listed, nameOf, say, translated } from "./texts.js";

/** A tenth of all calls failing, or of all tickets lost, is not "all is well", though nothing holds for it yet. */
const WORTH_SAYING = 0.1;
/** Of so few tickets no share is told. */
const TICKETS_MIN = 20;
/** Seconds that make a minute, though it is told in steps. */
const MINUTE_ABOUT = 55;

/** Old data must not say that all is well. @param {import("./holds.js").Held[]} holds the worst first */
export function verdict(lane, holds, stale, minute) {
  if (stale) return say("panel.verdict.stale");
  const { slow, lost } = causesOf(lane, minute);
  const also = (causes) => causes.length > 0 && say("panel.verdict.watched", { causes: listed(causes) });
  const all = (...sentences) => sentences.filter(Boolean).join(" ");
  if (holds.length) {
    const [{ reason }] = holds;
    const stages = holds.filter((hold) => hold.reason === reason).flatMap((hold) => hold.stages);
    const said = say(`panel.verdict.${reason}`, { stages: listed(stages.map((stage) => nameOf("stage", stage))) });
    return all(said, toneOf(reason) === "info" && also([...slow, ...lost]));
  }
  if (lane.state === "degraded") {
    return all(say("panel.verdict.degraded", { causes: listed(slow) || say("panel.cause.recent") }), also(lost));
  }
  return also([...slow, ...lost]) || say(isIdle(lane, minute) ? "panel.verdict.idle" : "panel.verdict.running");
}

/** As bad as its state, its worst hold, or what becomes of its tickets. */
export function toneOfLane(lane, minute) {
  const { slow, lost } = causesOf(lane, minute);
  const { gone, ended } = endsOf(minute);
  const watched = ended >= TICKETS_MIN && gone > ended / 2 ? "bad" : slow.length + lost.length > 0 && "warn";
  return TONES.find((tone) => tone === watched || tone === laneTone(lane));
}

/** What is not as it should be though nothing holds it: what makes the lane slow, and what tickets are lost by. */
function causesOf(lane, minute) {
  const slow = slowedBy(lane);
  const lost = [...lane.troubles.map(troubleOf), ...lossesOf(lane, minute)];
  const { seconds, queried, delivered } = minute;
  const barren = seconds >= MINUTE_ABOUT && queried >= TICKETS_MIN && !delivered && !slow.length && !lost.length;
  return { slow, lost: barren ? [say("panel.cause.barren")] : lost };
}

/** A stage may be slow for another's sake, and that is no cause. */
function slowedBy({ stages, drop_rate: drop, limits }) {
  const causes = Object.entries(stages).flatMap(([name, { mode, window }]) => {
    const stage = nameOf("stage", name);
    if (mode === "half_open") return [say("panel.cause.trial", { stage })];
    const faulty = window.total >= limits.min_samples && window.fault_rate >= WORTH_SAYING;
    return faulty ? [say("panel.cause.faults", { stage })] : [];
  });
  return drop.level === "ok" ? causes : [...causes, say("panel.cause.drop")];
}

const troubleOf = ({ kind, stage, detail }) => say(`panel.cause.${kind}`, { stage: nameOf("stage", stage), detail: translated(detail) });

const endsOf = ({ delivered, dropped, rejected, pull_expired: expired }) => {
  const gone = dropped + rejected + expired;
  return { gone, ended: delivered + gone };
};

function lossesOf({ troubles, drop_rate: drop }, minute) {
  const { pulled, malformed, rejected, pull_expired: expired, dropped } = minute;
  const { ended } = endsOf(minute);
  const skewed = troubles.some(({ kind }) => kind === "clock_skew"); // which says why they look expired
  const shares = [
    [!skewed && nameOf("outcome", "pull_expired"), expired, pulled],
    [nameOf("outcome", "malformed"), malformed, pulled],
    [nameOf("outcome", "rejected"), rejected, ended],
    [drop.level === "ok" && say("panel.count.dropped"), dropped - malformed, ended],
  ];
  return shares.filter(([what, part, of]) => what && of >= TICKETS_MIN && part / of >= WORTH_SAYING)
    .map(([what]) => say("panel.cause.lost", { what }));
}

/** Nothing came for a minute, no pull failed, and nothing is under way. */
function isIdle({ queue, stages }, { seconds, pulled }) {
  return seconds >= MINUTE_ABOUT && !pulled && !queue.in_flight && !stages.pull.window.faults && !stages.pull.consecutive_faults;
}
