// Preact and htm as one import, so that every view starts with the same line.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { h, render, Fragment };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback } from "../vendor/hooks.js";
export const html = htm.bind(h);

/** Joins the class names that are there. */
export const cls = (...names) => names.filter(Boolean).join(" ");
