// Always visible: how it is, why, and what to press.
import { holdsOf, toneOf } from "../core/holds.js";
import { time } from "../core/format.js";
import { html } from "../core/html.js";
import { duration, nameOf, say } from "../core/texts.js";
import { Controls } from "./controls.js";
import { Holds } from "./holds.js";
import { Choice } from "./parts.js";

const STATE_TONES = { running: "ok", degraded: "warn", paused: "warn", draining: "info", stopped: "bad", hard_stopped: "bad" };
export const stateTone = (state) => STATE_TONES[state] ?? "plain";

/** The one sentence that says what is the matter. */
function verdict(lane, holds) {
  if (holds.length) return say(`panel.verdict.${holds[0].reason}`);
  return say(`panel.verdict.${lane.state === "degraded" ? "degraded" : "running"}`);
}

export function Header({ store, connection, prefs, setLang, lane }) {
  const holds = lane ? holdsOf(lane) : [];
  const several = Object.keys(store.status?.lanes ?? {}).length > 1;
  return html`<header class="top">
    <div class="bar">
      <h1><img src="/static/icon.svg" alt="" width="20" height="20" /><span class="brand">Tidegate<span class="sr"> ${say("panel.title")}</span></span></h1>
      ${several && html`<${LaneSwitch} store=${store} />`}
      ${lane && html`<strong class=${`pill ${stateTone(lane.state)}`} data-state=${lane.state}>${nameOf("state", lane.state)}</strong>
        <p class=${`verdict ${holds.length ? toneOf(holds[0].reason) : ""}`}>${verdict(lane, holds)}</p>`}
      <div class="tools">
        <${Light} store=${store} />
        <${Choice} label=${say("panel.lang")} value=${prefs.lang} onPick=${setLang}
          options=${[["zh", "中文"], ["en", "EN"]]} />
        <${Theme} prefs=${prefs} />
      </div>
      ${lane && html`<${Controls} ...${{ store, connection, lane, holds }} />`}
    </div>
    ${lane && html`<${Holds} holds=${holds} lane=${lane} now=${store.now} />`}
    ${lane && store.stale && html`<p class="stopped-at">${say("panel.stale", { time: time(store.status.now) })}</p>`}
    <p class="sr" role="status" aria-live="polite">${lane && spoken(store, lane, holds)}</p>
  </header>`;
}

/** For a screen reader: said when it changes, so nothing in it may change every second. */
function spoken(store, lane, holds) {
  const stale = store.stale ? say("panel.stale", { time: time(store.status.now) }) : "";
  return `${store.lane}: ${nameOf("state", lane.state)}. ${verdict(lane, holds)} ${stale}`;
}

function LaneSwitch({ store }) {
  const options = Object.entries(store.status.lanes).map(([name, lane]) => [name, html`<i class=${`dot ${stateTone(lane.state)}`}></i>
    ${name}<span class="sr"> ${nameOf("state", lane.state)}</span>`]);
  return html`<${Choice} label=${say("panel.lanes")} options=${options} value=${store.lane} onPick=${(name) => store.choose(name)} />`;
}

function Light({ store }) {
  const { state, until } = store.connection;
  const seconds = Math.max(0, Math.ceil(((until ?? 0) - Date.now()) / 1000));
  const tone = state === "live" && !store.stale ? "ok" : "bad";
  const { status } = store;
  return html`<p class="light" data-connection=${state}>
    <i class=${`dot ${tone}`}></i><span class="conn">${say(`panel.conn.${state}`, { seconds })}</span>
    ${status && html`<time title=${`${say("panel.clock")} · ${say("panel.uptime", { uptime: duration(status.uptime) })} · ${status.version}`}>${time(store.now)}</time>`}
  </p>`;
}

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

function Theme({ prefs }) {
  const text = `${say("panel.theme")}: ${say(`panel.theme.${prefs.theme}`)}`;
  return html`<button type="button" class="quiet theme" aria-label=${text} title=${text}
    onClick=${() => prefs.setTheme(NEXT[prefs.theme])}>${SIGNS[prefs.theme]}</button>`;
}
