// Where the parts of a timeline stand. Pure: lanes and a width in, boxes out; nothing is drawn here.
//
// Transactions live in bursts: four states within milliseconds, then nothing for a minute. Drawn to scale a burst is
// one pixel. So every interval between two moments gets a width that grows with the logarithm of its length, and says its
// length. "To scale" draws time as it was.
import { age, clock, count, place, plural } from "../lib/format.js";
import { look } from "../parts/tags.js";

export const GAP_MIN = 30;
const PAD = 8,
  LANE = 50,
  BAR = 26,
  CHAR = 6.3;
const AXIS_TOP = 24,
  FLAG_ROW = 24,
  FLAG_ROWS_MAX = 6;

/** Every distinct time in the lanes, oldest first. */
export function momentsOf(lanes) {
  const times = new Set();
  const add = (time) => {
    if (time !== null && time !== undefined && time >= 0) times.add(time);
  };
  for (const each of lanes.coordinator) add(each.time_ms);
  for (const each of lanes.causes ?? []) add(each.time_ms);
  for (const lane of lanes.partitions)
    for (const span of lane.spans) {
      add(span.from_ms);
      add(span.to_ms);
      add(span.marker_ms);
    }
  return [...times].sort((a, b) => a - b);
}

/** A place on the picture for every time of a window. The room behind the last moment is for what has not ended. */
function scaleOf(times, width, isToScale) {
  const room = width - 2 * PAD;
  const weights = times
    .slice(1)
    .map((time, at) => (isToScale ? time - times[at] : 1 + 0.75 * Math.log10(1 + time - times[at])));
  const sum = weights.reduce((all, each) => all + each, 0) || 1;
  const places = [PAD];
  for (const weight of weights) places.push(places.at(-1) + (room * weight) / sum);
  return (time) => {
    if (time <= times[0]) return PAD;
    if (time >= times.at(-1)) return width - PAD;
    let at = times.findIndex((each) => each >= time);
    if (times[at] === time) return places[at];
    at -= 1;
    return places[at] + ((time - times[at]) / (times[at + 1] - times[at])) * (places[at + 1] - places[at]);
  };
}

const fits = (text, room) => text.length * CHAR <= room - 10;
const cut = (text, room) => (fits(text, room) ? text : "");

export function layOut(lanes, { width, from, to, endMs, isToScale }) {
  const inside = momentsOf(lanes).filter((time) => time >= from && time <= to);
  if (!inside.length) return null;
  const end = Math.max(endMs, inside.at(-1));
  // What holds at the end of the window reaches to its edge, so the last state has a width of its own.
  const hasEnd = end > inside.at(-1);
  const times = hasEnd
    ? [...inside, end]
    : [...inside, inside.at(-1) + Math.max(1, (inside.at(-1) - inside[0]) * 0.06)];
  const x = scaleOf(times, width, isToScale);
  const edge = width - PAD,
    sees = (first, last) => last >= times[0] && first <= times.at(-1);
  const items = [],
    rows = [];
  let y = AXIS_TOP + 22;

  const bands = bandsOf(lanes.epochs, x, times, edge);
  rows.push({ label: "Coordinator", y });
  stateItems(lanes, x, sees, edge, y, items);
  y += LANE;
  for (const lane of lanes.partitions) {
    const seen = lane.spans.filter((span) => sees(span.from_ms, span.marker_ms ?? times.at(-1)));
    if (!seen.length) continue;
    rows.push({
      label: place(lane.topic, lane.partition) + (Number.isInteger(lane.leader) ? ` · broker ${lane.leader}` : ""),
      y,
    });
    for (const span of seen) spanItems(lane, span, x, edge, y, items);
    y += LANE;
  }
  for (const each of lanes.groups ?? []) {
    rows.push({ label: `Group ${each.group}`, y });
    const words = `${place(each.topic, each.partition)} goes to ${count(each.offset)} if it commits`;
    items.push({
      key: `group/${each.group}/${each.topic}/${each.partition}`,
      kind: "span",
      look: "open",
      x1: Math.max(PAD, edge - Math.min(edge - PAD, 260)),
      x2: edge,
      y: y + 16,
      h: BAR,
      inside: words,
      title: `Pending offset of group ${each.group}`,
      words,
      time: times.at(-1),
    });
    y += LANE;
  }
  const flagsTop = y + 18;
  const flagRows = flagItems(lanes.causes ?? [], x, sees, edge, flagsTop, items);
  if (flagRows) rows.push({ label: "Causes*", y });
  const height = (flagRows ? flagsTop + flagRows * FLAG_ROW + 4 : y) + 22;
  items.sort((a, b) => a.x1 - b.x1 || a.y - b.y);
  return {
    width,
    height,
    bands,
    rows,
    items,
    gaps: gapsOf(hasEnd ? times : inside, x),
    ticks: ticksOf(inside, x, edge),
    top: AXIS_TOP,
    left: PAD,
    edge,
  };
}

function bandsOf(epochs, x, times, edge) {
  return epochs
    .map((epoch, at) => {
      const next = epochs[at + 1];
      const x1 = epoch.from_ms < times[0] ? PAD : x(epoch.from_ms),
        x2 = next ? x(next.from_ms) : edge;
      const long = `epoch ${epoch.producer_epoch}${epoch.client ? ` · ${epoch.client}` : ""}`;
      const short = `epoch ${epoch.producer_epoch}`,
        middle = long.replace(/ at \S+$/, "");
      return {
        key: `${epoch.producer_id}/${epoch.producer_epoch}`,
        x1,
        x2,
        isTinted: at % 2 === 1,
        text:
          cut(long, x2 - x1) ||
          cut(middle, x2 - x1) ||
          cut(short, x2 - x1) ||
          cut(String(epoch.producer_epoch), x2 - x1),
        isSeen: x2 > x1 && (!next || next.from_ms > times[0]) && epoch.from_ms <= times.at(-1),
      };
    })
    .filter((band) => band.isSeen);
}

