// The life of a transactional id as a picture, and the same as a table.
import { html, cls, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";
import { count, moment } from "../lib/format.js";
import { Segments } from "../parts/controls.js";
import { Empty } from "../parts/frame.js";
import { Table } from "../parts/table.js";
import { GAP_MIN, layOut, momentsOf } from "./timeline_layout.js";

export function Timeline({ lanes, history, atMs, isOpen }) {
  const place = useRef(null);
  const [width, setWidth] = useState(0),
    [isToScale, setToScale] = useState(false);
  const [view, setView] = useState({ size: null, end: null });
  const [chosen, setChosen] = useState(null);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);

  const moments = useMemo(() => momentsOf(lanes), [lanes]);
  const most = Math.max(4, Math.floor(width / GAP_MIN)),
    size = Math.min(view.size ?? Math.max(6, Math.floor(width / 52)), most);
  const last = view.end === null ? moments.length - 1 : Math.min(view.end, moments.length - 1),
    first = Math.max(0, last - size + 1);
  const isAtEnd = last === moments.length - 1;
  const from = moments[first] ?? 0,
    to = moments[last] ?? 0;
  const picture =
    width > 0 && moments.length > 0
      ? layOut(lanes, { width, from, to, endMs: isAtEnd && isOpen ? atMs : 0, isToScale })
      : null;
  const item = picture?.items.find((each) => each.key === chosen) ?? null;
  const shift = (step) => setView({ size, end: Math.max(size - 1, Math.min(moments.length - 1, last + step)) });
  const zoom = (factor) =>
    setView({ size: Math.max(4, Math.min(most, Math.round(size * factor))), end: isAtEnd ? null : last });

  function later() {
    const step = Math.ceil(size / 2);
    if (last + step >= moments.length - 1) setView({ size, end: null });
    else shift(step);
  }
  function walk(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !picture) return;
    event.preventDefault();
    const at = picture.items.findIndex((each) => each.key === chosen);
    const next = picture.items[Math.max(0, Math.min(picture.items.length - 1, at + step))];
    setChosen(next.key);
    place.current.querySelector(`[data-key="${CSS.escape(next.key)}"]`)?.focus();
  }

  return html`<section class="card" aria-label="Timeline">
    <header><h2>Timeline</h2>
      <span class="quiet">${moments.length > size ? `moments ${count(first + 1)}–${count(last + 1)} of ${count(moments.length)}` : ""}</span>
      <div class="strip-tools" style="margin-left:auto">
        <span class="only-wide"><${Segments} label="Time scale" value=${isToScale ? "scale" : "even"}
          change=${(key) => setToScale(key === "scale")} options=${[
          ["even", "Readable"],
          ["scale", "To scale"],
        ]} /></span>
        ${
          moments.length > 6 &&
          html`
          <button type="button" class="button small" disabled=${first === 0}
            onClick=${() => shift(-Math.ceil(size / 2))}>Earlier</button>
          <button type="button" class="button small" disabled=${isAtEnd}
            onClick=${later}>Later</button>
          <button type="button" class="button small" aria-label="Show fewer moments" disabled=${size <= 4}
            onClick=${() => zoom(0.6)}>+</button>
          <button type="button" class="button small" aria-label="Show more moments"
            disabled=${size >= Math.min(most, moments.length)} onClick=${() => zoom(1.6)}>−</button>`
        }
      </div></header>
    <div class="body" ref=${place} onKeyDown=${walk}>
      ${picture === null ? moments.length === 0 && html`<${Empty}
        title="Nothing to draw">No state of this id has survived.<//>` : html`<${Picture} picture=${picture}
          chosen=${chosen} choose=${setChosen} />`}
    </div>
    <div class="facts-line" data-facts>
      ${item ? html`<b>${item.title}</b> ${item.words}` : "Point at a part of the picture, or move along it with the arrow keys."}
    </div>
    <${Moments} history=${history} from=${from} to=${Math.max(to, isAtEnd ? Infinity : to)} />
  </section>`;
}

