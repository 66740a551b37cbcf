// The token is asked once and kept for the session.
import { html, useLayoutEffect, useRef, useState } from "../core/html.js";
import { say } from "../core/texts.js";

/** What a header can carry. */
const SENDABLE = /^[\x20-\x7e]+$/;

export function Login({ connection, wrong }) {
  const field = useRef(null);
  const [refused, refuse] = useState(wrong);
  useLayoutEffect(() => field.current.focus(), []);
  function submit(event) {
    event.preventDefault();
    const token = field.current.value.trim();
    if (SENDABLE.test(token)) return connection.useToken(token);
    refuse(true);
    field.current.select();
  }
  return html`<form class="card login" onSubmit=${submit}>
    <h2>${say("panel.token.title")}</h2>
    <label>${say("panel.token.label")}
      <input name="token" type="password" autocomplete="off" required ref=${field} /></label>
    ${refused && html`<p class="bad" role="alert">${say("panel.token.wrong")}</p>`}
    <p class="muted">${say("panel.token.kept")}</p>
    <button class="big resume">${say("panel.token.open")}</button>
  </form>`;
}
