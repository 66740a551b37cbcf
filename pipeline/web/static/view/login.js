// The token is asked once and kept for the session.
import { html } from "../core/html.js";
import { say } from "../core/texts.js";

export function Login({ connection, wrong }) {
  function submit(event) {
    event.preventDefault();
    connection.useToken(new FormData(event.target).get("token"));
  }
  return html`<form class="card login" onSubmit=${submit}>
    <h2>${say("panel.token.title")}</h2>
    <label>${say("panel.token.label")}
      <input name="token" type="password" autocomplete="off" required autofocus /></label>
    ${wrong && html`<p class="bad" role="alert">${say("panel.token.wrong")}</p>`}
    <p class="muted">${say("panel.token.kept")}</p>
    <button class="big resume">${say("panel.token.open")}</button>
  </form>`;
}
