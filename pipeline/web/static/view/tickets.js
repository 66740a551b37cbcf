// Recent steps in three columns. They stand still while somebody points at them.
import { moment, time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { ask } from "../core/session.js";
import { nameOf, say } from "../core/texts.js";
import { Section } from "./parts.js";

const STAGES = ["pull", "query", "callback"];
const TONES = { answered: "ok", delivered: "ok", queued: "plain", joined: "plain", offline: "plain",
  duplicates: "plain", asking: "plain", calling: "plain", processing: "info" };
const toneOf = (what) => TONES[what] ?? "bad";

/** Deadlines are in seconds, so ages are too. */
const age = (seconds) => say("duration.seconds", { seconds: Math.round(seconds) });

/** A step is a verdict, an outcome, or one of our own words. */
const nameOfStep = (what) => {
  const step = nameOf("step", what);
  return step === what ? nameOf("outcome", what) : step;
};

export function Tickets({ store, steps }) {
  const [frozen, freeze] = useState(null);
  const [found, setFound] = useState(null);
  const shown = frozen ?? steps;
  const hold = (event) => event.pointerType === "touch" || freeze((before) => before ?? { ...steps });
  const release = (event) => event.currentTarget.matches(":hover, :has(:focus-visible)") || freeze(null);

  async function search(id) {
    const seen = STAGES.flatMap((stage) => shown[stage] ?? []).filter((step) => step.trace_id === id).sort((a, b) => a.at - b.at);
    const known = await lookUp(id).catch((error) => ({ why: String(error) }));
    setFound({ id, steps: seen, ...known });
  }

  const aside = html`${frozen && html`<span class="mode info">${say("panel.tickets.frozen")}</span>`}<${Search} onSearch=${search} />`;
  return html`<${Section} name="tickets" title=${say("panel.tickets")} aside=${aside}>
    ${found && html`<${Trace} found=${found} now=${store.now} onClose=${() => setFound(null)} />`}
    <div class="trio" onPointerEnter=${hold} onPointerLeave=${release} onFocusIn=${hold} onFocusOut=${release}>
      ${STAGES.map((stage) => html`<${Column} key=${stage} stage=${stage} steps=${shown[stage] ?? []} onPick=${search} />`)}
    </div>
  <//>`;
}

/** What the journal keeps; 404 is nothing, also where there is no journal. */
async function lookUp(id) {
  const answer = await ask(`/api/trace/${encodeURIComponent(id)}`);
  if (answer.status === 404) return {};
  const { steps, error } = await answer.json();
  return answer.ok ? { kept: true, steps } : { why: error.message };
}

function Column({ stage, steps, onPick }) {
  return html`<div class="column" data-column=${stage}>
    <h3>${nameOf("stage", stage)}</h3>
    <ol class="scroll" tabindex="0" aria-label=${nameOf("stage", stage)}>
      ${steps.map((step) => html`<${Step} key=${`${step.at} ${step.trace_id} ${step.what}`} step=${step} onPick=${onPick} />`)}
      ${!steps.length && html`<li class="muted">${say("panel.tickets.none")}</li>`}
    </ol>
  </div>`;
}

function Step({ step, onPick }) {
  const tries = step.attempt > 1 ? `${say("panel.tickets.try", { attempt: step.attempt })} ` : "";
  return html`<li class="ticket">
    <time>${time(step.at)}</time>
    <b class=${toneOf(step.what)}>${nameOfStep(step.what)}</b>
    <button type="button" class="link" tabindex="-1" title=${step.trace_id} onClick=${() => onPick(step.trace_id)}>${step.key}</button>
    <span class="muted">${tries}${age(step.age)}</span>
  </li>`;
}

function Search({ onSearch }) {
  function submit(event) {
    event.preventDefault();
    const id = new FormData(event.target).get("trace").trim();
    if (id) onSearch(id);
  }
  return html`<form class="inline" role="search" onSubmit=${submit}>
    <input name="trace" type="search" aria-label=${say("panel.trace.label")} placeholder=${say("panel.trace.label")} autocomplete="off" />
    <button>${say("panel.trace.find")}</button>
  </form>`;
}

function Trace({ found, now, onClose }) {
  return html`<div class="trace" role="region" aria-label=${say("panel.trace.title", { id: found.id })}>
    <p class="pair"><b>${say("panel.trace.title", { id: found.id })}</b>
      <button type="button" class="quiet" onClick=${onClose}>${say("panel.trace.close")}</button></p>
    ${found.why && html`<p class="bad">${say("panel.trace.failed", { why: found.why })}</p>`}
    ${!found.kept && !found.why && html`<p class="muted">${say("panel.trace.not_kept")}</p>`}
    ${!found.kept && found.steps.length > 0 && html`<p>${say("panel.trace.seen")}</p>`}
    <ol>${found.steps.map((step, at) => html`<li key=${at} class="ticket"><time>${moment(step.at, now)}</time>
      <b class=${toneOf(step.what)}>${nameOfStep(step.what)}</b><span>${nameOf("stage", step.stage)}</span>
      <span class="muted">${step.age == null ? "" : age(step.age)}</span></li>`)}</ol>
  </div>`;
}
