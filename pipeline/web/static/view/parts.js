// Small things that several sections are made of.
import { html } from "../core/html.js";

/** A titled box. @param {{name: string, title: string, aside?: any, children?: any}} props */
export function Section({ name, title, aside, children }) {
  return html`<section class=${`card ${name}`} aria-labelledby=${`${name}-title`}>
    <div class="card-head"><h2 id=${`${name}-title`}>${title}</h2>${aside}</div>
    ${children}
  </section>`;
}

const part = (value, most) => `${Math.min(100, Math.max(0, (value / most) * 100))}%`;

/** A bar with marks on its scale.
 * @param {{label: string, value: number, most: number, text: string, tone?: string, marks?: number[],
 *  markText?: (mark: number) => string}} props */
export function Meter({ label, value, most, text, tone = "plain", marks = [], markText }) {
  const at = Math.min(value, most);
  return html`<div class="meter" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${most}
      aria-valuenow=${at} aria-valuetext=${text}>
    <div class="track"><div class=${`fill ${tone}`} style=${{ width: part(value, most) }}></div>
      ${marks.map((mark) => html`<i key=${mark} style=${{ left: part(mark, most) }}></i>`)}</div>
    ${markText && html`<div class="scale" aria-hidden="true">
      ${marks.map((mark) => html`<span key=${mark} style=${{ left: part(mark, most) }}>${markText(mark)}</span>`)}
    </div>`}
  </div>`;
}

const MODE_TONES = { normal: "ok", degraded: "warn", severe: "warn", half_open: "warn", open: "bad" };
export const modeTone = (mode) => MODE_TONES[mode] ?? "plain";

/** One choice of a few, as a row of buttons.
 * @param {{label: string, options: [string, any][], value: string, onPick: (value: string) => void}} props */
export function Choice({ label, options, value, onPick }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([name, text]) => html`<button type="button" key=${name} aria-pressed=${String(name === value)}
      onClick=${() => onPick(name)}>${text}</button>`)}
  </div>`;
}
