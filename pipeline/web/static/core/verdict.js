// The one sentence that says what is the matter. A screen reader reads it out, so no number in it may change by itself.
import { nameOf, say } from "./texts.js";

/** A tenth of all calls failing is not "all is well", though no breaker minds it yet. */
const FAULTS_WORTH_SAYING = 0.1;

/** Old data must not say that all is well. @param {import("./holds.js").Held[]} holds the worst first */
export function verdict(lane, holds, stale) {
  if (stale) return say("panel.verdict.stale");
  if (holds.length) return say(`panel.verdict.${holds[0].reason}`, { stages: namesOf(holds[0].stages) });
  const causes = causesOf(lane);
  if (lane.state === "degraded") return say("panel.verdict.degraded", { causes: causes.join(", ") || say("panel.cause.recent") });
  return causes.length ? say("panel.verdict.watched", { causes: causes.join(", ") }) : say("panel.verdict.running");
}

const namesOf = (stages) => stages.map((stage) => nameOf("stage", stage)).join(", ");

/** What is not as it should be though nothing holds it. A stage may be slow for another's sake, and that is no cause. */
function causesOf({ stages, drop_rate: drop, limits }) {
  const causes = Object.entries(stages).flatMap(([name, { mode, window }]) => {
    const stage = nameOf("stage", name);
    if (mode === "half_open") return [say("panel.cause.trial", { stage })];
    const faulty = window.total >= limits.min_samples && window.fault_rate >= FAULTS_WORTH_SAYING;
    return faulty ? [say("panel.cause.faults", { stage })] : [];
  });
  return drop.level === "ok" ? causes : [...causes, say("panel.cause.drop")];
}
