// The bare loop that axios.mjs and undici.mjs share: pull as needed, then query and call back, no control.
import { createRequire } from "node:module";

export const base = process.argv[2];
export const inFlight = Number(process.argv[3]);
export const pullers = Math.max(2, Math.ceil(inFlight / 50));
export const secure = base.startsWith("https:");
// The packages live in a cache directory, where an import by name would not look.
export const installed = createRequire(`${process.env.BENCH_MODULES}/`);

export const pullUrl = `${base}/api/get/tasks?phone=13800000000&limit=50`;
export const queryUrl = `${base}/request/shopee/pdp`;
export const callbackUrl = `${base}/api/task/submit/v2`;

export function queryBody(ticket) {
  return { country: ticket.country, shop_id: ticket.shop_id, item_id: ticket.good_id, language: "zh-Hant" };
}

export function pageUrl(ticket) {
  return (
    `https://shopee.${ticket.country}/api/v4/pdp/get_pc?display_model_id=0&item_id=${ticket.good_id}` +
    `&model_selection_logic=3&shop_id=${ticket.shop_id}&tz_offset_in_minutes=480&detail_level=0`
  );
}

export function callbackBody(ticket, answer) {
  return {
    appVersion: "vv2",
    url: pageUrl(ticket),
    result: JSON.stringify(answer.response ?? answer),
  };
}

const stock = [];
const hungry = [];

function supply(tickets) {
  for (const task of tickets) {
    const waiting = hungry.shift();
    if (waiting) waiting(task.data);
    else stock.push(task.data);
  }
}

function take() {
  return stock.length ? stock.shift() : new Promise((resolve) => hungry.push(resolve));
}

async function keepPulling(pull) {
  for (;;) {
    if (stock.length >= inFlight * 2) await new Promise((resolve) => setTimeout(resolve, 5));
    else supply((await pull()).tasks);
  }
}

async function work(query, callback) {
  for (;;) {
    const ticket = await take();
    const answer = await query(ticket);
    if (!answer._success || !answer.response?.data?.item) throw new Error("not an answer");
    const receipt = await callback(ticket, answer);
    if (receipt.code !== 200) throw new Error("not delivered");
  }
}

export function run({ pull, query, callback }) {
  for (let n = 0; n < pullers; n++) keepPulling(pull);
  for (let n = 0; n < inFlight; n++) work(query, callback);
}