function Picture({ picture, chosen, choose }) {
  const { width, height, bands, rows, items, gaps, ticks, top, edge, left } = picture;
  const firstKey = items.some((each) => each.key === chosen) ? chosen : items[0]?.key;
  return html`<svg class="picture" data-timeline viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}
    role="group"
      aria-label=${`Timeline with ${items.length} parts. The table below has the same content.`}>
    ${bands.map(
      (band) => html`<g key=${band.key}>
      ${band.isTinted && html`<rect class="band" x=${band.x1} y="0" width=${band.x2 - band.x1}
        height=${height - 18} />`}
      <text class="faint" x=${band.x1 + 5} y="13">${band.text}</text></g>`,
    )}
    <line class="rule" x1=${left} x2=${edge} y1=${top} y2=${top} />
    ${ticks.map((tick) => html`<line key=${tick.key} class="rule" x1=${tick.x} x2=${tick.x} y1=${top - 3}
      y2=${height - 18} opacity="0.65" />`)}
    ${gaps.map((gap) => html`<text key=${gap.key} class="faint" text-anchor="middle" x=${(gap.x1 + gap.x2) / 2}
      y=${top + 13}>${gap.text}</text>`)}
    ${items.filter((each) => each.kind === "flag").map((each) => html`<line key=${`pole/${each.key}`} class="pole"
      x1=${each.pole} x2=${each.pole} y1=${top} y2=${each.y + each.h} />`)}
    ${rows.map((row) => html`<text key=${row.label} class="lane" x=${left} y=${row.y + 9}>${row.label}</text>`)}
    ${items.map(
      (
        each,
      ) => html`<g key=${each.key} data-key=${each.key} data-kind=${each.kind}
        class=${cls(each.key === chosen && "chosen")} role="img"
      tabindex=${each.key === firstKey ? "0" : "-1"} aria-label=${`${each.title}: ${each.words}`}
      onMouseEnter=${() => choose(each.key)} onFocus=${() => choose(each.key)}
        onClick=${() => choose(each.key)}>${shapeOf(each)}</g>`,
    )}
    ${ticks.filter((tick) => tick.text).map((tick) => html`<text key=${tick.key} class="faint" x=${tick.x}
      y=${height - 4}>${tick.text}</text>`)}
  </svg>`;
}

function shapeOf(each) {
  const middle = each.y + each.h / 2;
  const hit = html`<rect class="hit" x=${each.x1 - 2} y=${each.y - 2} width=${Math.max(4, each.x2 - each.x1 + 4)}
    height=${each.h + 4} rx="5" />`;
  switch (each.kind) {
    case "state":
      return html`<rect class=${cls("seg", each.look, each.isPrepared && "prepared")} x=${each.x1 + 1} y=${each.y}
        width=${Math.max(2, each.x2 - each.x1 - 2)} height=${each.h} rx="5" />
        <text class="inside" text-anchor="middle" x=${(each.x1 + each.x2) / 2}
          y=${middle + 4}>${each.inside}</text>${hit}`;
    case "span":
      return html`${each.tailTo > each.x2 && html`<line class=${cls("tail", each.isOpen && "open")} x1=${each.x2}
        x2=${each.tailTo} y1=${middle} y2=${middle} />`}
        <rect class=${cls("seg", each.look)} x=${each.x1} y=${each.y + 3} width=${Math.max(4, each.x2 - each.x1)}
          height=${each.h - 6} rx="4" />
        <text class="inside" x=${each.x2 - each.x1 > each.inside.length * 6.3 + 8 ? each.x1 + 6 : each.x2 + 5}
          y=${each.x2 - each.x1 > each.inside.length * 6.3 + 8 ? middle + 4 : middle - 4}>${each.inside}</text>${hit}`;
    case "marker": {
      const r = 7,
        x = each.at;
      return html`<path class=${cls("diamond", each.end)}
        d=${`M${x} ${middle - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`} />
        ${each.end === "ABORT" && html`<path class="cross"
          d=${`M${x - 2.3} ${middle - 2.3}l4.6 4.6m0 -4.6l-4.6 4.6`} />`}${hit}`;
    }
    default:
      return html`<rect class=${cls("flag", each.isBad && "bad")} x=${each.x1} y=${each.y} width=${each.x2 - each.x1}
        height=${each.h} rx="3" />
        <text class=${cls("flag-text", each.isBad && "bad")} x=${each.x1 + 8}
          y=${middle + 3.8}>${each.text}</text>${hit}`;
  }
}

const KINDS = { state: "State", cause: "Cause*", records: "Records" };
const ROWS_MAX = 200;

function Moments({ history, from, to }) {
  if (!history) return null;
  const rows = history.filter((each) => each.time_ms >= from && each.time_ms <= to).slice(-ROWS_MAX);
  const columns = [
    {
      key: "time",
      title: "Time",
      width: "132px",
      narrow: "122px",
      quiet: true,
      time: true,
      cell: (row) => moment(row.time_ms, true),
    },
    { key: "kind", title: "Kind", width: "92px", wide: true, cell: (row) => KINDS[row.kind] ?? row.kind },
    { key: "text", title: "What happened", wrap: true, cell: (row) => row.text },
  ];
  return html`<${Table} caption="The timeline as a table, oldest first" columns=${columns}
    rows=${rows.map((row, at) => ({ ...row, key: `${row.time_ms}/${row.kind}/${at}` }))} rowKey=${(row) => row.key} />
    ${rows.some((row) => row.kind === "cause") && html`<div
      class="foot">* recorded by Fencepost; Apache Kafka keeps no such record</div>`}`;
}
