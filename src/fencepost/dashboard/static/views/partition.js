// One partition: the strip of its log, what holds its readers, and the facts of a chosen piece.
import { html, useState } from "../lib/html.js";
import { count, moment, place, plural, visible } from "../lib/format.js";
import { useLive, useSettled } from "../lib/live.js";
import { link } from "../lib/router.js";
import { session, useStore } from "../lib/store.js";
import { Head, Refused, Waiting } from "../parts/frame.js";
import { Table } from "../parts/table.js";
import { Tag } from "../parts/tags.js";
import { AbortDialog } from "./abort_dialog.js";
import { Strip } from "./strip.js";
import { OFFSETS_MAX, OFFSETS_MIN, panned, within, zoomed } from "./strip_window.js";

const ROWS_MAX = 50;

export function Partition({ topic, partition }) {
  const [moved, setMoved] = useState(null),
    [chosen, setChosen] = useState(null),
    [aborting, setAborting] = useState(null);
  const asked = useSettled(moved, 150);
  const { document: strip, refused } = useLive(
    "strip",
    { topic, partition, from: asked?.from, to: asked?.to },
    `api/partitions/${encodeURIComponent(topic)}/${partition}/strip`,
  );
  const name = place(topic, partition);
  if (strip === null)
    return html`<${Head} title=${name} back="Partitions" backTo="#/partitions" />${refused ? html`<${Refused}
      error=${refused} />` : html`<${Waiting} what="the log" />`}`;

  const log = { start: strip.log_start_offset, end: strip.high_watermark };
  const shown = moved ?? atEnd(strip);
  const piece = strip.pieces.find((each) => each.first_offset === chosen) ?? null;
  const { holder } = strip;
  const isHeld = holder?.is_held ?? false;
  const move = (window) => setMoved(window);
  const abort = () =>
    setAborting(
      holder.hanging_because
        ? { target: { topic, partition: Number(partition), start_offset: holder.start_offset }, name }
        : { target: { transactional_id: holder.transactional_id }, name: holder.transactional_id },
    );
  return html`<${Head} title=${name} back="Partitions" backTo="#/partitions"
    under=${html`<${Standing} strip=${strip} holder=${holder} isHeld=${isHeld} />`} />
    <section class="card" aria-label="The log">
      <header><h2>The log</h2>
        <span class="quiet" data-window>offsets ${count(shown.from)}–${count(shown.to)}${moved === null ? ", following the end" : ""}</span>
        <div class="strip-tools" role="group" aria-label="Zoom and pan" style="margin-left:auto">
          <button type="button" class="button small" aria-label="Earlier offsets" disabled=${shown.from <= log.start}
            onClick=${() => move(panned(shown, -0.5, log))}>←</button>
          <button type="button" class="button small" aria-label="Later offsets" disabled=${shown.to >= log.end}
            onClick=${() => move(panned(shown, 0.5, log))}>→</button>
          <button type="button" class="button small" aria-label="Zoom in"
            disabled=${shown.to - shown.from <= OFFSETS_MIN}
              onClick=${() => move(zoomed(shown, 0.5, 0.5, log))}>+</button>
          <button type="button" class="button small" aria-label="Zoom out"
            disabled=${shown.to - shown.from >= Math.min(OFFSETS_MAX, log.end - log.start)}
              onClick=${() => move(zoomed(shown, 2, 0.5, log))}>−</button>
          ${isHeld && html`<button type="button" class="button small"
            onClick=${() => move(within({ from: strip.last_stable_offset - 20, to: strip.last_stable_offset + 80 }, log))}>What holds</button>`}
          <button type="button" class="button small" disabled=${moved === null}
            onClick=${() => move(null)}>Follow end</button>
        </div></header>
      <div class="body">${
        strip.high_watermark === strip.log_start_offset
          ? html`<div class="empty"><strong>The log is empty</strong></div>`
          : html`<${Strip} strip=${strip} shown=${shown} move=${move} chosen=${chosen} choose=${setChosen} />`
      }</div>
      ${strip.is_truncated && (shown.from < strip.from || shown.to > strip.to) && html`<div
        class="foot">${`Read were the offsets ${count(strip.from)}–${count(strip.to)}: there is more in this window than one`}
          ${" look can show. Zoom in for the rest."}</div>`}
      <${Legend} />
      <${Facts} piece=${piece} markers=${strip.markers} holder=${holder} abort=${abort} />
    </section>
    <${Pieces} pieces=${strip.pieces} shown=${shown} choose=${setChosen} />
    ${aborting && html`<${AbortDialog} target=${aborting.target} name=${aborting.name}
      close=${() => setAborting(null)} />`}`;
}

/** The end of the log, as far back as pieces are wide enough to be told apart. */
function atEnd({ from, to, pieces }) {
  const most = Math.min(140, Math.max(40, Math.floor(innerWidth / 9)));
  const first = pieces.length > most ? pieces[pieces.length - most].first_offset : from;
  return { from: first, to: Math.max(to, first + OFFSETS_MIN) };
}

