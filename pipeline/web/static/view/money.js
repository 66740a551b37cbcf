// What is left, what went, and what for.
import { count, money, NOT_KNOWN } from "../core/format.js";
import { html } from "../core/html.js";
import { say } from "../core/texts.js";
import { Section } from "./parts.js";

/** Ends that come after the provider was paid. */
const PAID_AND_LOST = ["callback_expired", "retry_expired", "retry_exhausted", "rejected"];
const HOURS_LOW = 4;

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

export function Money({ lane }) {
  const { balance, spent, per_delivery: each, hours_left: hours } = lane.credits ?? {};
  const low = hours != null && hours < HOURS_LOW;
  const rows = [
    [say("panel.money.hours"), hours == null ? NOT_KNOWN : say("panel.money.hours_value", { hours: money(hours) }), low],
    [say("panel.money.spent"), money(spent), false],
    [say("panel.money.per_delivery"), money(each), false],
    [say("panel.money.wasted"), money(wasted(lane)), false],
    [say("panel.money.today"), count(lane.upstream?.today), false],
  ];
  return html`<${Section} name="money" title=${say("panel.money")}>
    <p class="speed">${money(balance)}</p>
    <p class="sub">${say("panel.money.balance")}</p>
    <ul class="rows">${rows.map(([name, value, bad]) => html`<li key=${name}><span>${name}</span><b class=${bad ? "bad" : ""}>${value}</b></li>`)}</ul>
  <//>`;
}
