// The big button and what hides behind it.
import { resumable } from "../core/holds.js";
import { html, useLayoutEffect, useRef, useState } from "../core/html.js";
import { say } from "../core/texts.js";
import { PauseDialog, ResumeDialog, StopDialog } from "./dialogs.js";

const COMMANDS = { pause: "stopPulling", resume: "startPulling", start: "startScheduler", stop: "stopScheduler" };
const DIALOGS = { pause: PauseDialog, resume: ResumeDialog, stop: StopDialog };

/** What the one big button does now. */
function nextVerb(lane, holds) {
  if (holds.some((hold) => hold.reason === "stopped")) return "start";
  return resumable(lane).length ? "resume" : "pause";
}

/** What one click would lift without a word: a hard stop, several holds, or one whose reason somebody wrote down. */
function isWorthAsking(lane) {
  const holds = resumable(lane);
  return holds.length > 1 || holds.some((hold) => hold.reason === "drop_rate" || (hold.reason === "manual" && hold.detail));
}

export function Controls({ store, connection, lane, holds }) {
  const [dialog, open] = useState("");
  const [busy, setBusy] = useState(false);
  const verb = nextVerb(lane, holds);
  const name = store.lane;

  async function run(what, fields = {}, all = false) {
    if (busy) return;
    setBusy(true);
    const outcome = await connection.command(COMMANDS[what], all ? fields : { lane: name, ...fields });
    setBusy(false);
    if (outcome.ok) store.notify(say("panel.done", { lane: all ? say("panel.dialog.all") : name, verb: say(`panel.do.${what}`) }), false);
    else store.notify(outcome.error?.message ?? say("panel.no_answer"), true);
  }

  const next = () => (verb === "resume" && isWorthAsking(lane) ? open("resume") : run(verb));
  // The second half of a double click would undo what the first did.
  const press = (event) => event.detail > 1 || next();
  // Not while it is busy: a button that is switched off loses the keyboard.
  const off = store.connection.state !== "live" || lane.state === "draining";
  const more = useRef(null);
  const escape = (event) => {
    if (event.key !== "Escape" || dialog !== "menu") return;
    open("");
    more.current.focus();
  };
  // A dialog gives the keyboard back to what had it, and the menu's items are gone by then.
  const choose = (item) => {
    more.current.focus();
    open(item);
  };
  const Dialog = DIALOGS[dialog];
  return html`<div class="controls" onKeyDown=${escape}>
    <button type="button" class=${`big ${verb}`} disabled=${off} aria-busy=${String(busy)} onClick=${press}>${say(`panel.do.${verb}`)}</button>
    <button type="button" class="quiet" ref=${more} aria-label=${say("panel.do.more")} title=${say("panel.do.more")}
      aria-expanded=${String(dialog === "menu")} disabled=${off} onClick=${() => open(dialog === "menu" ? "" : "menu")}>⋯</button>
    ${dialog === "menu" && html`<${Menu} verb=${verb} onPick=${choose} onLeave=${() => open((now) => (now === "menu" ? "" : now))} />`}
    ${Dialog && html`<${Dialog} store=${store} onClose=${() => open("")}
      onDone=${(fields, all) => run(dialog, fields, all)} />`}
  </div>`;
}

function Menu({ verb, onPick, onLeave }) {
  const first = useRef(null);
  useLayoutEffect(() => first.current.focus(), []);
  const leave = (event) => event.currentTarget.contains(event.relatedTarget) || onLeave();
  return html`<div class="menu" onFocusOut=${leave}>
    <button type="button" ref=${first} onClick=${() => onPick("pause")}>${say("panel.do.pause_with")}</button>
    ${verb !== "start" && html`<button type="button" onClick=${() => onPick("stop")}>${say("panel.do.stop_with")}</button>`}
  </div>`;
}
