// Always visible: how it is, why, and what to press.
import { holdsOf, laneTone, toneOf } from "../core/holds.js";
import { moment, time } from "../core/format.js";
import { html } from "../core/html.js";
import { duration, nameOf, say } from "../core/texts.js";
import { verdict } from "../core/verdict.js";
import { Controls } from "./controls.js";
import { Holds } from "./holds.js";
import { Choice } from "./parts.js";

export function Header({ store, connection, prefs, setLang, lane }) {
  const holds = lane ? holdsOf(lane) : [];
  const several = Object.keys(store.status?.lanes ?? {}).length > 1;
  return html`<header class=${`top ${lane && store.stale ? "stale" : ""}`}>
    ${several && html`<${LaneSwitch} store=${store} />`}
    <div class="bar">
      <h1><img src="/static/icon.svg" alt="" width="20" height="20" /><span class="brand">Tidegate<span class="sr"> ${say("panel.title")}</span></span></h1>
      ${lane && html`<strong class=${`pill ${laneTone(lane)}`} data-state=${lane.state}>${nameOf("state", lane.state)}</strong>
        <p class=${`verdict ${holds.length ? toneOf(holds[0].reason) : ""}`}>${verdict(lane, holds, store.stale)}</p>`}
      <div class="tools">
        <${Light} store=${store} />
        <${Choice} label=${say("panel.lang")} value=${prefs.lang} onPick=${setLang}
          options=${[["zh", "中文"], ["en", "EN"]]} />
        <${Theme} prefs=${prefs} />
      </div>
      ${lane && html`<${Controls} ...${{ store, connection, lane, holds }} />`}
    </div>
    ${lane && html`<${Holds} holds=${holds} lane=${lane} now=${store.now} />`}
    ${lane && store.stale && html`<p class="stopped-at">${stoppedAt(store)}</p>`}
    <p class="sr" role="status" aria-live="polite">${lane && spoken(store, lane, holds)}</p>
  </header>`;
}

const stoppedAt = ({ status }) => say("panel.stale", { time: moment(status.now, Date.now() / 1000) });

/** For a screen reader: said when it changes, so nothing in it may change every second. */
function spoken(store, lane, holds) {
  const stale = store.stale ? stoppedAt(store) : "";
  const others = Object.entries(store.status.lanes).filter(([name, { state }]) => name !== store.lane && state !== "running");
  return [stale, `${store.lane}: ${nameOf("state", lane.state)}.`, verdict(lane, holds, store.stale),
    ...others.map(([name, { state }]) => `${name}: ${nameOf("state", state)}.`)].join(" ");
}

/** A lane that is not looked at says in words when it is not well: "all is well" is said of the chosen one only. */
function LaneSwitch({ store }) {
  const options = Object.entries(store.status.lanes).map(([name, lane]) => [name, html`<i class=${`dot ${laneTone(lane)}`}></i>${name}
    <span class=${lane.state === "running" ? "sr" : laneTone(lane)}> ${nameOf("state", lane.state)}</span>`]);
  return html`<div class="lane-switch"><${Choice} label=${say("panel.lanes")} options=${options} value=${store.lane}
    onPick=${(name) => store.choose(name)} /></div>`;
}

function Light({ store }) {
  const { state, until } = store.connection;
  const seconds = Math.max(0, Math.ceil(((until ?? 0) - Date.now()) / 1000));
  const silent = state === "live" && store.status && store.stale;
  const tone = state === "live" && !silent ? "ok" : "bad";
  const { status } = store;
  return html`<p class="light" data-connection=${state}>
    <i class=${`dot ${tone}`}></i><span class="conn">${silent ? say("panel.no_data") : say(`panel.conn.${state}`, { seconds })}</span>
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
