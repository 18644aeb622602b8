// Consumer groups by name; the lag of one is counted when it is opened.
import { html, useEffect, useState } from "../lib/html.js";
import { bounds, count, visible } from "../lib/format.js";
import { useLive, useSettled } from "../lib/live.js";
import { link, replaceQuery } from "../lib/router.js";
import { SearchField, useResultsSaid } from "../parts/controls.js";
import { Empty, Head } from "../parts/frame.js";
import { Pager, RowLink, Table } from "../parts/table.js";
import { Tag } from "../parts/tags.js";

const LIMIT = 100;

export function Groups({ query }) {
  const [text, setText] = useState(query.q ?? ""),
    [offset, setOffset] = useState(0);
  const q = useSettled(text);
  useEffect(() => replaceQuery({ q: text }), [text]);
  const { document: found, isStale } = useLive("groups", { q, limit: LIMIT, offset }, "api/groups");
  useResultsSaid(q, isStale ? undefined : found?.matched, "groups");
  const hasLag = found?.rows.some((row) => row.lag_max !== undefined && row.lag_max !== null);
  const columns = [
    {
      key: "id",
      title: "Group",
      wrap: true,
      cell: (row) => html`<${RowLink} href=${link("groups", row.group_id)} title=${visible(row.group_id)}>${visible(row.group_id)}<//>`,
    },
    { key: "state", title: "State", width: "176px", narrow: "104px", cell: (row) => html`<${Tag} state=${row.state} />` },
    {
      key: "protocol",
      title: "Protocol",
      wide: true,
      quiet: true,
      width: "140px",
      cell: (row) => row.protocol_type || "–",
    },
    {
      key: "members",
      title: "Members",
      num: true,
      width: "92px",
      narrow: "80px",
      cell: (row) => (Array.isArray(row.members) ? count(row.members.length) : count(row.members)),
    },
    hasLag && {
      key: "lag",
      title: "Records to read",
      num: true,
      width: "150px",
      cell: (row) => bounds(row.lag_min, row.lag_max),
    },
  ].filter(Boolean);
  return html`<${Head} title="Groups"
    under="Lag is counted in records: control records, aborted records and gaps do not count." />
    <section class="card" aria-label="Consumer groups">
      <div class="controls"><${SearchField} value=${text} change=${(next) => {
        setText(next);
        setOffset(0);
      }} label="Search group" /></div>
      ${
        found === null
          ? html`<div class="empty" aria-busy="true">${"\u00a0"}</div>`
          : found.rows.length === 0
            ? html`<${Empty} title="No groups">
                ${q ? "Try another search." : "They appear when the first consumer joins or commits."}
              <//>`
            : html`<${Table} caption="Consumer groups" columns=${columns} rows=${found.rows}
              rowKey=${(row) => row.group_id} />`
      }
      ${found && html`<${Pager} offset=${offset} limit=${LIMIT} matched=${found.matched} total=${found.total}
        what="groups" change=${setOffset} />`}
    </section>`;
}
