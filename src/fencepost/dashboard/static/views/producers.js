// Producers as partitions know them, and who was fenced, by whom and why.
import { html, useEffect, useState } from "../lib/html.js";
import { count, moment, place, visible } from "../lib/format.js";
import { useLive, useSettled } from "../lib/live.js";
import { link, replaceQuery } from "../lib/router.js";
import { SearchField, useResultsSaid } from "../parts/controls.js";
import { Empty, Head } from "../parts/frame.js";
import { Pager, RowLink, Table } from "../parts/table.js";

const LIMIT = 100,
  FENCINGS_MAX = 50;

export function Producers({ query }) {
  const [text, setText] = useState(query.q ?? ""),
    [offset, setOffset] = useState(0);
  const q = useSettled(text);
  useEffect(() => replaceQuery({ q: text }), [text]);
  const { document: found, isStale } = useLive("producers", { q, limit: LIMIT, offset }, "api/producers");
  useResultsSaid(q, isStale ? undefined : found?.matched, "producers");
  const columns = [
    {
      key: "id",
      title: "Producer",
      width: "110px",
      narrow: "84px",
      cell: (row) =>
        row.transactional_id
          ? html`<${RowLink} href=${link("transactions", row.transactional_id)}>${row.producer_id}<//>`
          : html`<${RowLink} href=${link("partitions", row.topic, row.partition)}>${row.producer_id}<//>`,
    },
    { key: "epoch", title: "Epoch", num: true, width: "76px", narrow: "58px", cell: (row) => row.producer_epoch },
    {
      key: "where",
      title: "Partition",
      wrap: true,
      cell: (row) =>
        html`<a href=${link("partitions", row.topic, row.partition)}>${place(row.topic, row.partition)}</a>`,
    },
    {
      key: "name",
      title: "Transactional id",
      wide: true,
      wrap: true,
      cell: (row) => row.transactional_id ?? html`<span class="quiet">not transactional, or not known</span>`,
    },
    {
      key: "sequence",
      title: "Last sequence",
      num: true,
      wide: true,
      width: "128px",
      cell: (row) => (row.last_sequence < 0 ? html`<span class="quiet">–</span>` : count(row.last_sequence)),
    },
    {
      key: "open",
      title: "Open from",
      num: true,
      width: "110px",
      narrow: "84px",
      cell: (row) =>
        row.transaction_start_offset === null || row.transaction_start_offset < 0
          ? html`<span class="quiet">–</span>`
          : count(row.transaction_start_offset),
    },
    {
      key: "last",
      title: "Last wrote",
      num: true,
      wide: true,
      quiet: true,
      width: "124px",
      cell: (row) => moment(row.last_timestamp_ms),
    },
  ];
  return html`<${Head} title="Producers" />
    <section class="card" aria-label="Producers">
      <div class="controls"><${SearchField} value=${text} change=${(next) => {
        setText(next);
        setOffset(0);
      }} label="Search producer or transactional id" /></div>
      ${
        found === null
          ? html`<div class="empty" aria-busy="true">${"\u00a0"}</div>`
          : found.rows.length === 0
            ? html`<${Empty} title="No producers">
                ${q ? "Try another search." : "Partitions forget producers that have been inactive for a long time."}
              <//>`
            : html`<${Table} caption="Producers by partition, with their epochs and sequences" columns=${columns}
              rows=${found.rows} rowKey=${(row) => `${row.topic}-${row.partition}-${row.producer_id}`} />`
      }
      ${found && html`<${Pager} offset=${offset} limit=${LIMIT} matched=${found.matched} total=${found.total}
        what="producers" change=${setOffset} />`}
    </section>
    ${found && html`<${Fencings} causes=${found.fencings} />`}`;
}

function Fencings({ causes }) {
  return html`<section class="card" aria-label="Fencings"><header><h2>Fencings and refusals</h2><span
    class="end">newest first</span></header>
    ${
      causes === null
        ? html`<${Empty} title="Not recorded by this broker">Only Fencepost keeps a journal of causes.<//>`
        : causes.length === 0
          ? html`<${Empty} title="Nobody was fenced">As far as the journal of causes goes back.<//>`
          : html`<ul class="list">${[...causes]
              .sort((a, b) => b.time_ms - a.time_ms)
              .slice(0, FENCINGS_MAX)
              .map(
                (each, at) => html`
          <li key=${`${each.time_ms}-${each.transactional_id}-${each.event}-${at}`}>
            <div><a class="text"
              href=${link("transactions", each.transactional_id)}><b>${visible(each.transactional_id)}</b></a> <span
                class="quiet">${moment(each.time_ms, true)}</span></div>
            <div>${each.text}</div></li>`,
              )}</ul>`
    }
  </section>`;
}
