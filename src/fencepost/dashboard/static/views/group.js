// One group: how many records it has still to read, for certain and at most, and which offsets are pending.
import { html } from "../lib/html.js";
import { bounds, count, place, plural, visible } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { link } from "../lib/router.js";
import { Command } from "../parts/controls.js";
import { Empty, Head, Refused, Waiting } from "../parts/frame.js";
import { RowLink, Table } from "../parts/table.js";
import { Tag } from "../parts/tags.js";

export function Group({ id }) {
  const { document: group, refused } = useLive("group", { id }, `api/groups/${encodeURIComponent(id)}`);
  return html`<${Head} title=${id} back="Groups" backTo="#/groups"
    under=${group && html`<${Tag} state=${group.state} />`} />
    ${refused ? html`<${Refused} error=${refused} />` : group === null ? html`<${Waiting}
      what="the group" />` : html`<${Lag} partitions=${group.partitions} exact=${group.exact_command} /><${Members}
        members=${group.members ?? []} />`}`;
}

function Lag({ partitions, exact }) {
  const sum = (name) => partitions.reduce((all, each) => all + (each[name] ?? 0), 0);
  const isCounted = partitions.every((each) => each.is_counted),
    most = Math.max(1, ...partitions.map((each) => each.lag_max ?? 0));
  const pending = partitions.flatMap((each) => each.pending_offsets ?? []);
  const columns = [
    {
      key: "where",
      title: "Partition",
      wrap: true,
      cell: (row) =>
        html`<${RowLink} href=${link("partitions", row.topic, row.partition)}>${place(row.topic, row.partition)}<//>`,
    },
    {
      key: "lag",
      title: "Records to read",
      num: true,
      width: "230px",
      narrow: "110px",
      cell: (row) => html`<span class="lag">
        <span class="bar" aria-hidden="true"><i class="more"
          style=${`width:${(100 * (row.lag_max ?? 0)) / most}%`}></i><i
            style=${`width:${(100 * (row.lag_min ?? 0)) / most}%`}></i></span>
        ${bounds(row.lag_min, row.lag_max, row.is_counted)}</span>`,
    },
    { key: "note", title: "Note", wide: true, quiet: true, wrap: true, width: "26%", cell: note },
    {
      key: "committed",
      title: "Committed",
      num: true,
      wide: true,
      width: "108px",
      cell: (row) => count(row.committed_offset),
    },
    {
      key: "stable",
      title: "Last stable",
      num: true,
      wide: true,
      width: "108px",
      cell: (row) => count(row.last_stable_offset),
    },
    { key: "high", title: "End", num: true, wide: true, width: "96px", cell: (row) => count(row.high_watermark) },
  ];
  return html`<div class="grid tiles">
      <div class="card tile"><div class="label">Records to read</div><div class="value"
        data-lag>${bounds(sum("lag_min"), sum("lag_max"), isCounted)}</div>
        <div class="about">${sum("lag_min") === sum("lag_max") ? "counted" : "at least – at most"}</div></div>
      <div class="card tile"><div class="label">Readable now</div><div
        class="value">${isCounted ? count(sum("readable")) : "–"}</div><div
          class="about">below the last stable offset</div></div>
      <div class="card tile"><div class="label">In open transactions</div><div
        class="value">${isCounted ? count(sum("open_records")) : "–"}</div><div
          class="about">count only if those commit</div></div>
      <div class="card tile"><div class="label">Pending offsets</div><div
        class="value">${count(pending.length)}</div><div class="about">wait for an open transaction</div></div>
    </div>
    <section class="card"><header><h2>Partitions</h2><span
      class="end">solid: for certain, striped: if open transactions commit</span></header>
      ${
        partitions.length
          ? html`<${Table} caption="Lag of each partition, in records" columns=${columns}
            rows=${partitions.slice(0, 300)} rowKey=${(row) => place(row.topic, row.partition)} />
            ${!isCounted && html`<div class="foot">Some partitions have too many records to count here. This counts them: <${Command} text=${exact} /></div>`}
            ${partitions.some((each) => each.committed_offset === null) && html`<div class="foot">Where nothing is committed, consumers begin where their auto.offset.reset says. Lag is counted from the start of the log then (earliest): the worst case.</div>`}`
          : html`<${Empty} title="No committed offsets">The group has committed nothing yet.<//>`
      }
    </section>
    ${
      pending.length > 0 &&
      html`<section class="card"><header><h2>Pending offsets</h2></header>
      <ul class="list">${pending.map(
        (each) => html`<li key=${`${each.topic}-${each.partition}-${each.producer_id}`}>
        ${place(each.topic, each.partition)} goes to offset <b>${count(each.offset)}</b>
        ${` if the transaction of producer ${each.producer_id} commits`}</li>`,
      )}</ul></section>`
    }`;
}

const Members = ({ members }) =>
  members.length > 0 &&
  html`<section class="card"><header><h2>Members</h2></header>
  <ul class="list">${members.slice(0, 100).map(
    (each) => html`<li key=${each.member_id}><b>${visible(each.client_id || each.member_id)}</b>
    <span class="quiet"> ${each.host}</span><div>${each.partitions.length ? each.partitions.join(", ") : "no partitions"}</div></li>`,
  )}</ul></section>`;

function note(row) {
  const parts = [];
  const waiting = (row.lag_min ?? 0) - (row.readable ?? row.lag_min ?? 0);
  if (row.is_counted && waiting > 0) parts.push(`${plural(waiting, "record")} wait behind an open transaction`);
  if (row.committed_offset === null) parts.push("nothing committed: counted from the start of the log");
  if (!row.is_counted) parts.push("too many to count");
  if (row.lost_offsets) parts.push(`${plural(row.lost_offsets, "offset")} deleted before they were read`);
  if (row.has_pending_offset) parts.push("offset pending");
  return parts.join("; ");
}
