// The WebSocket: opened, watched, opened again with back-off; commands and their acks.
import { ask, token } from "./session.js";

const REFUSED = 4401;
const WAIT_MIN = 500;
const WAIT_MAX = 10_000;
const ACK_TIMEOUT = 8_000;
/** A network that swallows packets says neither yes nor no, for minutes. */
const ASK_TIMEOUT = 5_000;
/** A line that says nothing for so long is dead, whatever TCP believes: statistics come every second. */
const SILENCE_MAX = 10_000;

export class Connection {
  /** @param {(type: string, data: any) => void} tell every message, and "connection" when our state changes */
  constructor(tell) {
    this.tell = tell;
    this.socket = null;
    this.wait = WAIT_MIN;
    this.timer = 0;
    this.heard = 0;
    this.commands = 0;
    /** @type {Map<number, (outcome: {ok: boolean, error?: {message: string}}) => void>} */
    this.unanswered = new Map();
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.#hurry());
  }

  async start() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.#say("connecting");
    try {
      // A WebSocket cannot say 401, and without a first message it would wait.
      if ((await ask("/api/status", AbortSignal.timeout(ASK_TIMEOUT))).status === 401) return this.#refused();
    } catch {
      return this.#later();
    }
    this.#open();
  }

  /** @param {string} value */
  useToken(value) {
    token.set(value);
    this.start();
  }

  /** @returns {Promise<{ok: boolean, error?: {message: string}}>} */
  command(command, fields) {
    if (this.socket?.readyState !== WebSocket.OPEN) return Promise.resolve({ ok: false });
    const id = ++this.commands;
    this.socket.send(JSON.stringify({ type: "command", command, id, ...fields }));
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#answer(id, { ok: false }), ACK_TIMEOUT);
      this.unanswered.set(id, (outcome) => { clearTimeout(timer); resolve(outcome); });
    });
  }

  /** Every second: has the line gone dead? */
  check() {
    if (this.socket && Date.now() - this.heard > SILENCE_MAX) this.#lost(this.socket, 0);
  }

  #open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/ws`);
    this.socket = socket;
    this.heard = Date.now();
    socket.onopen = () => {
      const value = token.get();
      if (value) socket.send(JSON.stringify({ type: "auth", token: value }));
    };
    socket.onmessage = (message) => this.#receive(JSON.parse(message.data));
    socket.onclose = (closed) => this.#lost(socket, closed.code);
  }

  #receive({ type, data }) {
    this.heard = Date.now();
    if (type === "ack") return this.#answer(data.id, data);
    if (type === "hello") {
      this.wait = WAIT_MIN;
      this.#say("live");
    }
    this.tell(type, data);
  }

  #answer(id, outcome) {
    this.unanswered.get(id)?.(outcome);
    this.unanswered.delete(id);
  }

  #lost(socket, code) {
    if (socket !== this.socket) return;
    this.socket = null;
    socket.onmessage = socket.onclose = null;
    socket.close();
    for (const id of [...this.unanswered.keys()]) this.#answer(id, { ok: false });
    if (code === REFUSED) this.#refused();
    else this.#later();
  }

  #refused() {
    const wrong = token.get() !== null;
    token.forget();
    this.#say("token", { wrong });
  }

  #later() {
    const wait = this.wait * (0.5 + Math.random());
    this.wait = Math.min(this.wait * 2, WAIT_MAX);
    this.timer = setTimeout(() => this.start(), wait);
    this.#say("waiting", { until: Date.now() + wait });
  }

  #hurry() {
    if (this.timer) this.start();
  }

  #say(state, more = {}) {
    this.tell("connection", { state, ...more });
  }
}
