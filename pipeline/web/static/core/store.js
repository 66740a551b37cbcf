// All that the page knows. Messages change it; views only read it. Every list has a limit.
import { Series, sampleOf, samplesOf } from "./series.js";
import { nameOf, say } from "./texts.js";
import { SEVERITY, TONES } from "./holds.js";
import { toneOfLane } from "./verdict.js";
import { ask } from "./session.js";

/** As many as the daemon itself remembers. */
const EVENTS_MAX = 1000;
const STEPS_MAX = 40;
const STALE_AFTER = 3_000;
const NOTICE_FOR = 6_000;

export class Store {
  constructor() {
    this.onChange = () => {};
    this.connection = { state: "connecting" };
    /** @type {any} the latest status, as GET /api/status gives it */
    this.status = null;
    this.receivedAt = 0;
    /** Connections so far: before each but the first there was a time that this page has not seen. */
    this.greetings = 0;
    this.chosen = "";
    /** @type {any[]} newest first */
    this.events = [];
    /** @type {Record<string, Record<string, any[]>>} lane, stage: newest first */
    this.steps = {};
    /** @type {Record<string, Series>} */
    this.series = {};
    /** @type {{text: string, bad: boolean} | null} */
    this.notice = null;
  }

  receive(type, data) {
    const handlers = {
      connection: () => { this.connection = data; },
      hello: () => this.#hello(data),
      stats: () => this.#stats(data),
      event: () => { this.events = [data, ...this.events].slice(0, EVENTS_MAX); },
      ticket: () => this.#steps(data),
    };
    handlers[type]?.();
    this.onChange();
  }

  /** `hello` brings only the latest events; a day of marks needs what came before them. */
  async rememberMore() {
    const answer = await ask(`/api/events?limit=${EVENTS_MAX}`);
    if (!answer.ok) return;
    const oldest = this.events.at(-1)?.at ?? Infinity;
    const { events } = await answer.json();
    this.events = [...this.events, ...events.filter((event) => event.at < oldest)].slice(0, EVENTS_MAX);
    this.onChange();
  }

  /** The lane that is looked at. */
  get lane() {
    const names = Object.keys(this.status?.lanes ?? {});
    return names.includes(this.chosen) ? this.chosen : (names[0] ?? "");
  }

  choose(lane) {
    this.chosen = lane;
    this.onChange();
  }

  /** Seconds by the server's clock, moved on by ours since it last spoke; stands still when it is silent. */
  get now() {
    return this.status.now + (this.stale ? 0 : (Date.now() - this.receivedAt) / 1000);
  }

  get stale() {
    return Date.now() - this.receivedAt > STALE_AFTER;
  }

  /** @param {string} text @param {boolean} bad */
  notify(text, bad) {
    const notice = { text, bad };
    this.notice = notice;
    setTimeout(() => {
      if (this.notice === notice) this.notice = null;
      this.onChange();
    }, NOTICE_FOR);
    this.onChange();
  }

  /** The tab's title tells also when nobody looks at the page. */
  title() {
    if (!this.status) return "Tidegate";
    if (this.stale || this.connection.state !== "live") return `✕ ${say("panel.no_data")} · Tidegate`;
    const worst = this.#worst();
    if (!worst) return "Tidegate";
    const mark = { ok: "●", bad: "■" }[this.toneOf(worst)] ?? "◐";
    return `${mark} ${nameOf("state", this.status.lanes[worst].state)} · Tidegate`;
  }

  toneOf(lane) {
    return toneOfLane(this.status.lanes[lane], this.series[lane].minute);
  }

  /** The name of the lane that needs somebody most; the first of equals. */
  #worst() {
    const { lanes } = this.status;
    const rank = (name) => TONES.indexOf(this.toneOf(name)) * SEVERITY.length + SEVERITY.indexOf(lanes[name].state);
    return Object.keys(lanes).sort((a, b) => rank(a) - rank(b))[0] ?? "";
  }

  #hello({ status, events, steps, history }) {
    this.greetings += 1;
    const oldest = events.at(-1)?.at ?? Infinity;
    this.events = [...events, ...this.events.filter((event) => event.at < oldest)].slice(0, EVENTS_MAX);
    for (const name of Object.keys(status.lanes)) {
      const series = (this.series[name] ??= new Series());
      const missed = samplesOf(history, name).filter((sample) => sample.t > series.now.t);
      for (const sample of missed) series.add(sample);
    }
    this.steps = {};
    this.#steps(steps);
    this.#stats(status);
    this.chosen ||= this.#worst();
  }

  #stats(status) {
    this.status = status;
    this.receivedAt = Date.now();
    for (const [name, lane] of Object.entries(status.lanes)) {
      (this.series[name] ??= new Series()).add(sampleOf(status.now, lane));
    }
  }

  /** @param {any[]} steps oldest first */
  #steps(steps) {
    for (const step of steps) {
      const stages = (this.steps[step.lane] ??= {});
      stages[step.stage] = [step, ...(stages[step.stage] ?? [])].slice(0, STEPS_MAX);
    }
  }
}
