// All partitions; the held ones, or the cluster's own topics too, on request.
import { html, useEffect, useState } from "../lib/html.js";
import { count, place } from "../lib/format.js";
import { useLive, useSettled } from "../lib/live.js";
import { link, replaceQuery } from "../lib/router.js";
import { SearchField, Segments, useResultsSaid } from "../parts/controls.js";
import { Empty, Head } from "../parts/frame.js";
import { Pager, RowLink, Table } from "../parts/table.js";
import { Tag } from "../parts/tags.js";

const LIMIT = 100;
const WHICH = {
  topics: { held: "", internal: "" },
  all: { held: "", internal: "1" },
  held: { held: "1", internal: "" },
};

export function Partitions({ query }) {
  const [asked, setAsked] = useState(() => ({
    q: query.q ?? "",
    held: query.held ?? "",
    internal: query.internal ?? "",
    offset: Number(query.offset) || 0,
  }));
  const shown = asked.held ? "held" : asked.internal ? "all" : "topics";
  const change = (part) => setAsked((before) => ({ ...before, offset: 0, ...part }));
  const q = useSettled(asked.q);
  useEffect(() => replaceQuery({ ...asked, offset: asked.offset || "" }), [asked]);
  const { document: found, isStale } = useLive("partitions", { ...asked, q, limit: LIMIT }, "api/partitions");
  useResultsSaid(q || asked.held, isStale ? undefined : found?.matched, "partitions");
  const columns = [
    {
      key: "where",
      title: "Partition",
      wrap: true,
      cell: (row) =>
        html`<${RowLink} href=${link("partitions", row.topic, row.partition)}
          title=${place(row.topic, row.partition)}>${place(row.topic, row.partition)}<//>`,
    },
    {
      key: "state",
      title: "Readers",
      width: "124px",
      narrow: "66px",
      cell: (row) => html`<${Tag} state=${row.is_held ? "open" : "none"}>${row.is_held ? "held" : "free"}<//>`,
    },
    {
      key: "open",
      title: "Open",
      num: true,
      width: "72px",
      narrow: "52px",
      cell: (row) => count(row.open_transactions),
    },
    {
      key: "start",
      title: "Log start",
      num: true,
      wide: true,
      quiet: true,
      width: "118px",
      cell: (row) => count(row.log_start_offset),
    },
    {
      key: "stable",
      title: "Last stable",
      num: true,
      wide: true,
      width: "124px",
      cell: (row) => count(row.last_stable_offset),
    },
    {
      key: "high",
      title: "High watermark",
      num: true,
      wide: true,
      width: "136px",
      cell: (row) => count(row.high_watermark),
    },
    {
      key: "behind",
      title: "Behind",
      num: true,
      width: "92px",
      narrow: "84px",
      cell: (row) =>
        row.high_watermark > row.last_stable_offset
          ? count(row.high_watermark - row.last_stable_offset)
          : html`<span class="quiet">0</span>`,
    },
    {
      key: "leader",
      title: "Leader",
      num: true,
      wide: true,
      quiet: true,
      width: "76px",
      cell: (row) => row.leader ?? "–",
    },
  ];
  return html`<${Head} title="Partitions" />
    <section class="card" aria-label="Partitions">
      <div class="controls">
        <${SearchField} value=${asked.q} change=${(text) => change({ q: text })} label="Search topic" />
        <${Segments} label="Which partitions" value=${shown} change=${(which) => change(WHICH[which])} options=${[
          ["topics", "Topics"],
          ["all", "With internal"],
          ["held", "Held"],
        ]} />
      </div>
      ${
        found === null
          ? html`<div class="empty" aria-busy="true">${"\u00a0"}</div>`
          : found.rows.length === 0
            ? html`<${Empty} title=${asked.held ? "Nothing is held" : found.total > found.internal_hidden ? "No partition matches" : "No topics yet"}>
                ${asked.held ? "read_committed consumers see everything that is decided." : ""}
              <//>`
            : html`<${Table} caption="Partitions, their offsets, and whether readers of committed records wait"
              columns=${columns} rows=${found.rows} rowKey=${(row) => place(row.topic, row.partition)} />`
      }
      ${
        found &&
        html`<${Pager} offset=${asked.offset} limit=${LIMIT} matched=${found.matched} total=${found.total}
          what="partitions" others=${found.internal_hidden ? `${count(found.internal_hidden)} of internal topics not shown` : undefined} change=${(
          offset,
        ) => {
          setAsked({ ...asked, offset });
          scrollTo(0, 0);
        }} />`
      }
    </section>`;
}
