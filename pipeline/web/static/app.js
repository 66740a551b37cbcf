"use strict";
// Everything the daemon says is set as text, never as markup: a ticket's key is written by strangers.

const TOKEN = "tidegate-token";
const EVENTS_MAX = 100;
const REFUSED = 4401;

const at = (id) => document.getElementById(id);
let socket = null;
let retryDelay = 1000;
let commands = 0;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function askForToken(why) {
  sessionStorage.removeItem(TOKEN);
  at("connection").textContent = why;
  at("login").hidden = false;
  at("token").focus();
}

async function begin() {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  try {
    const answer = await fetch("/api/status", { headers });
    if (answer.status === 401) return askForToken(token ? "that token is not valid" : "a token is needed");
  } catch {
    return tryAgain();
  }
  at("login").hidden = true;
  connect(token);
}

function connect(token) {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(`${scheme}//${location.host}/ws`);
  socket.onopen = () => {
    if (token) socket.send(JSON.stringify({ type: "auth", token }));
  };
  socket.onmessage = (message) => receive(JSON.parse(message.data));
  socket.onclose = (closed) => {
    socket = null;
    disableButtons();
    if (closed.code === REFUSED) askForToken("that token is not valid");
    else tryAgain();
  };
}

function tryAgain() {
  at("connection").textContent = "not connected: what you see is old";
  setTimeout(begin, retryDelay * (0.5 + Math.random()));
  retryDelay = Math.min(retryDelay * 2, 10000);
}

function receive({ type, data }) {
  if (type === "hello") {
    retryDelay = 1000;
    at("events").replaceChildren();
    for (const event of data.events.slice().reverse()) showEvent(event);
    show(data.status);
  } else if (type === "stats") show(data);
  else if (type === "event") showEvent(data);
  else if (type === "ack") at("notice").textContent = data.ok ? "" : data.error.message;
}

function show(status) {
  const clock = new Date(status.now * 1000).toLocaleTimeString();
  at("connection").textContent = `live · ${clock} · version ${status.version}`;
  for (const [name, lane] of Object.entries(status.lanes)) showLane(name, lane);
}

function showLane(name, lane) {
  const card = at(`lane-${name}`) ?? newCard(name);
  const state = card.querySelector(".state");
  state.textContent = lane.state;
  state.className = `state state-${lane.state}`;
  for (const button of card.querySelectorAll("button")) button.disabled = false;
  card.querySelector(".holds").replaceChildren(...holdLines(lane.holds));
  card.querySelector(".numbers").replaceChildren(...numbers(lane));
}

function newCard(name) {
  const card = element("article");
  card.id = `lane-${name}`;
  const title = element("h2", name);
  title.append(
    element("span", "", "state"),
    commandButton("Pause", "stopPulling", name),
    commandButton("Resume", "startPulling", name),
  );
  card.append(title, element("ul", undefined, "holds"), element("dl", undefined, "numbers"));
  at("lanes").append(card);
  return card;
}

function commandButton(label, command, lane) {
  const button = element("button", label);
  button.type = "button";
  button.addEventListener("click", () => {
    commands += 1;
    socket?.send(JSON.stringify({ type: "command", command, lane, id: commands }));
  });
  return button;
}

function disableButtons() {
  for (const button of document.querySelectorAll("#lanes button")) button.disabled = true;
}

function holdLines(holds) {
  return Object.entries(holds).flatMap(([stage, list]) =>
    list.map((hold) => {
      const since = new Date(hold.since * 1000).toLocaleTimeString();
      return element("li", `${stage} held: ${hold.reason} since ${since} by ${hold.by}. ${hold.detail}`);
    }),
  );
}

function numbers(lane) {
  const pairs = [
    ["waiting", lane.queue.pending],
    ["delayed", lane.queue.delayed],
    ["in flight", lane.queue.in_flight],
    ["undelivered", lane.callbacks.pending],
    ["drop rate", `${(lane.drop_rate.rate * 100).toFixed(1)} %`],
    ...Object.entries(lane.counters).map(([name, count]) => [name.replaceAll("_", " "), count]),
    ["balanced", lane.conservation.balanced ? "yes" : "NO"],
  ];
  return pairs.map(([name, value]) => {
    const row = element("div", undefined, name === "balanced" && value === "NO" ? "unbalanced" : "");
    row.append(element("dt", name), element("dd", String(value)));
    return row;
  });
}

function showEvent(event) {
  const when = new Date(event.at * 1000).toLocaleTimeString();
  const where = [event.lane, event.stage].filter(Boolean).join("/");
  const detail = Object.entries(event.detail).map(([name, value]) => `${name}=${value}`).join(" ");
  at("events").prepend(element("li", `${when} ${where} ${event.kind} ${detail}`, event.level));
  while (at("events").children.length > EVENTS_MAX) at("events").lastChild.remove();
}

at("login").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value);
  at("token").value = "";
  begin();
});
begin();
