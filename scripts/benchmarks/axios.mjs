// The bare loop with axios and its usual settings: keep-alive agents, JSON in and out by axios itself.
import http from "node:http";
import https from "node:https";
import { callbackBody, callbackUrl, installed, pullUrl, queryBody, queryUrl, run } from "./loop.mjs";

const axios = installed("axios");
const client = axios.create({
  httpAgent: new http.Agent({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 1024 }),
  httpsAgent: new https.Agent({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 1024 }),
  proxy: false,
});

function bearer(token) {
  return { headers: { Authorization: `Bearer ${token}` } };
}

run({
  pull: async () => (await client.get(pullUrl)).data,
  query: async (ticket) => (await client.post(queryUrl, queryBody(ticket), bearer("bench"))).data,
  callback: async (ticket, answer) =>
    (await client.post(callbackUrl, callbackBody(ticket, answer), bearer(ticket.token))).data,
});
