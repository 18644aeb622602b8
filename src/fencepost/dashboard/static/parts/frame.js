// The top of a view, its connection state, and what stands where there is nothing yet.
import { html, useEffect, useState } from "../lib/html.js";
import { connection, useStore } from "../lib/store.js";
import { clock, visible } from "../lib/format.js";
import { Back } from "./icons.js";

const WORDS = { connecting: "Connecting", live: "Live", trouble: "Unreachable", offline: "Disconnected" };

export function ConnectionState() {
  const { kind } = useStore(connection);
  return html`<span class="state ${kind}" data-connection=${kind}><i></i>${WORDS[kind]}</span>`;
}

export function Banner() {
  const { kind, since, text, next } = useStore(connection);
  if (kind !== "trouble" && kind !== "offline") return null;
  const what = kind === "trouble" ? "Cluster unreachable" : "The page's server does not answer";
  return html`<div class="banner" data-banner><div>
    <strong>${what} since ${clock(since)}, trying again.</strong>${" "}
    <span>${kind === "trouble" ? text : ""}${next ? ` ${next}.` : ""} What is shown below is from before.</span>
  </div></div>`;
}

export function Head({ title, under, back, backTo, children }) {
  useEffect(() => {
    document.title = `${visible(title)} · Fencepost`;
  }, [title]);
  return html`<div class="head">
    <div>
      ${back && html`<a class="crumb" href=${backTo} data-back><${Back} />${back}</a>`}
      <h1 tabindex="-1">${visible(title)}</h1>
      ${under && html`<p class="under">${under}</p>`}
    </div>
    ${children}
    <${ConnectionState} />
  </div><${Banner} />`;
}

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children}</div>`;

/** Nothing for the blink of an eye, then a word: a page that answers at once must not flash. */
export function Waiting({ what }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 600);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="card"><div class="empty"
    aria-busy="true">${isLate ? `Reading ${what} …` : "\u00a0"}</div></div>`;
}

export const Refused = ({ error }) =>
  html`<div class="card"><${Empty} title=${error.message}>${error.next || ""}<//></div>`;
