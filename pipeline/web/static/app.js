// The panel: everything is made here and handed to the views.
import { Connection } from "./core/connection.js";
import { loadTexts, say } from "./core/texts.js";
import { Prefs } from "./core/prefs.js";
import { Store } from "./core/store.js";
import { everySecond } from "./core/clock.js";
import { html, render } from "./core/html.js";
import { App } from "./view/app.js";

const TEXTS_AGAIN = 1000;
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
  try {
    await loadTexts(lang);
  } catch {
    return store.notify(say("panel.no_answer"), true);
  }
  prefs.setLang(lang);
  drawSoon();
}

/** A page has nothing to say without its texts, and a daemon that is just starting has them soon. */
async function textsCome() {
  for (;;) {
    try {
      return await loadTexts(prefs.lang);
    } catch (error) {
      root.textContent = String(error);
      await new Promise((resolve) => setTimeout(resolve, TEXTS_AGAIN));
    }
  }
}

store.onChange = drawSoon;
prefs.onChange = drawSoon;
await textsCome();
root.textContent = "";
try {
  draw();
  everySecond(() => { connection.check(); drawSoon(); });
  connection.start();
} catch (error) {
  root.textContent = say("panel.failed", { why: String(error) });
}