function Standing({ strip, holder, isHeld }) {
  if (strip.last_stable_offset >= strip.high_watermark) return html`<${Tag} state="none">nothing holds the readers<//>`;
  const behind = `${plural(strip.high_watermark - strip.last_stable_offset, "offset")} before the end`;
  if (!isHeld) return html`<${Tag} state="none">last stable offset ${count(strip.last_stable_offset)}, ${behind}<//>`;
  const by = holder.transactional_id
    ? html` by <a class="text" href=${link("transactions", holder.transactional_id)}>${visible(holder.transactional_id)}</a>`
    : ` by producer ${holder.producer_id}`;
  return html`<${Tag} state="open">readers are held at ${count(strip.last_stable_offset)}<//>${by}, ${behind}${holder.hanging_because ? `; it hangs: ${holder.hanging_because}` : ""}`;
}

const Legend = () => html`<div class="legend" aria-label="Legend">
  ${[
    ["committed", "committed"],
    ["aborted", "aborted"],
    ["open", "open"],
    ["plain", "not transactional"],
  ].map(
    ([kind, words]) =>
      html`<span key=${kind}><svg viewBox="0 0 20 12" aria-hidden="true"><rect class=${`piece ${kind}`} x="1" y="1"
        width="18" height="10" rx="2" /></svg>${words}</span>`,
  )}
  <span><svg viewBox="0 0 20 12" aria-hidden="true"><path class="diamond COMMIT"
    d="M10 1l5 5l-5 5l-5 -5z" /></svg>commit marker</span>
  <span><svg viewBox="0 0 20 12" aria-hidden="true"><path class="diamond ABORT" d="M10 1l5 5l-5 5l-5 -5z" /><path
    class="cross" d="M8.3 4.3l3.4 3.4m0 -3.4l-3.4 3.4" /></svg>abort marker</span>
</div>`;

function Facts({ piece, markers, holder, abort }) {
  const known = useStore(session);
  if (piece === null)
    return html`<div class="facts-line"
      data-facts>Choose a piece of the strip to see whose it is: click, or press n and p.</div>`;
  const marker = markers.find((each) => each.producer_id === piece.producer_id && each.offset > piece.last_offset);
  const offsets =
    piece.first_offset === piece.last_offset
      ? count(piece.first_offset)
      : `${count(piece.first_offset)}–${count(piece.last_offset)}`;
  return html`<dl class="facts" style="border-top:1px solid var(--line)" data-facts aria-live="polite">
    <div><dt>Kind</dt><dd><${Tag} state=${piece.kind} /></dd></div>
    <div><dt>Offsets</dt><dd>${offsets}</dd></div>
    <div><dt>Records</dt><dd>${count(piece.records)}</dd></div>
    ${piece.producer_id >= 0 && html`<div><dt>Producer · epoch</dt><dd>${piece.producer_id} · ${piece.producer_epoch}</dd></div>`}
    ${piece.transactional_id && html`<div><dt>Transaction</dt><dd><a class="text"
      href=${link("transactions", piece.transactional_id)}>${visible(piece.transactional_id)}</a></dd></div>`}
    <div><dt>Written</dt><dd>${moment(piece.from_ms, true)}</dd></div>
    ${marker && piece.kind !== "plain" && html`<div><dt>Marker</dt><dd>${marker.kind} at ${count(marker.offset)}</dd></div>`}
    ${piece.kind === "open" && piece.producer_id === holder?.producer_id && holder.is_abort_offered && known?.actions_allowed && html`<div><button type="button" class="button danger small"
      onClick=${() => abort(piece)}>Abort …</button></div>`}
  </dl>`;
}

function Pieces({ pieces, shown, choose }) {
  const rows = pieces.filter((piece) => piece.last_offset >= shown.from && piece.first_offset < shown.to);
  if (!rows.length) return null;
  const columns = [
    {
      key: "offsets",
      title: "Offsets",
      time: true,
      width: "30%",
      narrow: "36%",
      cell: (row) =>
        html`<a href="#" data-row onClick=${(event) => {
          event.preventDefault();
          choose(row.first_offset);
        }}>${count(row.first_offset)}${row.last_offset > row.first_offset ? `–${count(row.last_offset)}` : ""}</a>`,
    },
    { key: "kind", title: "Kind", width: "112px", narrow: "104px", cell: (row) => html`<${Tag} state=${row.kind} />` },
    { key: "records", title: "Records", num: true, wide: true, width: "80px", cell: (row) => count(row.records) },
    {
      key: "who",
      title: "Transaction",
      wrap: true,
      cell: (row) =>
        row.transactional_id
          ? html`<a href=${link("transactions", row.transactional_id)}>${visible(row.transactional_id)}</a>`
          : html`<span class="quiet">${row.producer_id >= 0 ? `producer ${row.producer_id}` : "–"}</span>`,
    },
    {
      key: "when",
      title: "Written",
      num: true,
      wide: true,
      quiet: true,
      width: "136px",
      cell: (row) => moment(row.from_ms, true),
    },
  ];
  return html`<section class="card" aria-label="Pieces"><header><h2>The same as a table</h2><span
    class="end">${rows.length > ROWS_MAX ? `the last ${ROWS_MAX} of ${count(rows.length)} pieces` : plural(rows.length, "piece")}</span></header>
    <${Table} caption="Pieces of the log in the window" columns=${columns} rows=${rows.slice(-ROWS_MAX)}
      rowKey=${(row) => row.first_offset} /></section>`;
}
