// Calls to the page's own server. Every refusal becomes an ApiError that carries what to do next.
export class ApiError extends Error {
  constructor(status, text, next) {
    super(text);
    this.status = status;
    this.next = next || "";
  }
}

async function read(answer) {
  let body = null;
  try {
    body = await answer.json();
  } catch {
    /* no document: the status says it all */
  }
  if (answer.ok) return body;
  throw new ApiError(answer.status, body?.error || `the server answered ${answer.status}`, body?.next);
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new ApiError(0, "the page's server does not answer", "is `fencepost ui` still running?");
  }
  return read(answer);
}

export const get = (path) => ask(path);
export const post = (path, document) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Fencepost": "1" },
    body: JSON.stringify(document),
  });

/** A token in the address (`#token=...`) is traded for a cookie and taken out of the address. */
export async function useTokenOfAddress() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", "#/overview");
  dispatchEvent(new HashChangeEvent("hashchange"));
  await post("api/session", { token: decodeURIComponent(found[1]) });
}

export const parameters = (values) => {
  const kept = Object.entries(values).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined && value !== false,
  );
  return new URLSearchParams(kept.map(([name, value]) => [name, value === true ? "1" : String(value)])).toString();
};
