// Where the reader is: the part after `#/`, and the search that belongs to it. Every view can be linked to.
import { useEffect, useState } from "./html.js";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  return { view: parts[0] || "overview", rest: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

/** link("transactions", id) -> "#/transactions/id", with every part escaped. */
export const link = (...parts) => `#/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;

/** Puts the search of the present view into the address without a step in the history. */
export function replaceQuery(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const path = location.hash.split("?")[0] || "#/overview";
  const next = kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
  if (next !== location.hash) history.replaceState(null, "", next);
}

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    // Effects run after the first picture: an address that changed in between is noticed here.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
