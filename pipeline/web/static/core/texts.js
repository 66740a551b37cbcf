// What the page says, from the same files as alerts and the command line.

/** @type {Record<string, string>} */
let templates = {};
/** @type {{pattern: RegExp, key: string}[]} the daemon's own sentences, and the key of their translation */
let sentences = [];

const escaped = (text) => text.replace(/[.*+?^$()[\]\\|]/g, "\\$&");

/** @param {string} lang */
export async function loadTexts(lang) {
  const answer = await fetch(`/static/texts/${lang}.json`);
  if (!answer.ok) throw new Error(`texts: ${answer.status}`);
  const groups = Object.entries(await answer.json());
  templates = Object.fromEntries(groups.flatMap(([group, words]) => Object.entries(words).map(([word, text]) => [`${group}.${word}`, text])));
  sentences = Object.entries(templates).filter(([key]) => key.startsWith("pattern.")).map(([key, text]) => ({
    pattern: new RegExp(`^${escaped(text).replace(/\{(\w+)\}/g, "(?<$1>.+)")}$`),
    key: key.replace("pattern", "detail"),
  }));
}

/** What the daemon says of a hold, in the reader's language; what has no translation, as it is. @param {string} text */
export function translated(text) {
  for (const { pattern, key } of sentences) {
    const found = pattern.exec(text);
    if (found) return say(key, found.groups);
  }
  return text;
}

/** @param {string} key @param {Record<string, unknown>} [values] */
export function say(key, values = {}) {
  return (templates[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/** What people call one of our words; a word without a text, as it is. */
export function nameOf(group, word) {
  return templates[`${group}.${word}`] ?? String(word);
}

/** @param {string[]} items */
export const listed = (items) => items.join(say("panel.comma"));

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return say("duration.seconds", { seconds: whole });
  const minutes = Math.floor(whole / 60);
  if (whole < 3600) return say("duration.minutes", { minutes, seconds: whole % 60 });
  return say("duration.hours", { hours: Math.floor(whole / 3600), minutes: minutes % 60 });
}

/** "panel 10.0.0.7", "drop rate", "query": who did it, in the reader's language. */
export function whoIs(by) {
  const [word, ...rest] = by.split(" ");
  const whole = by.replaceAll(" ", "_");
  for (const group of ["by", "stage", "reason"]) if (`${group}.${whole}` in templates) return nameOf(group, whole);
  return [nameOf("by", word), ...rest].join(" ");
}
