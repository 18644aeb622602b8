// Line icons, drawn here: 24 by 24, never the only sign of anything.
import { html } from "../lib/html.js";

const icon = (paths) => () => html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8"
  stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">${paths.map((d) => html`<path d=${d} />`)}</svg>`;

export const Overview = icon(["M4 19V9", "M10 19V5", "M16 19v-7", "M22 19H2"]);
export const Transactions = icon(["M4 7h13", "m13 3 4 4-4 4", "M20 17H7", "m11 13-4 4 4 4"]);
export const Partitions = icon(["M3 6h18v4H3z", "M3 14h18v4H3z", "M9 6v4", "M15 14v4"]);
export const Groups = icon([
  "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6",
  "M3 19c0-3 2.7-5 6-5s6 2 6 5",
  "M16 5.5a3 3 0 0 1 0 5",
  "M18 14.5c1.9.7 3 2.2 3 4.5",
]);
export const Producers = icon(["M12 3v12", "m7 8 5-5 5 5", "M4 15v4a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2v-4"]);
export const Pipelines = icon(["M4 7h6a2 2 0 0 1 2 2v6a2 2 0 0 0 2 2h6", "M4 4v6", "M20 14v6"]);
export const Search = icon(["M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14", "m20 20-4-4"]);
export const Back = icon(["m14 6-6 6 6 6"]);
export const Sun = icon([
  "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8",
  "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
]);
export const Moon = icon(["M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5"]);
export const Keyboard = icon(["M3 6h18v12H3z", "M7 10h.01M11 10h.01M15 10h.01M17 14h.01M7 14h.01M10 14h4"]);
export const Copy = icon(["M9 9h11v11H9z", "M5 15H4V4h11v1"]);
export const Check = icon(["m5 12.5 4.5 4.5L19 7"]);
export const Warn = icon(["M12 4 2.5 20h19z", "M12 10v4", "M12 17h.01"]);

export const Brand =
  () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#2f6f73" />
  <g fill="none" stroke="#fff" stroke-width="2.4" stroke-linecap="round" stroke-linejoin="round">
  <path d="M9 24V11l3-3 3 3v13M17 24V11l3-3 3 3v13M6 15h20M6 20h20" /></g></svg>`;
