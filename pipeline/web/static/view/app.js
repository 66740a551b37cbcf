// The page from top to bottom.
import { html } from "../core/html.js";
import { say } from "../core/texts.js";
import { Breakers } from "./breakers.js";
import { Charts } from "./charts.js";
import { DropRate } from "./drop_rate.js";
import { Events } from "./events.js";
import { Flow } from "./flow.js";
import { Header } from "./header.js";
import { Lanes } from "./lanes.js";
import { Login } from "./login.js";
import { Money } from "./money.js";
import { Runbook } from "./runbook.js";
import { Tickets } from "./tickets.js";

export function App({ store, connection, prefs, setLang }) {
  const { status, notice } = store;
  const asks = store.connection.state === "token";
  const lane = status?.lanes[store.lane];
  return html`
    <a class="skip" href="#main">${say("panel.skip")}</a>
    <${Header} ...${{ store, connection, prefs, setLang, lane }} />
    <main id="main" tabindex="-1" class=${lane && store.stale ? "stale" : ""}>
      ${asks && html`<${Login} connection=${connection} wrong=${store.connection.wrong} />`}
      ${!asks && !lane && html`<p class="muted">${say("panel.loading")}</p>`}
      ${!asks && lane && html`<${Sections} ...${{ store, lane }} />`}
    </main>
    <div class="notices" role="status">${notice && html`<p class=${notice.bad ? "bad" : "ok"}>${notice.text}</p>`}</div>
  `;
}

function Sections({ store, lane }) {
  const series = store.series[store.lane];
  return html`
    <${Flow} lane=${lane} now=${series.now} />
    <div class="gauges">
      <${Breakers} lane=${lane} />
      <${DropRate} lane=${lane} />
      <${Money} lane=${lane} uptime=${store.status.uptime} />
    </div>
    <${Charts} ...${{ store, series, lane }} />
    <${Tickets} store=${store} steps=${store.steps[store.lane] ?? {}} />
    <${Events} store=${store} />
    <${Lanes} store=${store} />
    <${Runbook} lane=${lane} />
  `;
}
