// A value that several parts of the page look at. The smallest thing that works.
import { useEffect, useState } from "./html.js";

export function store(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore(from) {
  const [value, setValue] = useState(from.get());
  useEffect(() => {
    setValue(from.get());
    return from.subscribe(setValue);
  }, [from]);
  return value;
}

/** {kind: "connecting" | "live" | "trouble" | "offline", since, text, next} */
export const connection = store({ kind: "connecting", since: Date.now(), text: "", next: "" });

const announced = store("");
export const announcement = announced;
/** Said by screen readers once. Only for what matters: lost and found connections, results, what holds readers. */
export const announce = (text) => announced.set(text);

/** What GET /api/session said; null until it did. */
export const session = store(null);
/** True once the server has refused us for want of a token. */
export const needsToken = store(false);
