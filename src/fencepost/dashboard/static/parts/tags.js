// A state as shape, word and tint; the tint alone says nothing.
import { html } from "../lib/html.js";

/** Which of the four looks a coordinator's state or a range's kind has. */
export function look(state) {
  if (/Abort|aborted|ABORT|abort|fenced/.test(state)) return "aborted";
  if (/Commit|committed|COMMIT|commit/.test(state)) return "committed";
  if (/Ongoing|open|Rebalanc/i.test(state)) return "open";
  return "none";
}

const SHAPES = {
  committed: html`<path d="M2 6.5 5 9.5 10 3" fill="none" stroke="currentColor" stroke-width="1.9"
    stroke-linecap="round" stroke-linejoin="round" />`,
  aborted: html`<path d="m2.5 2.5 7 7m0-7-7 7" stroke="currentColor" stroke-width="1.9" stroke-linecap="round" />`,
  open: html`<circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" stroke-width="1.6" /><path
    d="M6 1.6a4.4 4.4 0 0 1 0 8.8z" fill="currentColor" />`,
  none: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.5" />`,
};

export const Shape = ({ kind }) => html`<svg viewBox="0 0 12 12" aria-hidden="true">${SHAPES[kind]}</svg>`;
export function Tag({ state, children }) {
  const kind = look(state || "");
  return html`<span class="tag ${kind}"><${Shape} kind=${kind} />${children || state || "unknown"}</span>`;
}
