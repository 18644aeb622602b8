// Spark pipelines: one card each, with its batches and the records it has still to read.
import { html } from "../lib/html.js";
import { age, bounds, count, moment, visible } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { link } from "../lib/router.js";
import { Empty, Head, Waiting } from "../parts/frame.js";
import { Tag, look } from "../parts/tags.js";

const BATCHES_MAX = 40,
  IDS_MAX = 12;

export function Pipelines() {
  const { document: found } = useLive("pipelines", {}, "api/pipelines");
  return html`<${Head} title="Pipelines"
    under="Spark pipelines, recognized by their client ids, groups and transactional ids" />
    ${
      found === null
        ? html`<${Waiting} what="pipelines" />`
        : found.rows.length === 0
          ? html`<div class="card"><${Empty}
            title="No pipelines">They appear when a pipeline of fencepost.spark has run a batch on this cluster.<//></div>`
          : found.rows.map((row) => html`<${Pipeline} key=${row.pipeline} row=${row} />`)
    }`;
}

const OUTCOMES = { committed: "committed", aborted: "aborted", open: "open", none: "" };

function Pipeline({ row }) {
  const batches = (row.batches ?? []).slice(0, BATCHES_MAX).reverse();
  const ids = row.transactional_ids ?? [];
  return html`<section class="card" aria-label=${`Pipeline ${row.pipeline}`}>
    <header><h2>${row.pipeline}</h2><${Tag} state=${row.state || "none"} />
      <span class="end">${row.last_commit_ms ? `last commit ${moment(row.last_commit_ms)}` : "no commit seen"}</span></header>
    <dl class="facts">
      <div><dt>Batch</dt><dd>${count(row.batch)}</dd></div>
      <div><dt>Last batch took</dt><dd>${age(row.last_batch_took_ms)}</dd></div>
      <div><dt>Records to read</dt><dd>${bounds(row.lag_min, row.lag_max)}</dd></div>
      <div><dt>Application</dt><dd>${row.application ?? "–"}</dd></div>
      <div><dt>Group</dt><dd>${row.group_id ? html`<a class="text"
        href=${link("groups", row.group_id)}>${visible(row.group_id)}</a>` : "–"}</dd></div>
      <div><dt>Transactional ids</dt><dd><${Ids} ids=${ids} /></dd></div>
    </dl>
    ${
      batches.length > 0 &&
      html`<ul class="chips" aria-label="Batches, oldest first" style="list-style:none;margin:0">${batches.map(
        (each) => {
          const kind = look(each.outcome ?? "open");
          const took = each.completed_ms && each.start_ms > 0 ? `, took ${age(each.completed_ms - each.start_ms)}` : "";
          const words = `Batch ${each.batch}: ${OUTCOMES[kind] || each.outcome}${took}`;
          return html`<li key=${`${each.batch}/${each.completed_ms}`} class="chip ${kind}" title=${words}><span
            aria-hidden="true">${each.batch ?? "?"}${kind === "aborted" ? " ✕" : kind === "open" ? " …" : ""}</span><span class="sr">${words}</span></li>`;
        },
      )}</ul>`
    }
  </section>`;
}

function Ids({ ids }) {
  if (ids.length === 0) return "–";
  const links = ids
    .slice(0, IDS_MAX)
    .map((id, at) => html`${at ? ", " : ""}<a class="text" href=${link("transactions", id)}>${id}</a>`);
  return html`${links}${ids.length > IDS_MAX ? ` and ${count(ids.length - IDS_MAX)} more` : ""}`;
}
