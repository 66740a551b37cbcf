// What each hold means and what to do: the README's runbook in short, under the same anchors.
import { holdsOf } from "../core/holds.js";
import { html, useEffect, useState } from "../core/html.js";
import { nameOf, say } from "../core/texts.js";
import { Section } from "./parts.js";

const REASONS = ["manual", "backpressure", "callback_backlog", "credit", "auth", "drop_rate", "breaker", "success_limit",
  "stopped", "draining", "journal"];

/** The reason whose link was followed last. */
function useAnchor() {
  const read = () => location.hash.replace("#hold-", "");
  const [anchor, set] = useState(read());
  useEffect(() => {
    const follow = () => set(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return anchor;
}

export function Runbook({ lane }) {
  const anchor = useAnchor();
  const held = holdsOf(lane).map((hold) => hold.reason);
  return html`<${Section} name="runbook" title=${say("panel.runbook")}>
    <div class="entries">${REASONS.map((reason) => html`<details key=${reason} id=${`hold-${reason}`}
        class=${`entry ${held.includes(reason) ? "held" : ""}`} open=${held.includes(reason) || reason === anchor}>
      <summary>${nameOf("reason", reason)}</summary>
      <p>${say(`runbook.${reason}.means`)}</p>
      <p><span class="muted">${say("panel.runbook.itself")}: </span>${say(`runbook.${reason}.itself`)}</p>
      <p><span class="muted">${say("panel.runbook.type")}: </span><b>${say(`runbook.${reason}.type`)}</b></p>
    </details>`)}</div>
  <//>`;
}
