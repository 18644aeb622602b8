// The page: finds out who it talks to, then shows one view at a time.
import { html, render, useEffect, useRef, useState } from "./lib/html.js";
import { get, useTokenOfAddress as tradeTokenOfAddress } from "./lib/api.js";
import { listen } from "./lib/keys.js";
import { link, useRoute } from "./lib/router.js";
import { announcement, connection, needsToken, session, useStore } from "./lib/store.js";
import { theme, toggleTheme } from "./lib/theme.js";
import * as icons from "./parts/icons.js";
import { Empty, Head } from "./parts/frame.js";
import { Groups } from "./views/groups.js";
import { Group } from "./views/group.js";
import { Help } from "./views/help.js";
import { OverviewView } from "./views/overview.js";
import { Partition } from "./views/partition.js";
import { Partitions } from "./views/partitions.js";
import { Pipelines } from "./views/pipelines.js";
import { Producers } from "./views/producers.js";
import { SignIn } from "./views/sign_in.js";
import { Transaction } from "./views/transaction.js";
import { Transactions } from "./views/transactions.js";

const VIEWS = [
  ["overview", "Overview", icons.Overview],
  ["transactions", "Transactions", icons.Transactions],
  ["partitions", "Partitions", icons.Partitions],
  ["groups", "Groups", icons.Groups],
  ["producers", "Producers", icons.Producers],
  ["pipelines", "Pipelines", icons.Pipelines],
];

function View({ route }) {
  const [first, second] = route.rest;
  switch (route.view) {
    case "overview":
      return html`<${OverviewView} />`;
    case "transactions":
      return first === undefined
        ? html`<${Transactions} query=${route.query} />`
        : html`<${Transaction} key=${first} id=${first} />`;
    case "partitions":
      return second === undefined
        ? html`<${Partitions} query=${route.query} />`
        : html`<${Partition} key=${`${first}/${second}`} topic=${first} partition=${second} />`;
    case "groups":
      return first === undefined
        ? html`<${Groups} query=${route.query} />`
        : html`<${Group} key=${first} id=${first} />`;
    case "producers":
      return html`<${Producers} query=${route.query} />`;
    case "pipelines":
      return html`<${Pipelines} />`;
    default:
      return html`<${Head} title="No such view" /><div class="card"><${Empty}
        title="Page not found">The address may be mistyped.<//></div>`;
  }
}

function Side({ view, openHelp }) {
  const shown = useStore(theme),
    known = useStore(session);
  const brokers = known?.brokers?.length ?? 0;
  return html`<header class="side">
    <a class="brand" href="#/overview" aria-label="Fencepost, overview"><${icons.Brand} />Fencepost</a>
    <nav class="nav" aria-label="Views">${VIEWS.map(
      ([name, title, Icon]) => html`
      <a key=${name} href=${link(name)} aria-current=${view === name ? "page" : undefined}><${Icon} />${title}</a>`,
    )}</nav>
    <div class="side-foot">
      ${
        known &&
        html`<dl>
        <div><dt>${known.is_fencepost ? "Fencepost" : "Apache Kafka"} at</dt><dd>${known.bootstrap}</dd></div>
        ${brokers > 0 && html`<div><dt>Cluster</dt><dd>${known.cluster_id}${brokers > 1 ? `, ${brokers} brokers` : ""}</dd></div>`}
      </dl>`
      }
      <div class="side-tools">
        <button type="button" class="icon-button" onClick=${toggleTheme}
          aria-label=${shown === "dark" ? "Light theme" : "Dark theme"}
            title=${shown === "dark" ? "Light theme" : "Dark theme"}>
          ${shown === "dark" ? html`<${icons.Sun} />` : html`<${icons.Moon} />`}</button>
        <button type="button" class="icon-button" onClick=${openHelp} aria-label="Keyboard help"
          title="Keyboard help (?)"><${icons.Keyboard} /></button>
      </div>
    </div>
  </header>`;
}

/** Asks who we talk to, again until it is known: a broker may come up after the page. */
function useSession() {
  const isRefused = useStore(needsToken);
  const { kind } = useStore(connection);
  useEffect(() => {
    if (isRefused || (session.get()?.brokers?.length && kind !== "live")) return undefined;
    let timer = null,
      isOver = false;
    async function ask() {
      try {
        const found = await get("api/session");
        if (isOver) return;
        if (found.needs_token) return needsToken.set(true);
        session.set(found);
        if (found.brokers?.length) return;
      } catch (error) {
        if (error.status === 401) return needsToken.set(true);
      }
      if (!isOver) timer = setTimeout(ask, 3000);
    }
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isRefused, kind]);
}

function App() {
  const route = useRoute();
  const isRefused = useStore(needsToken);
  const said = useStore(announcement);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const where = `${route.view}/${route.rest.join("/")}`;
  const before = useRef(where);
  useSession();
  useEffect(
    () =>
      listen({
        back: () => {
          const up = document.querySelector("[data-back]");
          if (up) location.hash = up.getAttribute("href");
        },
        search: () => {
          location.hash = "#/transactions";
          setTimeout(() => document.querySelector("main input[type=search]")?.focus(), 50);
        },
        help: () => setHelpOpen(true),
        go: (at) => {
          location.hash = link(VIEWS[at][0]);
        },
      }),
    [],
  );
  useEffect(() => {
    if (before.current === where) return;
    before.current = where;
    scrollTo(0, 0);
    // The reader's place is the new view's title, so that a screen reader says where it is.
    document.querySelector("main h1")?.focus({ preventScroll: true });
  }, [where]);
  if (isRefused) return html`<${SignIn} />`;
  return html`<a class="skip" href="#main" onClick=${(event) => {
    event.preventDefault();
    document.querySelector("main").focus();
  }}>Skip to the content</a>
    <div class="shell">
      <${Side} view=${route.view} openHelp=${() => setHelpOpen(true)} />
      <main id="main" tabindex="-1"><${View} route=${route} /></main>
    </div>
    <div class="sr" role="status" aria-live="polite">${said}</div>
    ${isHelpOpen && html`<${Help} close=${() => setHelpOpen(false)} />`}`;
}

try {
  await tradeTokenOfAddress();
} catch {
  needsToken.set(true);
}
render(html`<${App} />`, document.getElementById("app"));
