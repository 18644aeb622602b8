// Search fields, choices, and a command to paste.
import { html, useEffect, useState } from "../lib/html.js";
import { announce } from "../lib/store.js";
import { Check, Copy, Search } from "./icons.js";

export const SearchField = ({ value, change, label }) => html`<span class="field"><${Search} />
  <input type="search" value=${value} placeholder=${label} aria-label=${label} spellcheck="false" autocomplete="off"
    onInput=${(event) => change(event.target.value)} /><kbd aria-hidden="true">/</kbd></span>`;

export const Choice = ({ value, change, label, options }) => html`<select aria-label=${label} value=${value}
  onChange=${(event) => change(event.target.value)}>
  ${options.map(([key, words]) => html`<option key=${key} value=${key}
    selected=${key === value}>${words}</option>`)}</select>`;

export const Segments = ({
  value,
  change,
  label,
  options,
}) => html`<span class="segments" role="group" aria-label=${label}>
  ${options.map(
    ([key, words]) => html`<button type="button" key=${key} aria-pressed=${key === value ? "true" : "false"}
    onClick=${() => change(key)}>${words}</button>`,
  )}</span>`;

/** Copies where the browser lets it (a secure context); the text can be selected everywhere. */
export function Command({ text }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [isCopied]);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      announce("Copied");
    } catch {
      announce("Could not copy; select the text instead");
    }
  }
  return html`<div class="command"><code tabindex="0" role="textbox" aria-readonly="true"
    aria-label="Command to paste">${text}</code>
    ${
      navigator.clipboard &&
      html`<button type="button" class="button small" onClick=${copy}>
      ${isCopied ? html`<${Check} />Copied` : html`<${Copy} />Copy`}</button>`
    }</div>`;
}

/** Says the number of results once it has settled, and only after the reader asked something. */
export function useResultsSaid(asked, matched, what) {
  useEffect(() => {
    if (!asked || matched === undefined) return undefined;
    const timer = setTimeout(() => announce(`${matched} ${what}`), 700);
    return () => clearTimeout(timer);
  }, [asked, matched]);
}
