// Four charts, one cursor, three ranges.
import { html, useEffect, useState } from "../core/html.js";
import { marksOf } from "../core/marks.js";
import { RANGES, rowsOf } from "../core/series.js";
import { ask } from "../core/session.js";
import { nameOf, say } from "../core/texts.js";
import { Chart } from "./chart.js";
import { Choice, Section } from "./parts.js";

const percentile = (name) => ({ column: name, label: () => name });

/** Which columns stand in which chart, and in which ink. */
const CHARTS = [
  { name: "rates", digits: 1, lines: [
    { column: "pulled", ink: "info", label: () => nameOf("stage", "pull") },
    { column: "queried", ink: "violet", label: () => nameOf("stage", "query") },
    { column: "delivered", ink: "ok", label: () => nameOf("outcome", "delivered") },
    { column: "dropped", ink: "bad", label: () => say("panel.count.dropped") }] },
  { name: "depth", digits: 0, lines: [
    { column: "queue", ink: "info", label: () => say("panel.flow.queue") },
    { column: "callbacks", ink: "warn", label: () => nameOf("stage", "callback") }] },
  { name: "latency", digits: 2, lines: [
    { ...percentile("p50"), ink: "ok" }, { ...percentile("p95"), ink: "warn" }, { ...percentile("p99"), ink: "bad" }] },
  { name: "drop", digits: 1, lines: [{ column: "drop", ink: "bad", label: () => say("panel.drop") }] },
];

export function Charts({ store, series }) {
  const [range, setRange] = useState("5m");
  const short = useHistory(store, series, range);
  const marks = marksOf(store.events, store.lane, store.now);
  const options = Object.keys(RANGES).map((name) => [name, say(`panel.charts.${name}`)]);
  const aside = html`<p class="muted">${short && range !== "5m" ? say("panel.charts.only_seen") : say("panel.charts.marks")}</p>
    <${Choice} label=${say("panel.charts.range")} options=${options} value=${range} onPick=${setRange} />`;
  return html`<${Section} name="charts" title=${say("panel.charts")} aside=${aside}>
    <div class="plots" data-marks=${marks.length}>${CHARTS.map((chart) => html`<${Chart} key=${chart.name} title=${say(`panel.charts.${chart.name}`)}
      lines=${chart.lines} digits=${chart.digits} ring=${series.rings[range]} now=${store.now} marks=${marks} />`)}</div>
  <//>`;
}

/** Asks the daemon for what it remembers of a longer range. True while there is only what the page has seen. */
function useHistory({ lane, status }, series, range) {
  const [known, setKnown] = useState({});
  const name = `${lane} ${range}`;
  useEffect(() => {
    if (range === "5m" || name in known) return;
    const note = (found) => setKnown((before) => ({ ...before, [name]: found }));
    ask(`/api/history?lane=${encodeURIComponent(lane)}&range=${range}`)
      .then(async (answer) => {
        if (answer.ok) series.rings[range].prefix(rowsOf(await answer.json(), status.lanes[lane]));
        note(answer.ok);
      })
      .catch(() => note(false));
  }, [name]);
  return !known[name];
}
