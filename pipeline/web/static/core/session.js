// The token, kept for the session, and requests that carry it.

const NAME = "tidegate-token";

export const token = {
  get: () => sessionStorage.getItem(NAME),
  set: (value) => sessionStorage.setItem(NAME, value),
  forget: () => sessionStorage.removeItem(NAME),
};

/** @param {string} path */
export function ask(path) {
  const value = token.get();
  return fetch(path, { headers: value ? { Authorization: `Bearer ${value}` } : {} });
}
