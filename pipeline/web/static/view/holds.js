// Every hold in one line: reason, since when, by whom, what releases it, and where to read on.
import { endsAt, secondsLeft, toneOf } from "../core/holds.js";
import { moment } from "../core/format.js";
import { html } from "../core/html.js";
import { reasonGiven } from "../core/sentence.js";
import { duration, listed, nameOf, say, whoIs } from "../core/texts.js";

export function Holds({ holds, lane, now }) {
  if (!holds.length) return null;
  return html`<ul class="holds" aria-label=${say("panel.hold.list")}>
    ${holds.map((hold) => html`<${Chip} key=${`${hold.reason} ${hold.stages}`} ...${{ hold, lane, now }} />`)}
  </ul>`;
}

function Chip({ hold, lane, now }) {
  const left = secondsLeft(hold, lane, now);
  const end = endsAt(hold);
  const how = end == null ? say(`panel.releases.${hold.reason}`, { low: lane.queue.low_water })
    : say("panel.releases.timed", { time: moment(end, now) });
  const detail = [reasonGiven(hold.reason, hold.detail), ...faultsBehind(hold, lane)].filter(Boolean).join(" · ");
  const since = { time: moment(hold.since, now), lasted: duration(now - hold.since) };
  return html`<li class=${`hold ${toneOf(hold.reason)}`} data-hold=${hold.reason}>
    <b>${nameOf("reason", hold.reason)}</b>
    <span>${listed(hold.stages.map((stage) => nameOf("stage", stage)))}</span>
    <span>${say("panel.hold.since", since)}</span>
    <span>${say("panel.hold.by", { by: whoIs(hold.by) })}</span>
    <span>${say("panel.hold.releases", { how })}${left != null && ` · ${say("panel.hold.ends", { left: duration(left) })}`}</span>
    ${detail && html`<span class="detail" title=${detail}>${detail}</span>`}
    <a href=${`#hold-${hold.reason}`}>${say("panel.hold.runbook")}</a>
  </li>`;
}

/** A breaker says how many went wrong; the last of them says what. */
function faultsBehind({ reason, stages }, lane) {
  if (reason !== "breaker") return [];
  return stages.map((stage) => lane.stages[stage].last_fault?.why);
}
