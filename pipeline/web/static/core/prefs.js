// Language and theme: the system's unless chosen, and a choice is kept.

const LANGS = ["zh", "en"];
const THEMES = ["auto", "light", "dark"];

function kept(name, allowed) {
  try {
    const value = localStorage.getItem(`tidegate-${name}`);
    return allowed.includes(value) ? value : null;
  } catch {
    return null; // storage may be forbidden; the page works without
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`tidegate-${name}`, value);
  } catch { /* as above */ }
}

export class Prefs {
  constructor() {
    this.onChange = () => {};
    this.lang = kept("lang", LANGS) ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
    this.theme = kept("theme", THEMES) ?? "auto";
    this.#show();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.onChange());
  }

  setLang(lang) {
    this.lang = lang;
    keep("lang", lang);
    this.#show();
  }

  setTheme(theme) {
    this.theme = theme;
    keep("theme", theme);
    this.#show();
    this.onChange();
  }

  #show() {
    document.documentElement.lang = this.lang === "zh" ? "zh-CN" : "en";
    document.documentElement.dataset.theme = this.theme;
  }
}
