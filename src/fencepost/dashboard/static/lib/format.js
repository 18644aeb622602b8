// Numbers, ages and times as the page writes them. Pure.
const whole = new Intl.NumberFormat("en-US");
const NARROW_SPACE = " ";

/** 1234567 -> "1,234,567"; what is not known is a dash. */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** A rate: whole numbers from ten on, one digit below. */
export const rate = (value) => {
  if (value === null || value === undefined) return "–";
  return value >= 10 || Number.isInteger(value) ? whole.format(Math.round(value)) : value.toFixed(1);
};

/** A length of time as a person says it: "4 ms", "12.3 s", "4 min 10 s", "3 h 5 min", "2 d 4 h". */
export function age(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) ms = 0;
  const unit = (value, name) => `${value}${NARROW_SPACE}${name}`;
  if (ms < 1000) return unit(Math.round(ms), "ms");
  if (ms < 60_000) return unit((Math.floor(ms / 100) / 10).toFixed(1), "s");
  const pairs = [
    [86_400_000, "d", 3_600_000, "h"],
    [3_600_000, "h", 60_000, "min"],
    [60_000, "min", 1000, "s"],
  ];
  const [big, bigName, small, smallName] = pairs.find(([size]) => ms >= size);
  const rest = Math.floor((ms % big) / small);
  return unit(Math.floor(ms / big), bigName) + (rest ? ` ${unit(rest, smallName)}` : "");
}

/** An age that ticks: whole seconds from one second on, so that its last digit is readable. */
export const tickingAge = (ms) => (ms >= 1000 && ms < 60_000 ? `${Math.floor(ms / 1000)}${NARROW_SPACE}s` : age(ms));

const two = (value) => String(value).padStart(2, "0");

/** The time of day, to the millisecond where asked, in the reader's zone. */
export function clock(ms, withMillis = false) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMillis ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Day and time; the day is left out when it is today. */
export function moment(ms, withMillis = false) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms),
    today = new Date();
  const day =
    at.toDateString() === today.toDateString()
      ? ""
      : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return day + clock(ms, withMillis);
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A name as it can be seen: what has no picture, or would turn the text around, is written out. */
export const visible = (text) =>
  String(text ?? "").replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (each) => {
    if (each === "\n") return "\\n";
    const code = each.codePointAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
export const place = (topic, partition) => `${topic}-${partition}`;
/** "5", "5–8", or "≤ 9" where nothing was counted. */
export function bounds(low, high, isCounted = true) {
  if (low === null || low === undefined) return high === null || high === undefined ? "–" : `≤ ${count(high)}`;
  if (!isCounted && low !== high) return `≤ ${count(high)}`;
  return low === high ? count(low) : `${count(low)}–${count(high)}`;
}
