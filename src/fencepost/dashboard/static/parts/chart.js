// A line chart of the last minutes by uPlot, with a key that shows the latest values and a sentence for screen readers.
import uPlot from "../vendor/uplot.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { colour, theme } from "../lib/theme.js";
import { useStore } from "../lib/store.js";

const HEIGHT = 190;

/** series: [{name, values, colour: token, isDashed, isFilled, text(value)}]; fromS: the time of the first value. */
export function Chart({ title, fromS, series, unit, axisText }) {
  const place = useRef(null),
    plot = useRef(null);
  const shown = useStore(theme);
  const length = Math.max(...series.map((each) => each.values.length), 0);
  const data = [Array.from({ length }, (_, at) => fromS + at), ...series.map((each) => each.values)];

  useEffect(() => {
    const axis = {
      stroke: colour("ink-3"),
      font: "11px Inter, sans-serif",
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
    };
    const options = {
      width: Math.max(120, place.current.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      padding: [10, 24, 0, 0],
      scales: { y: { range: (_, low, high) => [0, niceTop(high)] } },
      axes: [
        { ...axis, grid: { show: false }, space: 80, size: 26, values: (_, ticks) => ticks.map(hourAndMinute) },
        { ...axis, size: 48, space: 34, values: (_, ticks) => ticks.map(axisText) },
      ],
      series: [
        {},
        ...series.map((each) => ({
          label: each.name,
          stroke: colour(each.colour),
          width: 1.75,
          dash: each.isDashed ? [5, 4] : undefined,
          fill: each.isFilled ? `color-mix(in srgb, ${colour(each.colour)} 10%, transparent)` : undefined,
          spanGaps: true,
          points: { show: false },
        })),
      ],
    };
    plot.current = new uPlot(options, data, place.current);
    const observer = new ResizeObserver(([entry]) =>
      plot.current.setSize({ width: Math.max(120, entry.contentRect.width), height: HEIGHT }),
    );
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shown]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [fromS, length, series.map((each) => each.values.at(-1)).join()]);

  return html`<figure>
    <div class="chart" ref=${place} role="img"
      aria-label=${`${title}. ${series.map((each) => sentence(each, unit)).join(" ")}`}></div>
  </figure>`;
}

export const Key = ({ series }) =>
  html`<div class="key" aria-hidden="true">${series.map(
    (each) => html`<span key=${each.name}>
  <svg viewBox="0 0 22 12"><path d="M1 6h20" stroke=${`var(--${each.colour})`} stroke-width="2.2"
    stroke-dasharray=${each.isDashed ? "5 3.5" : "none"} /></svg>
  ${each.name} <b>${each.text(latest(each.values))}</b></span>`,
  )}</div>`;

const known = (values) => values.filter((value) => value !== null && value !== undefined);
const latest = (values) => known(values).at(-1) ?? null;
function sentence(each, unit) {
  const values = known(each.values);
  if (!values.length) return `${each.name}: nothing yet.`;
  const [low, high] = [Math.min(...values), Math.max(...values)].map(each.text);
  return `${each.name}: ${each.text(values.at(-1))}${unit} now, between ${low} and ${high}${unit} in the last minutes.`;
}
const hourAndMinute = (seconds) => {
  const at = new Date(seconds * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
};
/** The next of 1, 2, 5 times a power of ten, so that the scale does not tremble with every document. */
function niceTop(high) {
  if (!(high > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(high));
  return [1, 2, 5, 10].map((factor) => factor * power).find((top) => top >= high * 1.05) ?? 20 * power;
}
