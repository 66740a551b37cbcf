// The last so many points of a few columns, one point a step. Memory is flat by construction.
import { placeOf } from "./scale.js";

export const COLUMNS = ["pulled", "queried", "delivered", "dropped", "queue", "callbacks", "p50", "p95", "p99", "drop"];

/** @typedef {{t: number} & Record<string, number | null>} Row */

export class Ring {
  /** @param {number} step seconds a point @param {number} size points kept @param {number} gap no line over more */
  constructor(step, size, gap) {
    this.step = step;
    this.size = size;
    this.gap = gap;
    this.merged = 0;
    /** @type {Record<string, (number | null)[]>} */
    this.data = Object.fromEntries(["t", ...COLUMNS].map((name) => [name, []]));
  }

  get span() {
    return this.step * this.size;
  }

  /** @param {Row} row later than all before it; those of one step are averaged */
  add(row) {
    const slot = Math.floor(row.t / this.step) * this.step;
    const last = this.data.t.at(-1) ?? -Infinity;
    if (slot <= last) return this.#merge(row);
    if (Number.isFinite(last) && slot - last > this.gap) this.#push({ t: last + this.step });
    this.#push({ ...row, t: slot });
    this.merged = 1;
  }

  /** What somebody else remembers of the times when we were not there. @param {Row[]} rows oldest first */
  fill(rows) {
    const own = this.#rows().filter((row) => COLUMNS.some((name) => row[name] != null));
    const times = own.map((row) => row.t);
    // Within a step after a point of ours we were there ourselves.
    const missing = rows.filter(({ t }) => !(t - times[placeOf(times, t - 1)] <= this.step));
    for (const column of Object.values(this.data)) column.length = 0;
    for (const row of [...missing, ...own].sort((a, b) => a.t - b.t)) this.add(row);
  }

  #rows() {
    return this.data.t.map((t, at) => ({ t, ...Object.fromEntries(COLUMNS.map((name) => [name, this.data[name][at]])) }));
  }

  #push(row) {
    for (const [name, column] of Object.entries(this.data)) {
      column.push(row[name] ?? null);
      if (column.length > this.size) column.shift();
    }
  }

  #merge(row) {
    const at = this.data.t.length - 1;
    this.merged += 1;
    for (const name of COLUMNS) {
      const column = this.data[name];
      if (row[name] == null) continue;
      column[at] = column[at] == null ? row[name] : column[at] + (row[name] - column[at]) / this.merged;
    }
  }
}
