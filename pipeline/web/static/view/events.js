// What happened, filtered, and to take away.
import { moment } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { remark, sentence } from "../core/sentence.js";
import { nameOf, say } from "../core/texts.js";
import { Section } from "./parts.js";

const SHOWN_MAX = 200;
const LEVELS = ["info", "warning", "error"];
const STAGES = ["pull", "query", "callback"];

function matches(event, { level, stage, text }) {
  if (level && event.level !== level) return false;
  if (stage && !event.stage.split(",").includes(stage)) return false;
  return !text || `${sentence(event)} ${remark(event)} ${JSON.stringify(event)}`.toLowerCase().includes(text.toLowerCase());
}

function download(events) {
  const lines = events.map((event) => `${JSON.stringify(event)}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  Object.assign(document.createElement("a"), { href: url, download: "tidegate-events.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function Events({ store }) {
  const [filter, setFilter] = useState({ level: "", stage: "", text: "" });
  const several = Object.keys(store.status.lanes).length > 1;
  const found = store.events.filter((event) => matches(event, filter));
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  const aside = html`<div class="inline">
    <${Pick} label=${say("panel.events.level")} onPick=${set("level")} options=${LEVELS.map((level) => [level, say(`panel.events.${level}`)])} />
    <${Pick} label=${say("panel.events.stage")} onPick=${set("stage")} options=${STAGES.map((stage) => [stage, nameOf("stage", stage)])} />
    <input type="search" aria-label=${say("panel.events.text")} placeholder=${say("panel.events.text")} onInput=${set("text")} />
    <button type="button" disabled=${!found.length} onClick=${() => download(found)}>${say("panel.events.download")}</button>
  </div>`;
  return html`<${Section} name="events" title=${say("panel.events")} aside=${aside}>
    <ol class="scroll" tabindex="0" aria-label=${say("panel.events")}>
      ${found.slice(0, SHOWN_MAX).map((event) => html`<li key=${`${event.at} ${event.seq}`} class="event" data-kind=${event.kind}>
        <time>${moment(event.at, store.now)}</time>
        <span class=${`level ${event.level}`}>${say(`panel.events.${event.level}`)}</span>
        <span class="where">${[several && event.lane, ...event.stage.split(",").filter(Boolean).map((stage) => nameOf("stage", stage))].filter(Boolean).join(" · ")}</span>
        <span class="what"><b>${sentence(event)}</b> <span class="muted">${remark(event)}</span></span>
      </li>`)}
      ${!found.length && html`<li class="muted">${say("panel.events.none")}</li>`}
    </ol>
  <//>`;
}

function Pick({ label, options, onPick }) {
  return html`<select aria-label=${label} onChange=${onPick}>
    <option value="">${label}: ${say("panel.events.any")}</option>
    ${options.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
  </select>`;
}
