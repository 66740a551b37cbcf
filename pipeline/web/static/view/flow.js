// Pull → queue → query → callback → retry, as one picture.
import { count, megabytes, NOT_KNOWN, percent, rate, seconds } from "../core/format.js";
import { worstTone } from "../core/holds.js";
import { html } from "../core/html.js";
import { duration, listed, nameOf, say } from "../core/texts.js";
import { Meter, modeTone, Section } from "./parts.js";

export function Flow({ lane, now }) {
  return html`<${Section} name="flow" title=${say("panel.flow")} aside=${html`<${Books} lane=${lane} />`}>
    <ol class="line">
      <${Stage} name="pull" lane=${lane} speed=${now.pulled} />
      <${Queue} lane=${lane} flows=${now.pulled > 0} />
      <${Stage} name="query" lane=${lane} speed=${now.queried} />
      <${Stage} name="callback" lane=${lane} speed=${now.delivered}><${Backlog} lane=${lane} /><//>
      <${Retry} lane=${lane} />
    </ol>
  <//>`;
}

function Stage({ name, lane, speed, children }) {
  const stage = lane.stages[name];
  const holds = lane.holds[name];
  const tone = worstTone(holds);
  // Whether calls are tried at all is told by an open breaker better than by its hold.
  const word = tone && stage.open_for === 0 && stage.mode !== "half_open" ? [tone, say("panel.flow.is_held")]
    : [modeTone(stage.mode), nameOf("mode", stage.mode)];
  const slots = say("panel.flow.slots", { busy: count(stage.busy), slots: count(stage.slots) });
  return html`<li class=${`step ${holds.length ? "held" : ""} ${speed > 0 ? "flows" : ""}`} data-stage=${name}
      style=${{ "--tone": tone ? `var(--${tone})` : "" }}>
    <h3>${nameOf("stage", name)}<span class=${`mode ${word[0]}`}>${word[1]}</span></h3>
    <p class="speed">${rate(speed)}<small>${say("panel.flow.per_second")}</small></p>
    <${Meter} label=${`${nameOf("stage", name)}: ${slots}`} value=${stage.busy} most=${Math.max(1, stage.slots)} text=${slots} />
    <p class="sub"><span>${slots}</span><span>p95 ${seconds(stage.latency.p95)}</span></p>
    ${children}
    ${holds.length > 0 && html`<p class="why">${say("panel.flow.held", { reasons: listed(holds.map((hold) => nameOf("reason", hold.reason))) })}</p>`}
  </li>`;
}

function Queue({ lane, flows }) {
  const { pending, delayed, mark, low_water: low, high_water: high, oldest_age: age } = lane.queue;
  const depth = pending + delayed;
  const most = Math.max(high * 1.25, depth);
  const height = (value) => `${(value / most) * 100}%`;
  const tone = depth >= mark ? "warn" : "plain";
  const label = say("panel.flow.tank", { depth, low, high, mark });
  return html`<li class=${`step queue ${flows ? "flows" : ""}`} data-stage="queue">
    <div><h3>${say("panel.flow.queue")}</h3>
      <p class="speed">${count(depth)}</p>
      <p class="sub stack"><span>${say("panel.flow.ready", { pending: count(pending) })}</span>
        <span>${say("panel.flow.delayed", { delayed: count(delayed) })}</span>
        <span>${say("panel.flow.mark", { mark: count(mark) })}</span>
        <span>${say("panel.flow.oldest", { age: age == null ? NOT_KNOWN : duration(age) })}</span></p></div>
    <div class="tank" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${most} aria-valuenow=${depth}>
      <div class=${`water ${tone}`} style=${{ height: height(depth) }}></div>
      ${[low, high].map((each) => html`<i key=${each} style=${{ bottom: height(each) }}><span>${each}</span></i>`)}
      ${mark < high && html`<i class="room" style=${{ bottom: height(mark) }}></i>`}
    </div>
  </li>`;
}

function Backlog({ lane }) {
  const { pending, bytes, fill } = lane.callbacks;
  const text = say("panel.flow.backlog", { pending: count(pending), size: megabytes(bytes), fill: percent(fill) });
  return html`<${Meter} label=${text} value=${fill} most=${1} text=${text} tone=${fill > 0.5 ? "warn" : "plain"} />
    <p class="sub"><span>${text}</span></p>`;
}

function Retry({ lane }) {
  const { retrying } = lane.callbacks;
  const { retry_exhausted: exhausted, retry_expired: expired } = lane.counters;
  const { delayed } = lane.queue;
  return html`<li class=${`step retry ${retrying + delayed ? "flows" : ""}`} data-stage="retry">
    <h3>${say("panel.flow.retry")}</h3>
    <p class="speed">${count(retrying + delayed)}</p>
    <p class="sub stack"><span>${say("panel.flow.retrying", { retrying: count(retrying) })}</span>
      <span>${say("panel.flow.again", { delayed: count(delayed) })}</span>
      <span>${say("panel.flow.given_up", { count: count(exhausted + expired) })}</span></p>
  </li>`;
}

/** Every ticket is accounted for, and anybody can check the sum. */
function Books({ lane }) {
  const { counters, conservation } = lane;
  const dropped = Object.values(lane.dropped ?? {}).reduce((sum, each) => sum + each, 0);
  const ended = counters.delivered + dropped + counters.rejected + counters.duplicates + counters.pull_expired;
  const parts = [
    [say("panel.count.pulled"), counters.pulled],
    [nameOf("outcome", "delivered"), counters.delivered],
    [say("panel.count.dropped"), dropped, "bad"],
    [nameOf("outcome", "rejected"), counters.rejected, "bad"],
    [nameOf("outcome", "duplicates"), counters.duplicates],
    [nameOf("outcome", "pull_expired"), counters.pull_expired, "bad"],
    [say("panel.count.in_flight"), Math.max(0, counters.pulled - ended)],
  ];
  const gap = conservation.pulled - conservation.accounted;
  return html`<dl class="books">
    ${parts.map(([name, value, tone]) => html`<div key=${name} class=${value ? tone : ""}><dt>${name}</dt><dd>${count(value)}</dd></div>`)}
    <div class=${conservation.balanced ? "" : "bad"}><dt>${say("panel.flow.books")}</dt>
      <dd>${conservation.balanced ? say("panel.flow.balanced") : say("panel.flow.unbalanced", { gap })}</dd></div>
  </dl>`;
}