function stateItems(lanes, x, sees, edge, y, items) {
  lanes.coordinator.forEach((change, at) => {
    const next = lanes.coordinator[at + 1];
    if (!sees(change.time_ms, next?.time_ms ?? Infinity)) return;
    const state = change.state ?? "Tombstone",
      x1 = x(change.time_ms),
      x2 = next ? x(next.time_ms) : edge;
    if (x2 - x1 < 0.5) return;
    items.push({
      key: `state/${change.offset}`,
      kind: "state",
      look: look(state),
      isPrepared: state.startsWith("Prepare"),
      x1,
      x2,
      y: y + 16,
      h: BAR,
      time: change.time_ms,
      inside: cut(state, x2 - x1) || cut(state.replace(/Commit|Abort/, ""), x2 - x1),
      title: state,
      words:
        `from ${clock(change.time_ms, true)}, producer epoch ${change.epoch}, ` +
        `${next ? `for ${age(next.time_ms - change.time_ms)}` : "and still"}; ` +
        `offset ${count(change.offset)} of the coordinator's log`,
    });
  });
}

function spanItems(lane, span, x, edge, y, items) {
  const where = place(lane.topic, lane.partition),
    isOpen = span.end === null;
  const endX = isOpen ? edge : x(span.marker_ms);
  const x1 = x(span.from_ms),
    x2 = Math.min(Math.max(x(span.to_ms), x1 + 10), Math.max(endX - 8, x1 + 6));
  const kind = isOpen ? "open" : look(span.end),
    records = plural(span.records, "record");
  const offsets =
    span.first_offset === span.last_offset
      ? `offset ${count(span.first_offset)}`
      : `offsets ${count(span.first_offset)}–${count(span.last_offset)}`;
  items.push({
    key: `span/${where}/${span.first_offset}`,
    kind: "span",
    look: kind,
    x1,
    x2,
    tailTo: endX,
    isOpen,
    y: y + 16,
    h: BAR,
    time: span.from_ms,
    inside: cut(records, endX - x1 - 8) || cut(count(span.records), endX - x1 - 8),
    title: `${records} in ${where}`,
    words:
      `${offsets}, producer epoch ${span.producer_epoch}, written ${clock(span.from_ms, true)}` +
      `${span.to_ms > span.from_ms ? ` to ${clock(span.to_ms, true)}` : ""}; ` +
      `${isOpen ? "still open" : kind}`,
  });
  if (!isOpen) {
    items.push({
      key: `marker/${where}/${span.marker_offset}`,
      kind: "marker",
      end: span.end,
      x1: endX - 9,
      x2: endX + 9,
      at: endX,
      y: y + 16,
      h: BAR,
      time: span.marker_ms,
      title: `${span.end} marker in ${where}`,
      words: `at offset ${count(span.marker_offset)}, ${clock(span.marker_ms, true)}`,
    });
  }
}

const SHORT = {
  ProducerInitialised: (cause) => `initialised, epoch ${cause.producer_epoch}`,
  ProducerFenced: (cause) => `epoch ${cause.old_epoch} fenced`,
  TransactionAborted: (cause) => `aborted: ${String(cause.cause).toLowerCase().replaceAll("_", " ")}`,
  TransactionTimedOut: () => "timed out",
  CallRefused: (cause) => `${cause.operation} refused`,
  BatchRefused: () => "Produce refused",
};
const shortOf = (cause) =>
  (SHORT[cause.event] ?? (() => cause.event.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase()))(cause);

/** Flags stand in rows so that their words do not overlap; returns how many rows there are. */
function flagItems(causes, x, sees, edge, top, items) {
  const ends = [];
  causes.forEach((cause, at) => {
    if (!sees(cause.time_ms, cause.time_ms)) return;
    const pole = x(cause.time_ms),
      text = shortOf(cause),
      w = text.length * 5.9 + 16;
    const isLeft = pole + w > edge,
      x1 = isLeft ? pole - w : pole,
      x2 = isLeft ? pole : pole + w;
    let row = ends.findIndex((taken) => taken.every(([first, last]) => x2 + 6 <= first || x1 - 6 >= last));
    if (row === -1) {
      row = Math.min(ends.length, FLAG_ROWS_MAX - 1);
      ends[row] ??= [];
    }
    ends[row].push([x1, x2]);
    const isBad = cause.event !== "ProducerInitialised" && !["SELF", "CLIENT"].includes(cause.cause);
    items.push({
      key: `cause/${cause.time_ms}/${cause.event}/${at}`,
      kind: "flag",
      isBad,
      x1,
      x2,
      pole,
      text,
      y: top + row * FLAG_ROW,
      h: 19,
      time: cause.time_ms,
      title: clock(cause.time_ms, true),
      words: cause.text,
    });
  });
  return ends.length;
}

function gapsOf(times, x) {
  return times
    .slice(1)
    .map((time, at) => ({
      key: times[at],
      x1: x(times[at]),
      x2: x(time),
      text: cut(age(time - times[at]), x(time) - x(times[at]) + 6),
    }));
}

function ticksOf(times, x, edge) {
  const ticks = [];
  let free = -Infinity;
  times.forEach((time, at) => {
    const px = x(time),
      isText = px - 4 >= free && px + 74 <= edge + PAD;
    if (isText) free = px + 88;
    ticks.push({ key: time, x: px, text: isText ? clock(time, true) : "", isFirst: at === 0 });
  });
  return ticks;
}
