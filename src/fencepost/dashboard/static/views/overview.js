// How the cluster does: rates, latencies, what is open, what is held, what just ended.
import { html, useEffect, useRef } from "../lib/html.js";
import { age, count, place, plural, rate, tickingAge, visible } from "../lib/format.js";
import { useLive, useTick } from "../lib/live.js";
import { link } from "../lib/router.js";
import { announce, connection, session, useStore } from "../lib/store.js";
import { Chart, Key } from "../parts/chart.js";
import { Empty, Head, Waiting } from "../parts/frame.js";
import { RowLink, Table } from "../parts/table.js";
import { Tag } from "../parts/tags.js";

const SECONDS_MIN = 60;
const ROWS_MAX = 12;

export function OverviewView() {
  const { document: overview, at } = useLive("overview", {}, "api/overview");
  const { kind } = useStore(connection);
  const passed = useTick(at);
  const held = overview && { rows: overview.held, count: overview.held_count };
  useHeldSaid(held?.count);
  return html`<${Head} title="Overview" under=${overview && summary(overview)} />
    ${
      overview === null
        ? html`<${Waiting} what="the cluster" />`
        : html`<div class=${kind === "live" ? "" : "aged"}>
      <${Tiles} overview=${overview} held=${held.count} passed=${passed} />
      <${Charts} overview=${overview} />
      <div class="grid two tops">
        <div class="grid"><${Held} held=${held} passed=${passed} /><${States} states=${overview.states} /></div>
        <${Recent} rows=${overview.recent} />
      </div>
      <${Notes} note=${overview.note} />
    </div>`
    }`;
}

const summary = ({ totals }) =>
  `${plural(totals.ids, "transactional id")}, ${plural(totals.commits, "commit")} and ` +
  `${plural(totals.aborts, "abort")} since the page's server started`;

/** Readers begin to wait, or are free again: worth saying. A change of a number is not. */
function useHeldSaid(held) {
  const before = useRef(undefined);
  useEffect(() => {
    if (held === undefined) return;
    if (before.current !== undefined && (before.current === 0) !== (held === 0)) {
      announce(held === 0 ? "No partition is held up any more" : `${plural(held, "partition")} held by open transactions`);
    }
    before.current = held;
  }, [held]);
}

function Tiles({ overview, held, passed }) {
  const { totals, oldest_open: oldest } = overview;
  const oldestAge = oldest && (oldest.age_ms ?? 0) + passed;
  return html`<div class="grid tiles">
    <${Tile} label="Open" value=${count(totals.open)} about="transactions ongoing"
      href="#/transactions?state=Ongoing" />
    <${Tile} label="Prepared" value=${count(totals.prepared)} about="decided, markers on their way"
      href="#/transactions?state=PrepareCommit%2CPrepareAbort" />
    <a class="card tile" href=${oldest ? link("transactions", oldest.transactional_id) : "#/transactions"} data-tile="oldest">
      <div class="label">Oldest open</div>
      <div class="value">${oldest ? tickingAge(oldestAge) : "none"}</div>
      ${
        oldest
          ? html`<div class="about">${visible(oldest.transactional_id)} · timeout ${age(oldest.timeout_ms)}</div>
          <div class="meter" aria-hidden="true"><i
            style=${`width:${Math.min(100, (100 * oldestAge) / (oldest.timeout_ms || 1))}%`}></i></div>`
          : html`<div class="about">nothing waits for an end</div>`
      }
    </a>
    <${Tile} label="Held partitions" value=${count(held)} isAlert=${held > 0}
      about=${held ? "read_committed consumers wait" : "no reader waits"} href="#/partitions?held=1" />
  </div>`;
}

const Tile = ({
  label,
  value,
  about,
  href,
  isAlert,
}) => html`<a class="card tile ${isAlert ? "alert" : ""}" href=${href} data-tile=${label}>
  <div class="label">${label}</div><div class="value">${value}</div><div class="about">${about}</div></a>`;

/** The last five minutes, or less while there is less to show. */
function known({ from_s: fromS, ...lines }) {
  const values = Object.values(lines),
    length = values[0]?.length ?? 0;
  const first = Math.min(...values.map((line) => line.findIndex(Boolean)).map((at) => (at === -1 ? length : at)));
  const start = Math.max(0, Math.min(first - 5, length - SECONDS_MIN));
  return {
    fromS: fromS + start,
    lines: Object.fromEntries(Object.entries(lines).map(([name, line]) => [name, line.slice(start)])),
  };
}

