// What became of one ticket, or of all that asked about one item.
import { moment, visible } from "../core/format.js";
import { html, useLayoutEffect, useRef } from "../core/html.js";
import { nameOf, say } from "../core/texts.js";
import { age, nameOfStep, toneOf, triesOf } from "./step.js";

export function Trace({ found, now, onClose }) {
  const box = useRef(null);
  const asked = useRef(null);
  useLayoutEffect(() => {
    if (!box.current.contains(document.activeElement)) asked.current = document.activeElement;
    box.current.focus();
    box.current.scrollIntoView({ block: "nearest" });
  }, [found]);
  function close() {
    onClose();
    if (asked.current.isConnected) asked.current.focus();
  }
  const title = say("panel.trace.title", { id: visible(found.id) });
  return html`<div class="trace" role="region" aria-label=${title} tabindex="-1" ref=${box}>
    <p class="pair"><b>${title}</b><button type="button" class="quiet" onClick=${close}>${say("panel.trace.close")}</button></p>
    ${found.why && html`<p class="bad">${say("panel.trace.failed", { why: found.why })}</p>`}
    ${!found.kept && !found.why && html`<p class="muted">${say("panel.trace.not_kept")}</p>`}
    ${!found.kept && found.steps.length > 0 && html`<p>${say("panel.trace.seen")}</p>`}
    <ol>${found.steps.map((step, at) => html`<li key=${at} class="ticket"><time>${moment(step.at, now)}</time>
      <b class=${toneOf(step.what)}>${nameOfStep(step.what)}</b>
      <span>${nameOf("stage", step.stage)} <span class="muted">${step.key !== found.steps[at - 1]?.key && visible(step.key)}</span></span>
      <span class="muted">${triesOf(step)}${step.age == null ? "" : age(step.age)}</span></li>`)}</ol>
  </div>`;
}
