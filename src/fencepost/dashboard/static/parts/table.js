// Tables: a caption for those who cannot see them, fixed columns so that nothing jumps, one focusable link per row.
import { html, cls } from "../lib/html.js";
import { count } from "../lib/format.js";

/**
 * columns: [{key, title, width, num, wide, sort, cell(row)}]; `wide` columns are left out on a phone,
 * where `narrow` widths hold.
 * sort: {by, order, change(by, order)} for columns that have `sort`.
 */
export function Table({ caption, columns, rows, rowKey, sort }) {
  return html`<table>
    <caption class="sr">${caption}</caption>
    <colgroup>${columns.map((each) => html`<col key=${each.key} class=${each.wide && "only-wide"}
      style=${each.width ? `--wide:${each.width};--narrow:${each.narrow ?? each.width}` : ""} />`)}</colgroup>
    <thead><tr>${columns.map((each) => html`<${Heading} key=${each.key} column=${each} sort=${sort} />`)}</tr></thead>
    <tbody>${rows.map(
      (row) =>
        html`<tr key=${rowKey(row)}>${columns.map(
          (each) => html`
      <td key=${each.key} class=${classesOf(each)}>${each.cell(row)}</td>`,
        )}</tr>`,
    )}</tbody>
  </table>`;
}

const classesOf = ({ num, wide, quiet, wrap, time }) =>
  cls(num && "num", wide && "only-wide", quiet && "quiet", wrap && "wrap", time && "time");

function Heading({ column, sort }) {
  const classes = cls(column.num && "num", column.wide && "only-wide");
  if (!sort || !column.sort) return html`<th scope="col" class=${classes}>${column.title}</th>`;
  const isBy = sort.by === column.sort;
  const order = isBy ? (sort.order === "asc" ? "ascending" : "descending") : "none";
  const next = isBy ? (sort.order === "asc" ? "desc" : "asc") : column.first || "asc";
  return html`<th scope="col" class=${classes} aria-sort=${order}>
    <button type="button" onClick=${() => sort.change(column.sort, next)}>${column.title}
      <span class="arrow" aria-hidden="true">${isBy ? (sort.order === "asc" ? "▲" : "▼") : ""}</span></button></th>`;
}

/** A row's link: what j and k walk over and Enter opens. */
export const RowLink = ({ href, children, title }) => html`<a href=${href} data-row title=${title}>${children}</a>`;

export function Pager({ offset, limit, matched, total, what, change, others }) {
  const last = Math.min(offset + limit, matched);
  const words = matched === 0 ? `No ${what}` : `${count(offset + 1)}–${count(last)} of ${count(matched)} ${what}`;
  return html`<div class="table-end">
    <span data-matched=${matched}>${words}${others ? `; ${others}` : total !== undefined && total !== matched ? ` (${count(total)} in all)` : ""}</span>
    ${
      matched > limit &&
      html`<span class="end">
      <button type="button" class="button small" disabled=${offset === 0}
        onClick=${() => change(Math.max(0, offset - limit))}>Previous</button>
      <button type="button" class="button small" disabled=${last >= matched}
        onClick=${() => change(offset + limit)}>Next</button>
    </span>`
    }
  </div>`;
}
