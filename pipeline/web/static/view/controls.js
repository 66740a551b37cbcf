// The big button and what hides behind it.
import { RESUMABLE } from "../core/holds.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { say } from "../core/texts.js";
import { PauseDialog, ResumeDialog, StopDialog } from "./dialogs.js";

const COMMANDS = { pause: "stopPulling", resume: "startPulling", start: "startScheduler", stop: "stopScheduler" };
const DIALOGS = { pause: PauseDialog, resume: ResumeDialog, stop: StopDialog };

/** What the one big button does now. */
function nextVerb(holds) {
  const reasons = holds.map((hold) => hold.reason);
  if (reasons.includes("stopped")) return "start";
  return reasons.some((reason) => RESUMABLE.includes(reason)) ? "resume" : "pause";
}

export function Controls({ store, connection, lane, holds }) {
  const [dialog, open] = useState("");
  const [busy, setBusy] = useState(false);
  const verb = nextVerb(holds);
  const name = store.lane;

  async function run(what, fields = {}, all = false) {
    open("");
    setBusy(true);
    const outcome = await connection.command(COMMANDS[what], all ? fields : { lane: name, ...fields });
    setBusy(false);
    if (outcome.ok) store.notify(say("panel.done", { lane: all ? say("panel.dialog.all") : name, verb: say(`panel.do.${what}`) }), false);
    else store.notify(outcome.error?.message ?? say("panel.no_answer"), true);
  }

  const press = () => (verb === "resume" && lane.state === "hard_stopped" ? open("resume") : run(verb));
  const off = busy || store.connection.state !== "live" || lane.state === "draining";
  const several = Object.keys(store.status.lanes).length > 1;
  const more = useRef(null);
  const escape = (event) => {
    if (event.key !== "Escape" || dialog !== "menu") return;
    open("");
    more.current.focus();
  };
  const Dialog = DIALOGS[dialog];
  return html`<div class="controls" onKeyDown=${escape}>
    <button type="button" class=${`big ${verb}`} disabled=${off} onClick=${press}>${say(`panel.do.${verb}`)}</button>
    <button type="button" class="quiet" ref=${more} aria-label=${say("panel.do.more")} title=${say("panel.do.more")} aria-haspopup="true"
      aria-expanded=${String(dialog === "menu")} disabled=${off} onClick=${() => open(dialog === "menu" ? "" : "menu")}>⋯</button>
    ${dialog === "menu" && html`<${Menu} verb=${verb} open=${open} />`}
    ${Dialog && html`<${Dialog} ...${{ several, holds }} onCancel=${() => open("")}
      onDone=${(fields, all) => run(dialog, fields, all)} />`}
  </div>`;
}

function Menu({ verb, open }) {
  const first = useRef(null);
  useEffect(() => first.current.focus(), []);
  // An item that was chosen takes the menu away, and that is a loss of focus too.
  const leave = (event) => event.currentTarget.contains(event.relatedTarget) || open((now) => (now === "menu" ? "" : now));
  return html`<div class="menu" onFocusOut=${leave}>
    <button type="button" ref=${first} onClick=${() => open("pause")}>${say("panel.do.pause_with")}</button>
    ${verb !== "start" && html`<button type="button" onClick=${() => open("stop")}>${say("panel.do.stop_with")}</button>`}
  </div>`;
}
