// One lane over time: counters become rates, and every range has its own ring.
import { Ring } from "./ring.js";

/** Seconds a point, points, and the silence that is a gap: the journal tells in steps of 60 and 300 s. */
export const RANGES = { "5m": [1, 300, 5], "1h": [20, 180, 130], "24h": [300, 288, 700] };
/** Rates are taken over so many seconds: one second of a busy lane jumps too much to be read. */
const RATE_OVER = 5;
const COUNTED = ["pulled", "queried", "delivered", "dropped"];
/** What becomes of tickets is judged over a minute. */
const MINUTE = 60;
const JUDGED = [...COUNTED, "rejected", "pull_expired", "malformed"];

/** @typedef {{t: number, pulled: number, queried: number, delivered: number, dropped: number,
 *  rejected: number, pull_expired: number, malformed: number, queue: number, callbacks: number, drop: number} & Record<"p50"|"p95"|"p99", number|null|undefined>} Sample */

const counted = (from) => Object.fromEntries(JUDGED.map((name) => [name, from[name] ?? 0]));
const total = (counts) => Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);

/** @returns {Sample} */
export function sampleOf(now, lane) {
  const { counters, stages, queue } = lane;
  return {
    t: now,
    ...counted({ ...counters, dropped: total(lane.dropped) }),
    queue: queue.pending + queue.delayed,
    callbacks: lane.callbacks.pending + lane.callbacks.retrying,
    drop: lane.drop_rate.rate * 100,
    ...stages.query.latency,
  };
}

/** The last minutes, as `hello` tells them. @returns {Sample[]} */
export function samplesOf({ fields, points }, lane) {
  return points.filter((point) => lane in point.lanes).map((point) => {
    const row = Object.fromEntries(fields.map((name, at) => [name, point.lanes[lane][at]]));
    return {
      t: point.now,
      ...counted(row),
      queue: row.queued,
      callbacks: row.callbacks_pending + row.callbacks_retrying,
      drop: row.drop_rate * 100,
      p50: row.query_p50,
      p95: row.query_p95,
      p99: row.query_p99,
    };
  });
}

/** Longer ranges, as /api/history tells them; the last step may still be under way. @returns {import("./ring.js").Row[]} */
export function rowsOf({ step, minutes }, lane, now) {
  return minutes.map(({ at, counters, gauges, latencies }) => {
    const rate = (name) => (counters[name] ?? 0) / Math.min(step, Math.max(1, now - at));
    return {
      t: at,
      pulled: rate("pulled"),
      queried: rate("queried"),
      delivered: rate("delivered"),
      dropped: Object.keys(lane.dropped).reduce((sum, name) => sum + rate(name), 0),
      queue: gauges.depth,
      callbacks: gauges.backlog,
      drop: gauges.drop_rate * 100,
      p50: latencies.query_p50,
      p95: latencies.query_p95,
      p99: latencies.query_p99,
    };
  });
}

class Rates {
  constructor() {
    /** @type {Sample[]} */
    this.recent = [];
  }

  /** @param {Sample} sample */
  row(sample) {
    const last = this.recent.at(-1);
    // A daemon that was started anew counts from nought.
    if (last && (sample.pulled < last.pulled || sample.t - last.t > 3 * RATE_OVER)) this.recent = [];
    this.recent.push(sample);
    while (this.recent.length > 2 && sample.t - this.recent[0].t > RATE_OVER) this.recent.shift();
    const [first] = this.recent;
    const seconds = sample.t - first.t;
    const rate = (name) => (seconds > 0 ? Math.max(0, sample[name] - first[name]) / seconds : null);
    const rates = Object.fromEntries(COUNTED.map((name) => [name, rate(name)]));
    return { ...sample, ...rates };
  }
}

/** What was counted in the last minute: one sample a second, and the first from just before it. */
class Minute {
  constructor() {
    /** @type {Sample[]} */
    this.samples = [];
  }

  /** @param {Sample} sample */
  add(sample) {
    const last = this.samples.at(-1);
    if (last && (sample.pulled < last.pulled || sample.t - last.t > MINUTE)) this.samples = [];
    if (!this.samples.length || sample.t - last.t >= 1) this.samples.push(sample);
    while (this.samples.length > 1 && this.samples[1].t <= sample.t - MINUTE) this.samples.shift();
    const [first] = this.samples;
    const counts = Object.fromEntries(JUDGED.map((name) => [name, sample[name] - first[name]]));
    return { seconds: sample.t - first.t, ...counts };
  }
}

export class Series {
  constructor() {
    this.minutes = new Minute();
    /** @type {Record<string, number>} what was counted in the last `seconds`, at most a minute */
    this.minute = {};
    this.rings = Object.fromEntries(Object.entries(RANGES).map(([name, shape]) => [name, new Ring(...shape)]));
    this.rates = new Rates();
    this.now = { t: 0 };
  }

  /** @param {Sample} sample */
  add(sample) {
    if (sample.t < this.now.t) Object.assign(this, new Series()); // the server's clock was set back
    this.now = this.rates.row(sample);
    this.minute = this.minutes.add(sample);
    for (const ring of Object.values(this.rings)) ring.add(this.now);
  }
}
