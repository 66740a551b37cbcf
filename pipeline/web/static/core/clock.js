// The page's own tick. It stops while the tab is hidden.

/** @param {() => void} tick called every second, and at once when the tab is shown again */
export function everySecond(tick) {
  let timer = 0;
  const follow = () => {
    clearInterval(timer);
    if (document.hidden) return;
    timer = setInterval(tick, 1000);
    tick();
  };
  document.addEventListener("visibilitychange", follow);
  timer = setInterval(tick, 1000);
}
