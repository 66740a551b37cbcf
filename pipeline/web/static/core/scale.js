// Where an axis has its ticks: round numbers, round times.

const MINUTE = 60;
const HOUR = 3600;
const TIME_STEPS = [15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR,
  4 * HOUR, 6 * HOUR, 12 * HOUR];

function upTo(most, step, first = 0) {
  return Array.from({ length: Math.max(0, Math.floor((most - first) / step + 1e-9) + 1) }, (_, at) => first + at * step);
}

/** From nought, in steps of 1, 2 or 5. @param {number} high @param {number} wanted about so many */
export function numberTicks(high, wanted) {
  const raw = high / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * (1 - 1e-9));
  return upTo(high, step);
}

/** Round by the reader's clock, which may be half an hour off from the world's. */
export function timeTicks(from, to, most) {
  const step = TIME_STEPS.find((each) => (to - from) / each <= most) ?? TIME_STEPS.at(-1);
  const offset = new Date(to * 1000).getTimezoneOffset() * MINUTE;
  return upTo(to, step, Math.ceil((from - offset) / step) * step + offset);
}

/** The place of the last value not above `wanted`, in a rising column; -1 where there is none. */
export function placeOf(column, wanted) {
  let [low, high] = [0, column.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
