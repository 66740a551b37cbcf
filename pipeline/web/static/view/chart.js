// One uPlot chart that follows a ring.
import { day, NOT_KNOWN, time } from "../core/format.js";
import { html, useEffect, useRef } from "../core/html.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 150;
const FONT = "11px system-ui, sans-serif";
const CURSOR = uPlot.sync("tidegate");

/** A colour by its name in the style sheet, as the present theme has it. */
function ink(name) {
  const probe = document.getElementById("ink") ?? document.body.appendChild(Object.assign(document.createElement("i"), { id: "ink" }));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  const [from, to] = [plot.scales.x.min, plot.scales.x.max];
  ctx.save();
  for (const mark of marks.filter((each) => each.to >= from && each.from <= to)) {
    const left = plot.valToPos(Math.max(mark.from, from), "x", true);
    const width = Math.max(devicePixelRatio, plot.valToPos(Math.min(mark.to, to), "x", true) - left);
    ctx.fillStyle = ink(mark.tone);
    ctx.globalAlpha = mark.from === mark.to ? 0.6 : 0.12;
    ctx.fillRect(left, bbox.top, width, bbox.height);
    ctx.globalAlpha = 0.9;
    ctx.fillRect(left, bbox.top, width, 3 * devicePixelRatio);
  }
  ctx.restore();
}

function axes() {
  const common = { stroke: () => ink("muted"), font: FONT, ticks: { show: false }, grid: { stroke: () => ink("line"), width: 1 } };
  const clock = (plot, at) => {
    const long = plot.scales.x.max - plot.scales.x.min > 7200;
    return at.map((each) => (long && new Date(each * 1000).getHours() === 0 ? day(each) : time(each).slice(0, 5)));
  };
  return [
    { ...common, size: 24, space: 62, values: clock },
    { ...common, size: 46, values: (_, at) => at.map((value) => (value >= 1000 ? `${value / 1000}k` : String(+value.toFixed(2)))) },
  ];
}

/** @param {{title: string, lines: {column: string, ink: string, label: () => string}[], digits: number, ring: any, now: number, marks: any[]}} props */
export function Chart({ title, lines, digits, ring, now, marks }) {
  const box = useRef(null);
  const legend = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  latest.current = { ring, now, marks };

  useEffect(() => {
    const label = (made) => {
      const at = made.cursor.idx ?? made.data[0].length - 1;
      lines.forEach((_, line) => { legend.current.children[line].lastChild.textContent = made.data[line + 1][at]?.toFixed(digits) ?? NOT_KNOWN; });
    };
    const made = new uPlot({
      width: box.current.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: CURSOR.key }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { range: () => [latest.current.now - latest.current.ring.span, latest.current.now] },
        y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.1] },
      },
      axes: axes(),
      series: [{}, ...lines.map((line) => ({ stroke: () => ink(line.ink), width: 1.5, points: { show: false } }))],
      hooks: { drawClear: [(drawn) => drawMarks(drawn, latest.current.marks)], setCursor: [label], setData: [label] },
    }, [[], ...lines.map(() => [])], box.current);
    plot.current = made;
    const fit = new ResizeObserver(() => made.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    fit.observe(box.current);
    return () => { fit.disconnect(); made.destroy(); };
  }, []);

  useEffect(() => plot.current.setData([ring.data.t, ...lines.map((line) => ring.data[line.column])]));

  return html`<figure class="plot">
    <figcaption><span>${title}</span>
      <span class="legend" ref=${legend}>${lines.map((line) => html`<span key=${line.column} class="key">
        <i class="swatch" style=${{ "--tone": `var(--${line.ink})` }}></i>${line.label()} <b></b></span>`)}</span></figcaption>
    <div ref=${box} role="img" aria-label=${title}></div>
  </figure>`;
}