function Charts({ overview }) {
  const rates = known(overview.rates),
    latencies = known(overview.latency);
  const perSecond = [
    { name: "Commits", values: rates.lines.commits, colour: "accent", isFilled: true, text: rate },
    { name: "Aborts", values: rates.lines.aborts, colour: "aborted", isDashed: true, text: rate },
  ];
  const latency = [
    { name: "p50", values: latencies.lines.p50_ms, colour: "accent", text: age },
    { name: "p99", values: latencies.lines.p99_ms, colour: "ink-2", isDashed: true, text: age },
  ];
  return html`<div class="grid two">
    <section class="card"><header><h2>Transactions per second</h2><${Key} series=${perSecond} /></header>
      <div class="body"><${Chart} title="Transactions per second" unit=" per second" fromS=${rates.fromS}
        series=${perSecond} axisText=${rate} /></div></section>
    <section class="card"><header><h2>From decision to last marker</h2><${Key} series=${latency} /></header>
      <div class="body"><${Chart} title="Commit latency, from Prepare to Complete, median and 99th percentile" unit=""
        fromS=${latencies.fromS} series=${latency} axisText=${age} /></div></section>
  </div>`;
}

function Held({ held, passed }) {
  const columns = [
    {
      key: "where",
      title: "Partition",
      wrap: true,
      width: "40%",
      narrow: "40%",
      cell: (row) =>
        html`<${RowLink} href=${link("partitions", row.topic, row.partition)}>${place(row.topic, row.partition)}<//>`,
    },
    {
      key: "by",
      title: "Held by",
      wrap: true,
      cell: (row) =>
        row.transactional_id
          ? html`<a href=${link("transactions", row.transactional_id)}>${visible(row.transactional_id)}</a>`
          : `producer ${row.producer_id}`,
    },
    {
      key: "offsets",
      title: "Offsets behind",
      num: true,
      width: "118px",
      wide: true,
      cell: (row) => count(row.high_watermark - row.last_stable_offset),
    },
    {
      key: "age",
      title: "Open for",
      num: true,
      width: "96px",
      narrow: "84px",
      cell: (row) => tickingAge(row.age_ms + passed),
    },
  ];
  return html`<section class="card"><header><h2>Held partitions</h2><span class="end">longest first</span></header>
    ${
      held.rows.length
        ? html`<${Table} caption="Partitions whose last stable offset is held back by an open transaction" columns=${columns}
          rows=${held.rows.slice(0, ROWS_MAX)} rowKey=${(row) => place(row.topic, row.partition)} />`
        : html`<${Empty} title="Nothing is held">Readers of committed records see everything that was decided.<//>`
    }
    ${held.count > ROWS_MAX && html`<div class="foot"><a class="text"
      href="#/partitions?held=1">All ${count(held.count)} held partitions</a></div>`}
  </section>`;
}

const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"];

function States({ states }) {
  const rows = [...STATES, ...Object.keys(states).filter((state) => !STATES.includes(state))].filter(
    (state) => states[state],
  );
  const columns = [
    {
      key: "state",
      title: "State",
      cell: (state) => html`<a href=${`#/transactions?state=${state}`}><${Tag} state=${state} /></a>`,
    },
    { key: "ids", title: "Ids", num: true, width: "110px", cell: (state) => count(states[state]) },
  ];
  return (
    rows.length > 0 &&
    html`<section class="card"><header><h2>Transactional ids by state</h2></header>
    <${Table} caption="Number of transactional ids by state" columns=${columns} rows=${rows}
      rowKey=${(state) => state} /></section>`
  );
}

function Recent({ rows }) {
  const newest = [...rows].sort((a, b) => b.completed_ms - a.completed_ms).slice(0, ROWS_MAX);
  const columns = [
    {
      key: "id",
      title: "Transaction",
      wrap: true,
      cell: (row) => html`<${RowLink} href=${link("transactions", row.transactional_id)}>${visible(row.transactional_id)}<//>`,
    },
    {
      key: "outcome",
      title: "Outcome",
      width: "116px",
      narrow: "108px",
      cell: (row) => html`<${Tag} state=${row.outcome}>${row.outcome === "commit" ? "committed" : "aborted"}<//>`,
    },
    {
      key: "parts",
      title: "Partitions",
      num: true,
      width: "88px",
      wide: true,
      cell: (row) => count(row.partition_count),
    },
    {
      key: "took",
      title: "Took",
      num: true,
      width: "84px",
      cell: (row) => (row.start_ms >= 0 && row.start_ms !== null ? age(row.completed_ms - row.start_ms) : "–"),
    },
  ];
  return html`<section class="card"><header><h2>Just ended</h2><span class="end">newest first</span></header>
    ${
      rows.length
        ? html`<${Table} caption="Recently ended transactions" columns=${columns} rows=${newest}
          rowKey=${(row) => `${row.transactional_id}/${row.completed_ms}`} />`
        : html`<${Empty} title="No transaction has ended yet">Transactions appear here as they complete.<//>`
    }
  </section>`;
}

function Notes({ note }) {
  const known = useStore(session);
  const notes = [...new Set([note, ...(known?.notes ?? [])])].filter(Boolean);
  return (
    notes.length > 0 &&
    html`<div class="notes" role="note">${notes.map((each) => html`<p key=${each}>${each}</p>`)}</div>`
  );
}
