// Questions asked before a command is sent.
import { resumable } from "../core/holds.js";
import { html, useLayoutEffect, useRef, useState } from "../core/html.js";
import { reasonGiven } from "../core/sentence.js";
import { nameOf, say } from "../core/texts.js";

const REASON_MAX = 200;
const MINUTES_MAX = 1440;

/** What is asked may depend on whether all lanes are meant: `children` is told.
 * @param {{title: string, verb: string, store: any, onDone: Function, onClose: Function, children: (all: boolean) => any}} props */
function Ask({ title, verb, store, onDone, onClose, children }) {
  const box = useRef(null);
  const [all, setAll] = useState(false);
  const several = Object.keys(store.status.lanes).length > 1;
  const whole = several ? `${title} · ${all ? say("panel.dialog.all") : store.lane}` : title;
  useLayoutEffect(() => box.current.showModal(), []);
  function submit(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    const fields = {};
    const reason = given.get("reason").trim();
    if (reason) fields.reason = reason;
    if (given.get("minutes")) fields.for = Number(given.get("minutes")) * 60;
    box.current.close();
    onDone(fields, all);
  }
  return html`<dialog ref=${box} aria-label=${whole} onClose=${onClose}>
    <form onSubmit=${submit}>
      <h2>${whole}</h2>
      ${children(all)}
      ${several && html`<label class="check"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> ${say("panel.dialog.all")}</label>`}
      <div class="actions">
        <button type="button" onClick=${() => box.current.close()}>${say("panel.do.cancel")}</button>
        <button class=${`big ${verb}`}>${say(`panel.do.${verb}`)}</button>
      </div>
    </form>
  </dialog>`;
}

function Reason({ required }) {
  const label = say(required ? "panel.dialog.reason_needed" : "panel.dialog.reason");
  return html`<label>${label}
    <input name="reason" maxlength=${REASON_MAX} required=${required} pattern=${required ? ".*\\S.*" : ".*"} title=${label} autofocus autocomplete="off"
      placeholder=${required ? "" : say("panel.dialog.optional")} /></label>`;
}

export function PauseDialog(props) {
  return html`<${Ask} ...${props} verb="pause" title=${say("panel.dialog.pause")}>${() => html`
    <p>${say("panel.dialog.pause_about")}</p>
    <${Reason} required=${false} />
    <label>${say("panel.dialog.minutes")}
      <input name="minutes" type="number" min="0.1" max=${MINUTES_MAX} step="any" placeholder=${say("panel.dialog.until")} /></label>
  `}<//>`;
}

export function ResumeDialog(props) {
  const { store } = props;
  const { lanes } = store.status;
  const clearedIn = (names) => names.flatMap((name) => resumable(lanes[name]).map((hold) => ({ name, hold })));
  const hard = clearedIn([store.lane]).some(({ hold }) => hold.reason === "drop_rate");
  return html`<${Ask} ...${props} verb="resume" title=${say(hard ? "panel.dialog.resume" : "panel.do.resume")}>${(all) => {
    const cleared = clearedIn(all ? Object.keys(lanes) : [store.lane]);
    return html`<p>${say("panel.dialog.clears")}</p>
      <ul>${cleared.map(({ name, hold }) => html`<li key=${`${name} ${hold.reason} ${hold.stages}`}>
        ${all && `${name}: `}<b>${nameOf("reason", hold.reason)}</b>${hold.detail && ` · ${reasonGiven(hold.reason, hold.detail)}`}</li>`)}</ul>
      <p>${say("panel.dialog.afresh")}</p>
      <${Reason} required=${cleared.some(({ hold }) => hold.reason === "drop_rate")} />`;
  }}<//>`;
}

export function StopDialog(props) {
  return html`<${Ask} ...${props} verb="stop" title=${say("panel.dialog.stop")}>${() => html`
    <p>${say("panel.dialog.stop_about")}</p>
    <${Reason} required=${false} />
  `}<//>`;
}
