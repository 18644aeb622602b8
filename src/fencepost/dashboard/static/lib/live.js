// A view's document, kept fresh by server-sent events. One stream per open page; none while nobody looks at it.
import { useEffect, useRef, useState } from "./html.js";
import { ApiError, get, parameters } from "./api.js";
import { announce, connection, needsToken } from "./store.js";

const RETRY_MS = [1000, 2000, 4000, 8000];
const HIDDEN_GRACE_MS = 10_000;

function connectionIs(kind, text = "", next = "", since = null) {
  const before = connection.get();
  if (before.kind === kind && before.text === text) return;
  connection.set({ kind, text, next, since: since ?? (before.kind === kind ? before.since : Date.now()) });
  if (kind === "live" && (before.kind === "trouble" || before.kind === "offline")) announce("Connected again");
  if (kind === "trouble" && before.kind !== "trouble") announce(`Cluster unreachable: ${text}`);
  if (kind === "offline" && before.kind !== "offline") announce("The page's server does not answer");
}

/** Opens a stream and keeps it open through lost connections; returns what closes it. */
function follow(view, values, path, onDocument, onRefused) {
  const query = parameters({ view, ...values });
  let source = null,
    timer = null,
    hideTimer = null,
    tries = 0,
    isClosed = false;

  function open() {
    timer = null;
    source = new EventSource(`api/events?${query}`);
    source.addEventListener(view, (event) => {
      tries = 0;
      connectionIs("live");
      onDocument(JSON.parse(event.data));
    });
    source.addEventListener("trouble", (event) => {
      const trouble = JSON.parse(event.data);
      if (trouble.status === 404) {
        connectionIs("live");
        return onRefused(new ApiError(404, trouble.error, trouble.next));
      }
      connectionIs("trouble", trouble.error, trouble.next, trouble.since_ms ?? null);
    });
    source.onerror = failed;
  }

  async function failed() {
    if (source.readyState === EventSource.CONNECTING) {
      connectionIs("offline", "the page's server does not answer");
      return;
    }
    source.close();
    // An EventSource does not say why it was refused; the same question without a stream does.
    try {
      const document = await get(path);
      if (isClosed) return;
      onDocument(document);
    } catch (error) {
      if (isClosed) return;
      if (error.status === 401) return needsToken.set(true);
      if (error.status === 404 || error.status === 400) {
        connectionIs("live");
        return onRefused(error);
      }
      connectionIs(error.status ? "trouble" : "offline", error.message, error.next);
    }
    timer = setTimeout(open, RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]);
  }

  function visibility() {
    clearTimeout(hideTimer);
    if (document.hidden) {
      hideTimer = setTimeout(() => {
        source?.close();
        source = null;
        clearTimeout(timer);
      }, HIDDEN_GRACE_MS);
    } else if (source === null) {
      open();
    }
  }

  document.addEventListener("visibilitychange", visibility);
  open();
  return () => {
    isClosed = true;
    clearTimeout(timer);
    clearTimeout(hideTimer);
    document.removeEventListener("visibilitychange", visibility);
    source?.close();
  };
}

/**
 * The document of a view. While other parameters are on their way the last document stays, so nothing flickers;
 * `isStale` tells that it answers an older question.
 */
export function useLive(view, values, path) {
  const key = `${path}|${JSON.stringify(values)}`;
  const [state, setState] = useState({ key: null, path: null, document: null, refused: null, at: 0 });
  const current = useRef(key);
  current.current = key;
  useEffect(() => {
    const asked = parameters(values);
    return follow(
      view,
      values,
      asked ? `${path}?${asked}` : path,
      (document) => current.current === key && setState({ key, path, document, refused: null, at: Date.now() }),
      (refused) => current.current === key && setState({ key, path, document: null, refused, at: Date.now() }),
    );
  }, [key]);
  // The document of another path is another thing: it must not be shown under this one's name.
  const isOther = state.path !== path;
  return {
    document: isOther ? null : state.document,
    refused: isOther ? null : state.refused,
    at: state.at,
    isStale: state.key !== key,
  };
}

/** The milliseconds since a document arrived, counted once a second, to let ages tick between documents. */
export function useTick(at) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return Math.max(0, now - at);
}

/** A value that settles: what is typed is asked for once the typing pauses. */
export function useSettled(value, delay = 200) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}
