// Always visible: how it is, why, and what to press.
import { holdsOf, toneOf } from "../core/holds.js";
import { moment, time, zone } from "../core/format.js";
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
      ${lane && html`<strong class=${`pill ${store.toneOf(store.lane)}`} data-state=${lane.state}>${nameOf("state", lane.state)}</strong>
        <p class=${`verdict ${holds.length ? toneOf(holds[0].reason) : ""}`}>${judged(store, store.lane)}</p>`}
      <div class="tools">
        <${Light} store=${store} />
        <${Choice} label=${say("panel.lang")} value=${prefs.lang} onPick=${setLang}
          options=${[["zh", "中文"], ["en", "EN"]]} />
        <${Theme} prefs=${prefs} />
      </div>
      ${lane && html`<${Controls} ...${{ store, connection, lane, holds }} />`}
    </div>
    ${lane && html`<${Holds} holds=${holds} lane=${lane} now=${store.now} />`}
    ${lane && store.stale && html`<p class="stopped-at">${stoppedAt(store)} · ${say("panel.ago", { ago: duration(Date.now() / 1000 - store.status.now) })}</p>`}
    <p class="sr" role="status" aria-live="polite">${lane && spoken(store, lane)}</p>
  </header>`;
}

const stoppedAt = ({ status }) => say("panel.stale", { time: moment(status.now, Date.now() / 1000) });

function judged(store, name) {
  const lane = store.status.lanes[name];
  return verdict(lane, holdsOf(lane), store.stale, store.series[name].minute);
}

/** For a screen reader: said when it changes, so nothing in it may change every second. */
function spoken(store, lane) {
  const stale = store.stale ? stoppedAt(store) : "";
  const others = Object.entries(store.status.lanes).filter(([name]) => name !== store.lane && store.toneOf(name) !== "ok");
  return [stale, `${store.lane}: ${nameOf("state", lane.state)}.`, judged(store, store.lane),
    ...others.map(([name, { state }]) => `${name}: ${nameOf("state", state)}. ${judged(store, name)}`)].join(" ");
}

/** A lane that is not looked at says in words when it is not well: "all is well" is said of the chosen one only. */
function LaneSwitch({ store }) {
  const options = Object.entries(store.status.lanes).map(([name, { state }]) => {
    const tone = store.toneOf(name);
    return [name, html`<i class=${`dot ${tone}`}></i>${name} <span class=${tone === "ok" ? "sr" : tone}> ${nameOf("state", state)}</span>`];
  });
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
    ${status && html`<time title=${`${say("panel.clock")} · ${say("panel.uptime", { uptime: duration(status.uptime) })} · ${status.version}`}>${time(store.now)} <small class="wide-only">${zone(store.now)}</small></time>`}
  </p>`;
}

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

function Theme({ prefs }) {
  const text = `${say("panel.theme")}: ${say(`panel.theme.${prefs.theme}`)}`;
  return html`<button type="button" class="quiet theme" aria-label=${text} title=${text}
    onClick=${() => prefs.setTheme(NEXT[prefs.theme])}>${SIGNS[prefs.theme]}</button>`;
}
