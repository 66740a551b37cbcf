// The bare loop with undici's request(): the leanest client that Node has.
import { callbackBody, callbackUrl, inFlight, installed, pullUrl, pullers, queryBody, queryUrl, run } from "./loop.mjs";

const { Agent, request } = installed("undici");
const dispatcher = new Agent({ connections: inFlight + pullers, pipelining: 1 });

async function post(url, token, body) {
  const answer = await request(url, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  return answer.body.json();
}

run({
  pull: async () => (await request(pullUrl, { dispatcher })).body.json(),
  query: (ticket) => post(queryUrl, "bench", queryBody(ticket)),
  callback: (ticket, answer) => post(callbackUrl, ticket.token, callbackBody(ticket, answer)),
});
