// Where there are several lanes: one row each.
import { count, NOT_KNOWN, percent, rate } from "../core/format.js";
import { holdsOf } from "../core/holds.js";
import { html } from "../core/html.js";
import { listed, nameOf, say } from "../core/texts.js";
import { Section } from "./parts.js";

export function Lanes({ store }) {
  const lanes = Object.entries(store.status.lanes);
  if (lanes.length < 2) return null;
  const head = [say("panel.lanes"), say("panel.hold.list"), say("panel.flow.queue"), `${nameOf("outcome", "delivered")}${say("panel.flow.per_second")}`, say("panel.drop")];
  return html`<${Section} name="lanes" title=${say("panel.lanes")}>
    <div class="wide" tabindex="0" role="group" aria-label=${say("panel.lanes")}><table>
      <thead><tr>${head.map((text) => html`<th key=${text} scope="col">${text}</th>`)}</tr></thead>
      <tbody>${lanes.map(([name, lane]) => html`<tr key=${name} aria-current=${name === store.lane ? "true" : null}>
        <th scope="row"><button type="button" class="link" onClick=${() => store.choose(name)}>${name}</button>
          <span class=${`mode ${store.toneOf(name)}`}>${nameOf("state", lane.state)}</span></th>
        <td>${listed(holdsOf(lane).map((hold) => nameOf("reason", hold.reason))) || NOT_KNOWN}</td>
        <td>${count(lane.queue.pending + lane.queue.delayed)}</td>
        <td>${rate(store.series[name].now.delivered)}</td>
        <td>${percent(lane.drop_rate.rate)}</td>
      </tr>`)}</tbody>
    </table></div>
  <//>`;
}
