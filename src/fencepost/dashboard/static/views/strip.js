// A stretch of a log, drawn: what was committed, aborted, is open or plain; markers; and how far readers may go.
import { html, cls, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { count, plural } from "../lib/format.js";
import { panned, ticks, within, zoomed } from "./strip_window.js";

const LABELS = 40,
  STRIP = 58,
  MARKERS = 22,
  AXIS = 20;
const HEIGHT = LABELS + STRIP + MARKERS + AXIS;
const CLICK_PX = 4;

/** strip: the document; shown: the window; move(window | null): null follows the end; chosen: an offset. */
export function Strip({ strip, shown, move, chosen, choose }) {
  const place = useRef(null),
    drag = useRef(null);
  const [width, setWidth] = useState(0);
  const log = { start: strip.log_start_offset, end: strip.high_watermark };
  const live = useRef(null);
  live.current = { shown, log, move, width };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  // A wheel listener that may stop the page from scrolling has to say so itself.
  useEffect(() => {
    const element = place.current;
    function wheel(event) {
      event.preventDefault();
      const now = live.current,
        box = element.getBoundingClientRect();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
        now.move(panned(now.shown, event.deltaX / now.width, now.log));
      else
        now.move(
          zoomed(
            now.shown,
            Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))),
            (event.clientX - box.left) / box.width,
            now.log,
          ),
        );
    }
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const size = shown.to - shown.from,
    x = (offset) => ((offset - shown.from) / size) * width;
  const seen = strip.pieces.filter((piece) => piece.last_offset >= shown.from && piece.first_offset < shown.to);

  const isEnd = strip.log_end_offset === undefined || strip.log_end_offset === strip.high_watermark;

  function step(direction) {
    const at = seen.findIndex((piece) => piece.first_offset === chosen);
    const next =
      seen[at === -1 ? (direction > 0 ? 0 : seen.length - 1) : Math.max(0, Math.min(seen.length - 1, at + direction))];
    if (next) choose(next.first_offset);
  }
  function pressed(event) {
    const actions = {
      "+": () => move(zoomed(shown, 0.6, 0.5, log)),
      "=": () => move(zoomed(shown, 0.6, 0.5, log)),
      "-": () => move(zoomed(shown, 1 / 0.6, 0.5, log)),
      ArrowLeft: () => move(panned(shown, -0.2, log)),
      ArrowRight: () => move(panned(shown, 0.2, log)),
      Home: () => move(within({ from: log.start, to: log.start + size }, log)),
      End: () => move(null),
      n: () => step(1),
      p: () => step(-1),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }
  const offsetAt = (event) =>
    shown.from + ((event.clientX - place.current.getBoundingClientRect().left) / Math.max(1, width)) * size;
  function grabbed(event) {
    if (event.button !== 0) return;
    drag.current = { x: event.clientX, shown, hasMoved: false };
    place.current.setPointerCapture(event.pointerId);
  }
  function dragged(event) {
    const held = drag.current;
    if (!held || (!held.hasMoved && Math.abs(event.clientX - held.x) < CLICK_PX)) return;
    held.hasMoved = true;
    move(panned(held.shown, (held.x - event.clientX) / Math.max(1, width), log));
  }
  function released(event) {
    const held = drag.current;
    drag.current = null;
    if (!held || held.hasMoved) return;
    const offset = offsetAt(event);
    choose(seen.find((piece) => offset >= piece.first_offset && offset < piece.last_offset + 1)?.first_offset ?? null);
  }

  return html`<div ref=${place} class="strip" data-strip data-from=${shown.from} data-to=${shown.to} tabindex="0"
    role="application"
      aria-label=${summary(strip, seen, shown)} aria-keyshortcuts="+ - ArrowLeft ArrowRight Home End n p"
      onKeyDown=${pressed} onPointerDown=${grabbed} onPointerMove=${dragged} onPointerUp=${released}
        onPointerCancel=${() => {
        drag.current = null;
      }}>
    ${
      width > 0 &&
      html`<svg class="picture" width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
      <${Patterns} />
      <rect class="beyond" x="0" y=${LABELS} width=${width} height=${STRIP} rx="6" />
      ${seen.map((piece) => {
        const x1 = Math.max(-4, x(piece.first_offset)),
          x2 = Math.min(width + 4, x(piece.last_offset + 1)),
          gap = x2 - x1 > 5 ? 1 : 0;
        return html`<rect key=${piece.first_offset}
          class=${cls("piece", piece.kind, piece.first_offset === chosen && "chosen")} data-kind=${piece.kind}
            x=${x1 + gap / 2} y=${LABELS + 5} width=${Math.max(1, x2 - x1 - gap)} height=${STRIP - 10}
              rx=${gap ? 3 : 0} />`;
      })}
      <${Markers} markers=${strip.markers} shown=${shown} x=${x} />
      <${Held} strip=${strip} x=${x} width=${width} />
      <${Mark} kind="lso" text=${`last stable ${count(strip.last_stable_offset)}`} at=${x(strip.last_stable_offset)}
        width=${width} row=${0} />
      <${Mark} kind="high" text=${`${isEnd ? "high watermark and end" : "high watermark"} ${count(strip.high_watermark)}`} at=${x(strip.high_watermark)} width=${width} row=${1} />
      ${strip.log_end_offset > strip.high_watermark && html`<${Mark} kind="high"
        text=${`end ${count(strip.log_end_offset)}`} at=${x(strip.log_end_offset)} width=${width} row=${1} />`}
      ${ticks(shown, width).map(
        (
          offset,
        ) => html`<g key=${offset}><line class="rule" x1=${x(offset)} x2=${x(offset)} y1=${LABELS + STRIP}
          y2=${HEIGHT - AXIS + 4} />
        <text class="faint" x=${Math.min(Math.max(x(offset), 2), width - 2)}
          text-anchor=${x(offset) < 24 ? "start" : x(offset) > width - 24 ? "end" : "middle"}
            y=${HEIGHT - 5}>${count(offset)}</text></g>`,
      )}
    </svg>`
    }
    <${Whole} strip=${strip} shown=${shown} width=${width} move=${move} log=${log} />
  </div>`;
}

function summary(strip, seen, shown) {
  const of = (kind) => seen.filter((piece) => piece.kind === kind).reduce((all, piece) => all + piece.records, 0);
  const held =
    strip.last_stable_offset < strip.high_watermark
      ? `read_committed consumers stop at ${count(strip.last_stable_offset)}`
      : "nothing holds the readers";
  const counts = ["committed", "aborted", "open", "plain"].map((kind) => plural(of(kind), `${kind} record`)).join(", ");
  return `Offsets ${count(shown.from)} to ${count(shown.to)}: ${counts}; ${held}, the end is at ${count(strip.high_watermark)}`;
}

export const Patterns = () => html`<defs>
  <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
    <rect width="6" height="6" fill="var(--aborted-soft)" /><rect width="2.4" height="6"
      fill="var(--aborted-fill)" /></pattern>
  <pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">
    <rect width="6" height="6" fill="var(--open-soft)" /><circle cx="2" cy="2" r="1.5" fill="var(--open-fill)" /><circle
      cx="5" cy="5" r="1.5" fill="var(--open-fill)" /></pattern>
</defs>`;

/** Diamonds where there is room, thin ticks where they would be a carpet. */
function Markers({ markers, shown, x }) {
  const seen = markers.filter((marker) => marker.offset >= shown.from && marker.offset < shown.to);
  const room = (x(shown.to) - x(shown.from)) / Math.max(1, seen.length),
    y = LABELS + STRIP + 9;
  return seen.map((marker) => {
    const at = x(marker.offset + 0.5),
      isCommit = marker.kind === "COMMIT";
    if (room < 12)
      return html`<line key=${marker.offset} data-marker=${marker.kind} x1=${at} x2=${at} y1=${y - 5}
        y2=${isCommit ? y + 1 : y + 6} stroke=${`var(--${isCommit ? "accent" : "aborted"})`}
          stroke-width=${isCommit ? 1 : 1.5} />`;
    return html`<g key=${marker.offset} data-marker=${marker.kind}><path class=${cls("diamond", marker.kind)}
      d=${`M${at} ${y - 6}l6 6l-6 6l-6 -6z`} />
      ${!isCommit && html`<path class="cross" d=${`M${at - 2} ${y - 2}l4 4m0 -4l-4 4`} />`}</g>`;
  });
}

function Held({ strip, x, width }) {
  const x1 = Math.max(0, x(strip.last_stable_offset)),
    x2 = Math.min(width, x(strip.high_watermark));
  if (strip.last_stable_offset >= strip.high_watermark || x2 <= 0 || x1 >= width) return null;
  return html`<rect x=${x1} y=${LABELS} width=${Math.max(0, x2 - x1)} height="3" fill="var(--open-fill)" />`;
}

function Mark({ kind, text, at, width, row }) {
  if (at < -1 || at > width + 1) return null;
  const isLeft = at > width / 2,
    px = Math.min(Math.max(at, 1), width - 1);
  return html`<g class=${`mark ${kind}`} data-mark=${kind}><line x1=${px} x2=${px} y1=${4 + row * 17}
    y2=${LABELS + STRIP} />
    <text x=${isLeft ? px - 6 : px + 6} text-anchor=${isLeft ? "end" : "start"} y=${13 + row * 17}>${text}</text></g>`;
}

/** The whole log in one line, to see where the window is and to go elsewhere. */
function Whole({ strip, shown, width, move, log }) {
  const size = Math.max(1, log.end - log.start),
    x = (offset) => ((offset - log.start) / size) * width;
  if (width === 0 || shown.to - shown.from >= size) return null;
  const go = (event) => {
    event.stopPropagation();
    const offset = log.start + ((event.clientX - event.currentTarget.getBoundingClientRect().left) / width) * size,
      half = (shown.to - shown.from) / 2;
    move(within({ from: offset - half, to: offset + half }, log));
  };
  return html`<svg class="mini" width=${width} height="14" viewBox=${`0 0 ${width} 14`} aria-hidden="true"
    onPointerDown=${go} onPointerUp=${(event) => event.stopPropagation()}>
    <rect class="track" x="0" y="4" width=${width} height="6" rx="3" />
    ${strip.last_stable_offset < log.end && html`<rect class="held" x=${x(strip.last_stable_offset)} y="4"
      width=${Math.max(2, x(log.end) - x(strip.last_stable_offset))} height="6" rx="2" />`}
    <rect class="window" x=${Math.max(1, Math.min(width - 7, x(shown.from)))} y="1.5"
      width=${Math.max(6, Math.min(width - 2, x(shown.to) - x(shown.from)))} height="11" rx="4" />
  </svg>`;
}
