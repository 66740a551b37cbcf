// One breaker per stage: its mode, how near it is to tripping, and how long it stays open.
import { count, percent } from "../core/format.js";
import { html } from "../core/html.js";
import { duration, nameOf, say } from "../core/texts.js";
import { Meter, modeTone, Section } from "./parts.js";

export function Breakers({ lane }) {
  return html`<${Section} name="breakers" title=${say("panel.breakers")}>
    <div class="trio">${Object.entries(lane.stages).map(([name, stage]) => html`<${Breaker} key=${name}
      ...${{ name, stage, limits: lane.limits }} />`)}</div>
  <//>`;
}

function faultTone(share, limits) {
  if (share >= limits.degrade_at) return "bad";
  return share >= limits.recover_below ? "warn" : "plain";
}

function Breaker({ name, stage, limits }) {
  const { fault_rate: share, faults, total } = stage.window;
  const { recover_below: low, degrade_at: high, trip_after: most } = limits;
  const row = say("panel.breakers.of", { count: count(stage.consecutive_faults), most });
  const label = nameOf("stage", name);
  return html`<div class="breaker" data-breaker=${name} data-mode=${stage.mode}>
    <h3>${label}<span class=${`mode ${modeTone(stage.mode)}`}>${nameOf("mode", stage.mode)}</span></h3>
    <p class="pair"><span>${say("panel.breakers.faults")}</span><b>${percent(share)}</b></p>
    <${Meter} label=${`${label}: ${say("panel.breakers.faults")}`} value=${share} most=${1} text=${percent(share)}
      tone=${faultTone(share, limits)} marks=${[low, high]} markText=${(mark) => `${Math.round(mark * 100)} %`} />
    <p class="pair"><span>${say("panel.breakers.row")}</span><b>${row}</b></p>
    <${Meter} label=${`${label}: ${say("panel.breakers.row")}`} value=${stage.consecutive_faults} most=${most} text=${row}
      tone=${stage.consecutive_faults >= most / 2 ? "bad" : "plain"} />
    <p class="sub">${stage.open_for > 0
      ? html`<b class="bad">${say("panel.breakers.opens", { left: duration(Math.ceil(stage.open_for)) })}</b>`
      : html`<span>${say("panel.breakers.window", { faults: count(faults), total: count(total), seconds: limits.breaker_window })}</span>`}</p>
    ${stage.last_fault && html`<${LastFault} ...${stage.last_fault} />`}
  </div>`;
}

/** The daemon's own words for what it met: an operator looks for them elsewhere too. */
function LastFault({ why, ago }) {
  const text = say("panel.breakers.last", { why, ago: duration(ago) });
  return html`<p class="sub last" title=${text}>${text}</p>`;
}
