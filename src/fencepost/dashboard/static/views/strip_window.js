// Which offsets of a log are looked at, and how zoom and pan move them. Pure.
export const OFFSETS_MIN = 10,
  OFFSETS_MAX = 20_000;

/** Keeps a window inside the log and within what one question may span. */
export function within({ from, to }, log) {
  const room = Math.max(OFFSETS_MIN, log.end - log.start);
  const size = Math.round(Math.min(Math.max(to - from, OFFSETS_MIN), OFFSETS_MAX, room));
  const start = Math.round(Math.min(Math.max(from, log.start), Math.max(log.start, log.start + room - size)));
  return { from: start, to: start + size };
}

/** Zooms so that the offset at `share` of the width stays where it is. */
export function zoomed({ from, to }, factor, share, log) {
  const size = Math.min(Math.max((to - from) * factor, OFFSETS_MIN), OFFSETS_MAX),
    still = from + (to - from) * share;
  return within({ from: still - size * share, to: still - size * share + size }, log);
}

export const panned = ({ from, to }, share, log) =>
  within({ from: from + (to - from) * share, to: to + (to - from) * share }, log);

/** Round offsets to write under the strip, about `space` pixels apart. */
export function ticks({ from, to }, width, space = 96) {
  const rough = ((to - from) * space) / Math.max(1, width),
    power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) ?? 1);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}
