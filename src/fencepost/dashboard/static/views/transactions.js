// All transactional ids: searched, filtered and sorted by the server, a hundred at a time.
import { html, useEffect, useState } from "../lib/html.js";
import { age, count, moment, tickingAge, visible } from "../lib/format.js";
import { useLive, useSettled, useTick } from "../lib/live.js";
import { link, replaceQuery } from "../lib/router.js";
import { Choice, SearchField, useResultsSaid } from "../parts/controls.js";
import { Empty, Head, Refused } from "../parts/frame.js";
import { Pager, RowLink, Table } from "../parts/table.js";
import { Tag } from "../parts/tags.js";

const LIMIT = 100;
const STATES = [
  ["", "Every state"],
  ["PrepareCommit,PrepareAbort", "Prepared"],
  ...["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "Dead"].map((state) => [
    state,
    state,
  ]),
];
const AGES = [
  ["", "Any age"],
  ["1000", "Open over 1 s"],
  ["10000", "Open over 10 s"],
  ["60000", "Open over 1 min"],
  ["600000", "Open over 10 min"],
];

export function Transactions({ query }) {
  const [asked, setAsked] = useState(() => ({
    q: query.q ?? "",
    state: query.state ?? "",
    older_than_ms: query.older_than_ms ?? "",
    sort: query.sort ?? "age",
    order: query.order ?? "desc",
    offset: Number(query.offset) || 0,
  }));
  const change = (part) => setAsked((before) => ({ ...before, offset: 0, ...part }));
  const q = useSettled(asked.q);
  useEffect(
    () =>
      replaceQuery({
        ...asked,
        sort: asked.sort === "age" ? "" : asked.sort,
        order: asked.order === "desc" ? "" : asked.order,
        offset: asked.offset || "",
      }),
    [asked],
  );
  const {
    document: found,
    refused,
    at,
    isStale,
  } = useLive("transactions", { ...asked, q, limit: LIMIT }, "api/transactions");
  const passed = useTick(at);
  useResultsSaid(q || asked.state || asked.older_than_ms, isStale ? undefined : found?.matched, "transactional ids");
  const columns = [
    {
      key: "id",
      title: "Transactional id",
      wrap: true,
      sort: "id",
      cell: (row) =>
        html`<${RowLink} href=${link("transactions", row.transactional_id)}
          title=${visible(row.transactional_id)}>${visible(row.transactional_id)}<//>`,
    },
    {
      key: "state",
      title: "State",
      sort: "state",
      width: "152px",
      narrow: "150px",
      cell: (row) => html`<${Tag} state=${row.state} />`,
    },
    {
      key: "age",
      title: "Open for",
      sort: "age",
      first: "desc",
      num: true,
      width: "104px",
      narrow: "78px",
      cell: (row) =>
        row.age_ms === null || row.age_ms === undefined
          ? html`<span class="quiet">–</span>`
          : tickingAge(row.age_ms + passed),
    },
    {
      key: "timeout",
      title: "Time-out",
      num: true,
      wide: true,
      quiet: true,
      width: "98px",
      cell: (row) => age(row.timeout_ms),
    },
    {
      key: "parts",
      title: "Partitions",
      num: true,
      wide: true,
      width: "92px",
      cell: (row) => count(row.partition_count),
    },
    {
      key: "producer",
      title: "Producer · epoch",
      sort: "producer",
      num: true,
      wide: true,
      width: "142px",
      cell: (row) => html`${row.producer_id} <span class="quiet">· ${row.producer_epoch}</span>`,
    },
    {
      key: "changed",
      title: "Changed",
      sort: "changed",
      first: "desc",
      num: true,
      wide: true,
      quiet: true,
      width: "124px",
      cell: (row) => moment(row.changed_ms),
    },
  ];
  return html`<${Head} title="Transactions" />
    <section class="card" aria-label="Transactional ids">
      <div class="controls">
        <${SearchField} value=${asked.q} change=${(text) => change({ q: text })} label="Search id or producer id" />
        <${Choice} label="State" value=${asked.state} change=${(state) => change({ state })}
          options=${STATES} />
        <${Choice} label="Age" value=${asked.older_than_ms} change=${(older_than_ms) => change({ older_than_ms })}
          options=${AGES} />
      </div>
      ${
        found === null
          ? !refused && html`<div class="empty" aria-busy="true">${"\u00a0"}</div>`
          : found.rows.length === 0
            ? html`<${Empty} title=${found.total ? "Nothing matches" : "No transactional ids yet"}>
                ${found.total ? "Try another search or filter." : "They appear when the first transactional producer is initialized."}
              <//>`
            : html`<${Table} caption="Transactional ids with their state and how long they have been in it" columns=${columns}
              rows=${found.rows} rowKey=${(row) => row.transactional_id}
              sort=${{ by: asked.sort, order: asked.order, change: (sort, order) => change({ sort, order }) }} />`
      }
      ${
        found &&
        html`<${Pager} offset=${asked.offset} limit=${LIMIT} matched=${found.matched} total=${found.total}
          what="transactional ids" change=${(
          offset,
        ) => {
          setAsked({ ...asked, offset });
          scrollTo(0, 0);
        }} />`
      }
    </section>
    ${refused && html`<${Refused} error=${refused} />`}`;
}
