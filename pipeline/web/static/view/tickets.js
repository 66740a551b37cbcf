// Recent steps in three columns. They stand still while somebody points at them.
import { time, visible } from "../core/format.js";
import { html, useRef, useState } from "../core/html.js";
import { ask } from "../core/session.js";
import { nameOf, say } from "../core/texts.js";
import { Section } from "./parts.js";
import { age, nameOfStep, toneOf, triesOf } from "./step.js";
import { Trace } from "./trace.js";

const STAGES = ["pull", "query", "callback"];
/** A finger leaves no pointer behind: so long after a touch there is time to aim. */
const TOUCH_HOLDS = 5000;
const ITEM = /^([^:\s]+):([^:\s]+)(:[^:\s]+)?$/;

/** Steps to show, and what to listen to for freezing them. */
function useFreeze(steps) {
  const [frozen, freeze] = useState(null);
  const touched = useRef(0);
  const hold = () => freeze((before) => before ?? { ...steps });
  const release = (event) => touched.current || event.currentTarget.matches(":hover, :has(:focus-visible)") || freeze(null);
  const touch = (event) => {
    if (event.pointerType !== "touch") return;
    hold();
    clearTimeout(touched.current);
    touched.current = setTimeout(() => { touched.current = 0; freeze(null); }, TOUCH_HOLDS);
  };
  return { frozen, listeners: {
    onPointerEnter: (event) => event.pointerType === "touch" || hold(),
    onPointerLeave: release,
    onPointerDown: touch,
    // What is clicked has the pointer on it already.
    onFocusIn: (event) => event.target.matches(":focus-visible") && hold(),
    onFocusOut: release,
  } };
}

export function Tickets({ store, steps }) {
  const { frozen, listeners } = useFreeze(steps);
  const [found, setFound] = useState(null);
  const shown = frozen ?? steps;

  /** @param {string} id a trace id, or, where `typed`, perhaps an item's key */
  async function search(id, typed = false) {
    const isIt = (step) => step.trace_id === id || (typed && `${step.key}:`.startsWith(`${id}:`));
    const seen = STAGES.flatMap((stage) => shown[stage] ?? []).filter(isIt).sort((a, b) => a.at - b.at);
    const known = await (typed ? lookUpTyped(id) : lookUp(id)).catch((error) => ({ why: String(error) }));
    setFound({ id, steps: seen, ...known });
  }

  const aside = html`${frozen && html`<span class="mode info">${say("panel.tickets.frozen")}</span>`}<${Search} onSearch=${search} />`;
  return html`<${Section} name="tickets" title=${say("panel.tickets")} aside=${aside}>
    ${found && html`<${Trace} found=${found} now=${store.now} onClose=${() => setFound(null)} />`}
    <div class="trio" ...${listeners}>
      ${STAGES.map((stage) => html`<${Column} key=${stage} stage=${stage} steps=${shown[stage] ?? []} onPick=${search} />`)}
    </div>
  <//>`;
}

const lookUp = (id) => kept(`/api/trace/${encodeURIComponent(id)}`);

async function lookUpTyped(id) {
  const [, shop, item, country] = ITEM.exec(id) ?? [];
  if (shop) {
    const { steps = [], ...rest } = await kept(`/api/traces?${new URLSearchParams({ shop, item })}`);
    const its = steps.filter((step) => !country || step.key === id);
    if (its.length) return { steps: its, ...rest };
  }
  return lookUp(id);
}

/** What the journal keeps; 404 is nothing, also where there is no journal. */
async function kept(path) {
  const answer = await ask(path);
  if (answer.status === 404) return {};
  const { steps, error } = await answer.json();
  return answer.ok ? { kept: true, steps } : { why: error.message };
}

const keyOf = (step) => `${step.at} ${step.trace_id} ${step.what}`;

/** One row can be reached by Tab, the others from it by the arrow keys. */
function Column({ stage, steps, onPick }) {
  const [chosen, choose] = useState("");
  const reached = steps.some((step) => keyOf(step) === chosen) ? chosen : steps[0] && keyOf(steps[0]);
  function move(event) {
    const side = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const row = side && event.target.closest("li")?.[side]?.firstElementChild;
    if (!row) return;
    event.preventDefault();
    row.focus();
  }
  return html`<div class="column" data-column=${stage}>
    <h3>${nameOf("stage", stage)}</h3>
    <ol class="scroll" aria-label=${nameOf("stage", stage)} onKeyDown=${move}>
      ${steps.map((step) => html`<${Row} key=${keyOf(step)} ...${{ step, onPick }} tab=${keyOf(step) === reached ? 0 : -1}
        onFocus=${() => choose(keyOf(step))} />`)}
      ${!steps.length && html`<li class="muted">${say("panel.tickets.none")}</li>`}
    </ol>
  </div>`;
}

function Row({ step, tab, onPick, onFocus }) {
  return html`<li><button type="button" class="ticket" tabindex=${tab} title=${visible(step.trace_id)} onFocus=${onFocus}
      onClick=${() => onPick(step.trace_id)}>
    <time>${time(step.at)}</time>
    <b class=${toneOf(step.what)}>${nameOfStep(step.what)}</b>
    <span class="name">${visible(step.key)}</span>
    <span class="muted">${triesOf(step)}${age(step.age)}</span>
  </button></li>`;
}

function Search({ onSearch }) {
  function submit(event) {
    event.preventDefault();
    const id = new FormData(event.target).get("trace").trim();
    if (id) onSearch(id, true);
  }
  return html`<form class="inline" role="search" onSubmit=${submit}>
    <input name="trace" type="search" aria-label=${say("panel.trace.label")} placeholder=${say("panel.trace.label")} autocomplete="off" />
    <button>${say("panel.trace.find")}</button>
  </form>`;
}
