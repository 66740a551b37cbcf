// Four charts, one cursor, three ranges.
import { moment } from "../core/format.js";
import { html, useEffect, useState } from "../core/html.js";
import { marksAt, marksOf } from "../core/marks.js";
import { sentence } from "../core/sentence.js";
import { RANGES, rowsOf } from "../core/series.js";
import { ask } from "../core/session.js";
import { nameOf, say } from "../core/texts.js";
import { Chart } from "./chart.js";
import { Choice, Section } from "./parts.js";

const percentile = (name) => ({ column: name, label: () => name });

/** Which columns stand in which chart, and in which ink. A chart's scale reaches at least to its floor. */
const CHARTS = [
  { name: "rates", digits: 1, floor: () => 1, levels: () => [], lines: [
    { column: "pulled", ink: "info", label: () => nameOf("stage", "pull") },
    { column: "queried", ink: "violet", label: () => nameOf("stage", "query") },
    { column: "delivered", ink: "ok", label: () => nameOf("outcome", "delivered") },
    { column: "dropped", ink: "bad", label: () => say("panel.count.dropped") }] },
  { name: "depth", digits: 0, floor: ({ queue }) => queue.low_water, lines: [
    { column: "queue", ink: "info", fill: true, label: () => say("panel.flow.queue") },
    { column: "callbacks", ink: "warn", label: () => nameOf("stage", "callback") }],
  levels: ({ queue }) => [{ at: queue.low_water, tone: "muted" }, { at: queue.high_water, tone: "muted" }] },
  { name: "latency", digits: 2, floor: () => 0.1, levels: () => [], lines: [
    { ...percentile("p50"), ink: "ok" }, { ...percentile("p95"), ink: "warn" }, { ...percentile("p99"), ink: "bad" }] },
  { name: "drop", digits: 1, floor: (lane) => lane.limits.drop_stop * 110, lines: [
    { column: "drop", ink: "bad", fill: true, label: () => say("panel.drop") }],
  levels: (lane) => {
    const { drop_degrade: slower, drop_trip: open, drop_stop: stop } = lane.limits;
    return [{ at: slower * 100, tone: "warn" }, { at: open * 100, tone: "warn" }, { at: stop * 100, tone: "bad" }];
  } },
];

export function Charts({ store, series, lane }) {
  const [range, setRange] = useState("5m");
  const [cursor, setCursor] = useState(null);
  const short = useHistory(store, series, range);
  const marks = marksOf(store.events, store.lane, lane, store.now);
  const ring = series.rings[range];
  const options = Object.keys(RANGES).map((name) => [name, say(`panel.charts.${name}`)]);
  const remark = cursor == null
    ? say(short && range !== "5m" ? "panel.charts.only_seen" : "panel.charts.marks")
    : `${moment(cursor, store.now)} ${whatWas(marksAt(marks, cursor, ring.span / 300))}`;
  const aside = html`<p class="muted">${remark}</p>
    <${Choice} label=${say("panel.charts.range")} options=${options} value=${range} onPick=${setRange} />`;
  return html`<${Section} name="charts" title=${say("panel.charts")} aside=${aside}>
    <div class="plots" data-marks=${marks.length}>${CHARTS.map(({ name, digits, lines, floor, levels }) => html`<${Chart} key=${name}
      title=${say(`panel.charts.${name}`)} ...${{ lines, digits, ring, marks, cursor, now: store.now }}
      floor=${floor(lane)} levels=${levels(lane)} onCursor=${setCursor} />`)}</div>
  <//>`;
}

/** The worst first, each once. */
function whatWas(marks) {
  const words = marks.map(({ reason, event }) => (reason ? nameOf("reason", reason) : sentence(event)));
  return [...new Set(words.reverse())].map((word) => `· ${word}`).join(" ");
}

/** Asks the daemon for what it remembers of a longer range. True while there is only what the page has seen. */
function useHistory(store, series, range) {
  const [asked, setAsked] = useState({ name: "", found: false });
  const { lane, status } = store;
  const name = `${lane} ${range} ${store.greetings}`;
  useEffect(() => {
    if (range === "5m") return;
    const note = (found) => setAsked({ name, found });
    ask(`/api/history?lane=${encodeURIComponent(lane)}&range=${range}`)
      .then(async (answer) => {
        if (answer.ok) series.rings[range].fill(rowsOf(await answer.json(), status.lanes[lane], status.now));
        note(answer.ok);
        await store.rememberMore();
      })
      .catch(() => note(false));
  }, [name]);
  return asked.name !== name || !asked.found;
}
