// Draws one chart on a canvas. A library would weigh a third of what the whole page may.
import { day, time } from "../core/format.js";
import { numberTicks, timeTicks } from "../core/scale.js";

const LEFT = 44;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 20;
const FONT = "11px system-ui, sans-serif";
const TICK_WIDTH = 72;
const TICK_HEIGHT = 34;
const LONG = 7200;
const DOT = 4;

/** @typedef {{column: string, ink: string, fill?: boolean}} Line */
/** @typedef {{data: Record<string, (number|null)[]>, lines: Line[], from: number, to: number, floor: number,
 *  levels: {at: number, tone: string}[], marks: import("../core/marks.js").Mark[], cursor: number | null}} Picture */

const inks = new Map();
let page = "";

/** A colour by its name in the style sheet, as the present theme has it. */
function ink(name) {
  if (!inks.has(name)) {
    const probe = document.getElementById("ink") ?? document.body.appendChild(Object.assign(document.createElement("i"), { id: "ink" }));
    probe.style.color = `var(--${name})`;
    inks.set(name, getComputedStyle(probe).color);
  }
  return inks.get(name);
}

function forgetOtherTheme() {
  const now = getComputedStyle(document.body).backgroundColor;
  if (now !== page) inks.clear();
  page = now;
}

/** As many dots as the screen has, and one unit is one CSS pixel. */
function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const dots = devicePixelRatio;
  if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(height * dots);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

/** The time under a place on the canvas; null beside the plot. */
export function timeAt(canvas, x, from, to) {
  const share = (x - LEFT) / (canvas.clientWidth - LEFT - RIGHT);
  return share < 0 || share > 1 ? null : from + share * (to - from);
}

/** @param {HTMLCanvasElement} canvas @param {Picture} picture */
export function draw(canvas, picture) {
  forgetOtherTheme();
  const { pen, width, height } = fitted(canvas);
  const { data, lines, from, to, floor } = picture;
  const first = data.t.findIndex((t) => t >= from);
  const seen = first < 0 ? [] : lines.flatMap((line) => data[line.column].slice(first));
  const high = Math.max(floor, ...seen.map((value) => value ?? 0)) * 1.08;
  const [right, bottom] = [width - RIGHT, height - BOTTOM];
  const view = {
    pen, right, bottom, high,
    x: (t) => LEFT + ((Math.min(Math.max(t, from), to) - from) / (to - from)) * (right - LEFT),
    y: (value) => bottom - (value / high) * (bottom - TOP),
  };
  if (right - LEFT < TICK_WIDTH) return;
  drawMarks(view, picture);
  drawAxes(view, picture);
  drawLevels(view, picture);
  for (const line of lines) drawLine(view, picture, line);
  if (picture.cursor != null) drawCursor(view, picture);
}

function drawMarks({ pen, x, bottom }, { marks, from, to }) {
  for (const mark of marks.filter((each) => each.to >= from && each.from <= to)) {
    const left = x(mark.from);
    const wide = Math.max(1.5, x(mark.to) - left);
    const moment = mark.from === mark.to;
    pen.fillStyle = ink(moment ? mark.tone : `${mark.tone}-soft`);
    pen.fillRect(left, TOP, wide, bottom - TOP);
    pen.fillStyle = ink(mark.tone);
    pen.fillRect(left - (moment ? 2 : 0), TOP - 4, wide + (moment ? 4 : 0), 4);
  }
}

/** The axis has room for about five characters. */
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

function drawAxes({ pen, x, y, right, bottom, high }, { from, to }) {
  pen.font = FONT;
  pen.lineWidth = 1;
  pen.strokeStyle = ink("line");
  pen.fillStyle = ink("muted");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of numberTicks(high, Math.max(2, (bottom - TOP) / TICK_HEIGHT))) {
    const at = Math.round(y(value)) + 0.5;
    stroke(pen, [[LEFT, at], [right, at]]);
    pen.fillText(short.format(value), LEFT - 8, at);
  }
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  for (const t of timeTicks(from, to, (right - LEFT) / TICK_WIDTH)) {
    const midnight = to - from > LONG && time(t).startsWith("00:00");
    pen.fillText(midnight ? day(t) : time(t).slice(0, 5), Math.min(x(t), right - 14), bottom + 15);
  }
}

function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([left, top], at) => (at ? pen.lineTo(left, top) : pen.moveTo(left, top)));
  pen.stroke();
}

function drawLevels({ pen, y, right, high }, { levels }) {
  pen.setLineDash([4, 4]);
  for (const { at, tone } of levels.filter((level) => level.at <= high)) {
    pen.strokeStyle = ink(tone);
    stroke(pen, [[LEFT, Math.round(y(at)) + 0.5], [right, Math.round(y(at)) + 0.5]]);
  }
  pen.setLineDash([]);
}

/** Unbroken pieces of a line: where nothing is known there is no line. */
function piecesOf({ x, y }, { data, from }, column) {
  const pieces = [[]];
  data.t.forEach((t, at) => {
    const value = data[column][at];
    if (value == null) pieces.push([]);
    else if (t >= from) pieces.at(-1).push([x(t), y(value)]);
  });
  return pieces.filter((piece) => piece.length);
}

function drawLine(view, picture, { column, ink: name, fill }) {
  const { pen, bottom } = view;
  pen.strokeStyle = ink(name);
  pen.lineWidth = 1.6;
  pen.lineJoin = pen.lineCap = "round";
  for (const piece of piecesOf(view, picture, column)) {
    if (fill) {
      pen.fillStyle = ink(name);
      pen.globalAlpha = 0.12;
      pen.beginPath();
      pen.moveTo(piece[0][0], bottom);
      for (const [left, top] of piece) pen.lineTo(left, top);
      pen.lineTo(piece.at(-1)[0], bottom);
      pen.fill();
      pen.globalAlpha = 1;
    }
    if (piece.length > 1) stroke(pen, piece);
    else drawDot(pen, piece[0], name);
  }
}

/** A canvas draws no line from a point to itself. */
function drawDot(pen, [left, top], name) {
  pen.fillStyle = ink(name);
  pen.fillRect(left - DOT / 2, top - DOT / 2, DOT, DOT);
}

function drawCursor({ pen, x, bottom }, { cursor }) {
  pen.strokeStyle = ink("text");
  pen.lineWidth = 1;
  pen.setLineDash([2, 3]);
  const at = Math.round(x(cursor)) + 0.5;
  stroke(pen, [[at, TOP], [at, bottom]]);
  pen.setLineDash([]);
}
