// The keys that work everywhere.
import { html } from "../lib/html.js";
import { Dialog } from "../parts/dialog.js";

const KEYS = [
  [["/"], "search"],
  [["j", "k"], "next and previous row"],
  [["Enter"], "open the row"],
  [["Esc"], "back, or leave the field"],
  [["1", "–", "6"], "the six views"],
  [["+", "−"], "zoom the focused strip"],
  [["←", "→"], "pan a strip, move along a timeline"],
  [["n", "p"], "next and previous piece of a strip"],
  [["?"], "this help"],
];

export const Help = ({ close }) => html`<${Dialog} title="Keyboard" close=${close}
  footer=${html`<button type="button" class="button primary" onClick=${close}>Close</button>`}>
  <dl class="help">${KEYS.map(
    ([keys, words]) => html`
    <dt key=${words}>${keys.map((key) => (key === "–" ? html`<span>–</span>` : html`<kbd>${key}</kbd>`))}</dt><dd>${words}</dd>`,
  )}</dl>
<//>`;
