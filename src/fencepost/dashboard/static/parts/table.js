// Tables: a caption for those who cannot see them, fixed columns so that nothing jumps, one focusable link per row.
import { html, cls } from "../lib/html.js";
import { count } from "../lib/format.js";

/** What a column without a width of its own, which is one of names, wants to have at least. */
const NAME_WIDTH = 190;
const STEP = 60,
  STEP_MIN = 360,
  STEP_MAX = 1020;

const wants = ({ width }) => (width?.endsWith("px") ? parseInt(width, 10) : NAME_WIDTH);
/** Up to the next step that tables.css knows. */
const stepOf = (pixels) => Math.min(STEP_MAX, Math.max(STEP_MIN, Math.ceil(pixels / STEP) * STEP));

/** From which width of the table on each column has room: those that are not `wide` always, the others one by one. */
function steps(columns) {
  let sum = columns.filter((each) => !each.wide).reduce((all, each) => all + wants(each), 0);
  const base = stepOf(sum),
    from = {};
  for (const each of columns.filter((column) => column.wide)) {
    sum += wants(each);
    from[each.key] = `from-${stepOf(sum)}`;
  }
  return { base, from };
}

/**
 * columns: [{key, title, width, num, wide, wrap, sort, cell(row)}]; `wide` columns are left out, the last one
 * first, where the table (not the window) has no room for them; `narrow` widths hold where even the others have none.
 * Names wrap: they never lose their ends.
 * sort: {by, order, change(by, order)} for columns that have `sort`.
 */
export function Table({ caption, columns, rows, rowKey, sort }) {
  const { base, from } = steps(columns);
  return html`<div class="table-box step-${base}"><table>
    <caption class="sr">${caption}</caption>
    <colgroup>${columns.map((each) => html`<col key=${each.key} class=${from[each.key]}
      style=${each.width ? `--wide:${each.width};--narrow:${each.narrow ?? each.width}` : ""} />`)}</colgroup>
    <thead><tr>${columns.map((each) => html`<${Heading} key=${each.key} column=${each} from=${from[each.key]} sort=${sort} />`)}</tr></thead>
    <tbody>${rows.map(
      (row) =>
        html`<tr key=${rowKey(row)}>${columns.map(
          (each) => html`
      <td key=${each.key} class=${cls(classesOf(each), from[each.key])}>${each.cell(row)}</td>`,
        )}</tr>`,
    )}</tbody>
  </table></div>`;
}

const classesOf = ({ num, quiet, wrap, time }) =>
  cls(num && "num", quiet && "quiet", wrap && "wrap", time && "time");

function Heading({ column, from, sort }) {
  const classes = cls(column.num && "num", from);
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
