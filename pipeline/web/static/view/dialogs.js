// Questions asked before a command is sent.
import { RESUMABLE } from "../core/holds.js";
import { html, useLayoutEffect, useRef } from "../core/html.js";
import { reasonGiven } from "../core/sentence.js";
import { nameOf, say } from "../core/texts.js";

const REASON_MAX = 200;
const MINUTES_MAX = 1440;

/** @param {{title: string, verb: string, several: boolean, onDone: Function, onClose: Function, children: any}} props */
function Ask({ title, verb, several, onDone, onClose, children }) {
  const box = useRef(null);
  useLayoutEffect(() => box.current.showModal(), []);
  function submit(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    const fields = {};
    if (given.get("reason")) fields.reason = given.get("reason");
    if (given.get("minutes")) fields.for = Number(given.get("minutes")) * 60;
    box.current.close();
    onDone(fields, given.has("all"));
  }
  return html`<dialog ref=${box} aria-label=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      ${several && html`<label class="check"><input type="checkbox" name="all" /> ${say("panel.dialog.all")}</label>`}
      <div class="actions">
        <button type="button" onClick=${() => box.current.close()}>${say("panel.do.cancel")}</button>
        <button class=${`big ${verb}`}>${say(`panel.do.${verb}`)}</button>
      </div>
    </form>
  </dialog>`;
}

function Reason({ required }) {
  return html`<label>${say("panel.dialog.reason")}
    <input name="reason" maxlength=${REASON_MAX} required=${required} autofocus autocomplete="off"
      placeholder=${required ? "" : say("panel.dialog.optional")} /></label>`;
}

export function PauseDialog(props) {
  return html`<${Ask} ...${props} verb="pause" title=${say("panel.dialog.pause")}>
    <p>${say("panel.dialog.pause_about")}</p>
    <${Reason} required=${false} />
    <label>${say("panel.dialog.minutes")}
      <input name="minutes" type="number" min="0.1" max=${MINUTES_MAX} step="any" placeholder=${say("panel.dialog.until")} /></label>
  <//>`;
}

export function ResumeDialog({ holds, ...props }) {
  const cleared = holds.filter((hold) => RESUMABLE.includes(hold.reason));
  return html`<${Ask} ...${props} verb="resume" title=${say("panel.dialog.resume")}>
    <p>${say("panel.dialog.clears")}</p>
    <ul>
      ${cleared.map((hold) => html`<li key=${hold.reason}><b>${nameOf("reason", hold.reason)}</b> ${reasonGiven(hold.reason, hold.detail)}</li>`)}
      <li>${say("panel.dialog.afresh")}</li>
    </ul>
    <${Reason} required=${true} />
  <//>`;
}

export function StopDialog(props) {
  return html`<${Ask} ...${props} verb="stop" title=${say("panel.dialog.stop")}>
    <p>${say("panel.dialog.stop_about")}</p>
    <${Reason} required=${false} />
  <//>`;
}
