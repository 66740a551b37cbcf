// The panel: everything is made here and handed to the views.
import { Connection } from "./core/connection.js";
import { loadTexts, say } from "./core/texts.js";
import { Prefs } from "./core/prefs.js";
import { Store } from "./core/store.js";
import { everySecond } from "./core/clock.js";
import { html, render } from "./core/html.js";
import { App } from "./view/app.js";

const root = document.getElementById("panel");
const prefs = new Prefs();
const store = new Store();
const connection = new Connection((type, data) => store.receive(type, data));

function draw() {
  const view = { store, connection, prefs, setLang };
  render(html`<${App} ...${view} />`, root);
  document.title = store.title();
}

let drawing = 0;
/** Many messages, one picture: at most one a frame, and none while nobody looks. */
function drawSoon() {
  if (document.hidden) document.title = store.title();
  else drawing ||= requestAnimationFrame(() => { drawing = 0; draw(); });
}

/** @param {string} lang */
async function setLang(lang) {
  await loadTexts(lang);
  prefs.setLang(lang);
  drawSoon();
}

store.onChange = drawSoon;
prefs.onChange = drawSoon;
everySecond(() => { connection.check(); drawSoon(); });
try {
  await loadTexts(prefs.lang);
  draw();
  connection.start();
} catch (error) {
  root.textContent = say("panel.failed", { why: String(error) });
}
