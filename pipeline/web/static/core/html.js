// Preact and htm, bound together once.
import { h, render } from "../vendor/preact.js";
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { render, useEffect, useLayoutEffect, useRef, useState };
