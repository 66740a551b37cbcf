// How much came too late, against its three marks, and why.
import { count, percent } from "../core/format.js";
import { html } from "../core/html.js";
import { nameOf, say } from "../core/texts.js";
import { Meter, Section } from "./parts.js";

const TONES = { ok: "ok", degrade: "warn", trip: "warn", stop: "bad" };
/** The scale ends a little above the hard stop. */
const HEADROOM = 1.25;

export function DropRate({ lane }) {
  const { rate, delivered, dropped, level, judged } = lane.drop_rate;
  const limits = lane.limits;
  const marks = [limits.drop_degrade, limits.drop_trip, limits.drop_stop];
  const reasons = Object.entries(lane.dropped ?? {}).filter(([, many]) => many > 0).sort((a, b) => b[1] - a[1]);
  return html`<${Section} name="drop" title=${say("panel.drop")}
      aside=${judged && html`<span class=${`mode ${TONES[level]}`}>${nameOf("level", level)}</span>`}>
    <p class="speed">${percent(rate)}</p>
    <${Meter} label=${say("panel.drop")} value=${rate} most=${limits.drop_stop * HEADROOM} text=${percent(rate)} tone=${TONES[level]}
      marks=${marks} markText=${(mark) => `${Math.round(mark * 100)} %`} />
    <p class="sub">${judged
      ? say("panel.drop.numbers", { delivered: count(delivered), dropped: count(dropped) })
      : html`<b>${say("panel.drop.not_judged", { least: limits.drop_min_total, total: count(delivered + dropped) })}</b>`}</p>
    ${reasons.length
      ? html`<p class="sub">${say("panel.drop.since_start")}</p>
        <ul class="rows">${reasons.map(([name, many]) => html`<li key=${name}><span>${nameOf("outcome", name)}</span><b>${count(many)}</b></li>`)}</ul>`
      : html`<p class="sub">${say("panel.drop.none")}</p>`}
  <//>`;
}
