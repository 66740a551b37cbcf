// One chart with its legend; the numbers are those under the cursor, or the latest.
import { exact } from "../core/format.js";
import { html, useEffect, useLayoutEffect, useRef } from "../core/html.js";
import { placeOf } from "../core/scale.js";
import { draw, timeAt } from "./plot.js";

/** @param {{title: string, lines: any[], digits: number, floor: number, levels: any[], ring: any, now: number, marks: any[],
 *  cursor: number | null, onCursor: (at: number | null) => void}} props */
export function Chart({ title, lines, digits, floor, levels, ring, now, marks, cursor, onCursor }) {
  const canvas = useRef(null);
  const redraw = useRef(null);
  const [from, to] = [now - ring.span, now];
  redraw.current = () => draw(canvas.current, { data: ring.data, lines, from, to, floor, levels, marks, cursor });
  useLayoutEffect(() => redraw.current());
  useEffect(() => {
    const fit = new ResizeObserver(() => redraw.current());
    fit.observe(canvas.current);
    return () => fit.disconnect();
  }, []);

  const point = (event) => onCursor(timeAt(canvas.current, event.offsetX, from, to));
  const at = cursor == null ? ring.data.t.length - 1 : placeOf(ring.data.t, cursor);
  const value = (column) => exact(ring.data[column][at], digits);
  return html`<figure class="plot">
    <figcaption><b>${title}</b>
      <span class="legend">${lines.map((line) => html`<span key=${line.column} class="key">
        <i class="swatch" style=${{ "--tone": `var(--${line.ink})` }}></i>${line.label()} <b>${value(line.column)}</b></span>`)}</span></figcaption>
    <canvas ref=${canvas} role="img" aria-label=${title} onPointerMove=${point} onPointerDown=${point} onPointerLeave=${() => onCursor(null)}></canvas>
  </figure>`;
}
