// Aborting somebody else's transaction: first what it would do, then a word typed by hand, then what it did.
import { html, useEffect, useState } from "../lib/html.js";
import { count, place, visible } from "../lib/format.js";
import { post } from "../lib/api.js";
import { announce } from "../lib/store.js";
import { Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { key: "where", title: "Partition", wrap: true, cell: (row) => place(row.topic, row.partition) },
  { key: "vanish", title: "Records vanish", num: true, width: "118px", cell: (row) => count(row.vanishing_records) },
  { key: "visible", title: "Become visible", num: true, width: "118px", cell: (row) => count(row.visible_records) },
  {
    key: "readers",
    title: "Readers go to",
    num: true,
    width: "140px",
    cell: (row) => `${count(row.last_stable_offset)} → ${count(row.next_last_stable_offset)}`,
  },
];

const TYPED_MAX = 80;

/** target: what the API takes; name: what has to be typed, as far as a hand can. */
export function AbortDialog({ target, name: whole, close }) {
  const name = visible(whole).slice(0, TYPED_MAX);
  const [plan, setPlan] = useState(null),
    [error, setError] = useState(null);
  const [typed, setTyped] = useState(""),
    [isDone, setDone] = useState(false),
    [isBusy, setBusy] = useState(false);

  async function look() {
    setError(null);
    try {
      setPlan(await post("api/abort/plan", target));
    } catch (refusal) {
      setError(refusal);
    }
  }
  useEffect(() => {
    look();
  }, []);

  async function abort(event) {
    event.preventDefault();
    if (typed !== name || !plan || isBusy) return;
    setBusy(true);
    try {
      await post("api/abort", { ...target, confirm: plan.confirm });
      setDone(true);
      setError(null);
      announce(`${name} was aborted`);
    } catch (refusal) {
      setError(refusal);
      if (refusal.status === 409) {
        setTyped("");
        try {
          setPlan(await post("api/abort/plan", target));
        } catch {
          setPlan(null);
        }
      }
    }
    setBusy(false);
  }

  const footer = isDone
    ? html`<button type="button" class="button primary" onClick=${close}>Close</button>`
    : html`<button type="button" class="button" onClick=${close}>Cancel</button>
      <button type="submit" form="abort" class="button danger"
        disabled=${typed !== name || !plan || isBusy}>Abort it</button>`;
  return html`<${Dialog} title=${isDone ? "Aborted" : `Abort ${name}?`} close=${close} footer=${footer}>
    ${isDone && html`<p data-aborted>The transaction of ${name} is aborted. Its producer will be told that it is fenced.</p>`}
    ${!isDone && plan === null && error === null && html`<p class="quiet"
      aria-busy="true">Looking what an abort would do …</p>`}
    ${
      plan &&
      html`<div class="plan" data-plan>
      ${!isDone && html`<p>Nothing has been changed yet. This is what an abort would do:</p>`}
      <div class="effects"><${Table} caption="Effect of the abort in each partition" columns=${COLUMNS}
        rows=${plan.effects} rowKey=${(row) => place(row.topic, row.partition)} /></div>
      ${plan.text?.length > 0 && html`<ul>${plan.text.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}</div>`
    }
    ${error && html`<p class="error" role="alert">${error.message}${error.next ? `: ${error.next}` : ""}</p>`}
    ${
      !isDone &&
      plan &&
      html`<form id="abort" onSubmit=${abort}><label><span>Type <b>${name}</b> to confirm</span>
      <input type="text" value=${typed} autocomplete="off" spellcheck="false"
        onInput=${(event) => setTyped(event.target.value)} /></label></form>`
    }
  <//>`;
}
