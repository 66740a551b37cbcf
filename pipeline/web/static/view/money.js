// What is left, what went, and what for.
import { count, exact, money, NOT_KNOWN, rate } from "../core/format.js";
import { html } from "../core/html.js";
import { say } from "../core/texts.js";
import { Section } from "./parts.js";

/** Ends that come after the provider was paid. */
const PAID_AND_LOST = ["callback_expired", "retry_expired", "retry_exhausted", "rejected"];
const HOURS_LOW = 4;
/** Seconds after a start in which the rate of spending is that of a start. */
const RATE_UNSURE = 30;

/** By the price of one result; several tickets may have shared one, so never more than was paid. */
function wasted(lane) {
  const { counters } = lane;
  const results = counters.answered + counters.offline;
  const spent = lane.credits?.spent;
  if (spent == null) return null;
  if (!results) return 0;
  const lost = PAID_AND_LOST.reduce((sum, name) => sum + (counters[name] ?? 0), 0);
  return (Math.min(lost, results) * spent) / results;
}

export function Money({ lane, uptime }) {
  const { balance, spent, per_delivery: each, hours_left: told } = lane.credits ?? {};
  const hours = lane.holds.query.length || uptime < RATE_UNSURE ? null : told;
  const low = hours != null && hours < HOURS_LOW;
  const rows = [
    [say("panel.money.spent"), money(spent)],
    [say("panel.money.per_delivery"), exact(each, 2)],
    [say("panel.money.wasted"), money(wasted(lane))],
    [say("panel.money.today"), count(lane.upstream?.today)],
  ];
  return html`<${Section} name="money" title=${say("panel.money")}>
    <div class="heads">
      <p class=${balance != null && balance <= 0 ? "bad" : ""}><span class="speed">${money(balance)}</span><span class="sub">${say("panel.money.balance")}</span></p>
      <p class=${low ? "bad" : ""}><span class="speed">${hours == null ? NOT_KNOWN : say("panel.money.hours_value", { hours: rate(hours) })}</span>
        <span class="sub">${say("panel.money.hours")}</span></p>
    </div>
    <ul class="rows">${rows.map(([name, value]) => html`<li key=${name}><span>${name}</span><b>${value}</b></li>`)}</ul>
  <//>`;
}
