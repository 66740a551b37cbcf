// The token, kept for the session, and requests that carry it.

const NAME = "tidegate-token";

export const token = {
  get: () => sessionStorage.getItem(NAME),
  set: (value) => sessionStorage.setItem(NAME, value),
  forget: () => sessionStorage.removeItem(NAME),
};

/** @param {string} path @param {AbortSignal} [signal] */
export function ask(path, signal) {
  const value = token.get();
  return fetch(path, { headers: value ? { Authorization: `Bearer ${value}` } : {}, signal });
}
