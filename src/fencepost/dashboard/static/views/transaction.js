// One transactional id: the judgement and what to do, then its facts, then its life.
import { html, useState } from "../lib/html.js";
import { age, clock, count, place, plural } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { link } from "../lib/router.js";
import { session, useStore } from "../lib/store.js";
import { Command } from "../parts/controls.js";
import { Head, Refused, Waiting } from "../parts/frame.js";
import { Check, Warn } from "../parts/icons.js";
import { Tag } from "../parts/tags.js";
import { AbortDialog } from "./abort_dialog.js";
import { Timeline } from "./timeline.js";

const PLACES_MAX = 8;
const isOpenState = (state) => state === "Ongoing" || state?.startsWith("Prepare");

export function Transaction({ id }) {
  const { document: found, refused } = useLive("transaction", { id }, `api/transactions/${encodeURIComponent(id)}`);
  const known = useStore(session);
  const [isAborting, setAborting] = useState(false);
  return html`<${Head} title=${id} back="Transactions" backTo="#/transactions"
    under=${found && html`<${Tag} state=${found.facts.state} />`} />
    ${
      refused
        ? html`<${Refused} error=${refused} />`
        : found === null
          ? html`<${Waiting} what="its history" />`
          : html`
      <${Verdict} judgement=${found.judgement} canAbort=${known?.actions_allowed && found.judgement.is_abort_offered && found.facts.state === "Ongoing"}
        abort=${() => setAborting(true)} />
      <${Facts} facts=${found.facts} epochs=${found.lanes.epochs} />
      <${Timeline} lanes=${found.lanes} history=${found.facts.history} atMs=${found.at_ms}
        isOpen=${isOpenState(found.facts.state)} />
      <${Hidden} found=${found} />`
    }
    ${isAborting && html`<${AbortDialog} target=${{ transactional_id: id }} name=${id}
      close=${() => setAborting(false)} />`}`;
}

export const Verdict = ({
  judgement,
  canAbort,
  abort,
}) => html`<section class="card verdict ${judgement.verdict}" aria-label="Judgement" data-verdict=${judgement.verdict}>
  <div class="word">${judgement.verdict === "stuck" ? html`<${Warn} />Stuck` : html`<${Check} />Healthy`}</div>
  <div class="why">${judgement.reason}${judgement.next ? html`; ${judgement.next}` : ""}</div>
  ${canAbort && html`<div class="act"><button type="button" class="button danger"
    onClick=${abort}>Abort …</button></div>`}
  ${judgement.next_command && html`<${Command} text=${judgement.next_command} />`}
</section>`;

function Facts({ facts, epochs }) {
  const owed = facts.owed_markers.map((each) => `${each.partition} by broker ${each.broker}`).join(", ");
  const client = [...epochs].reverse().find((epoch) => epoch.client)?.client;
  return html`<section class="card" aria-label="Facts"><dl class="facts">
    <div><dt>Producer</dt><dd>${facts.producer_id}</dd></div>
    <div><dt>Epoch</dt><dd>${facts.producer_epoch}</dd></div>
    <div><dt>Time-out</dt><dd>${age(facts.timeout_ms)}</dd></div>
    <div><dt>Coordinator</dt><dd>broker ${facts.coordinator ?? "–"}</dd></div>
    ${facts.start_ms >= 0 && facts.state === "Ongoing" && html`<div><dt>Began</dt><dd>${clock(facts.start_ms, true)}</dd></div>`}
    ${client && html`<div><dt>Client*</dt><dd>${client}</dd></div>`}
    ${facts.partitions.length > 0 && html`<div><dt>Open in</dt><dd><${Places} partitions=${facts.partitions} /></dd></div>`}
    ${owed && html`<div><dt>Markers owed</dt><dd>${owed}</dd></div>`}
  </dl></section>`;
}

function Places({ partitions }) {
  const more = partitions.length - PLACES_MAX;
  const places = partitions.slice(0, PLACES_MAX).map((each, at) => {
    const href = link("partitions", each.topic, each.partition);
    const waiting = each.waiting_records ? ` (${plural(each.waiting_records, "record")} wait)` : "";
    return html`${at ? ", " : ""}<a class="text" href=${href}>${place(each.topic, each.partition)}</a>${waiting}`;
  });
  return html`${places}${more > 0 ? ` and ${count(more)} more` : ""}`;
}

function Hidden({ found }) {
  const notes = [];
  if (found.facts.is_transaction_state_hidden)
    notes.push("This cluster hides __transaction_state, so earlier states are not shown.");
  if (found.facts.causes === null)
    notes.push(
      "This broker does not record who fenced whom and which calls were refused: only Fencepost records causes.",
    );
  if (found.is_truncated)
    notes.push(`Only the latest part of its history is shown. To see more, run: ${found.history_command}`);
  return (
    notes.length > 0 &&
    html`<div class="notes" role="note">${notes.map((note) => html`<p key=${note}>${note}</p>`)}</div>`
  );
}
