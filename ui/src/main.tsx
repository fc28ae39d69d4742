// The shell: navigation, search, the state of the connection, and the page of the current address.
import { render, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { nowMs } from "./clock.ts";
import { formatCount, formatSeconds } from "./format.ts";
import { HelpDialog, helpIsOpen, watchKeys } from "./keyboard.tsx";
import { connection, heardAtMs, overview } from "./live.ts";
import { theme, zone } from "./preferences.ts";
import { goTo, hrefTo, route } from "./router.ts";
import { isSignedIn, isStarting, me, startProblem, startSession } from "./session.ts";
import { SignInPage } from "./sign-in.tsx";
import { Tour } from "./tour.tsx";
import { Announcer } from "./parts/announce.tsx";
import { Empty, Page } from "./parts/page.tsx";
import { Shape, Status } from "./parts/status.tsx";
import { AuditPage } from "./pages/audit.tsx";
import { ConsumersPage } from "./pages/consumers.tsx";
import { ComparePage, DeadLetterPage } from "./pages/dead-letter.tsx";
import { DeadLettersPage } from "./pages/dead-letters.tsx";
import { EditLetterPage } from "./pages/edit-letter.tsx";
import { FlowPage, FlowsPage } from "./pages/flows.tsx";
import { JobPage } from "./pages/jobs.tsx";
import { MessagePage } from "./pages/message.tsx";
import { MessagesPage } from "./pages/messages.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { DiscardPlanPage, ReplayPlanPage } from "./pages/plans.tsx";
import { SagaPage } from "./pages/saga.tsx";
import { SagasPage } from "./pages/sagas.tsx";
import { SearchPage } from "./pages/search.tsx";
import { PermissionsPage, SettingsPage } from "./pages/settings.tsx";
import "./theme.css";

const NAVIGATION = [
  ["", "Overview", "o"],
  ["search", "Search", "s"],
  ["messages", "Messages", "m"],
  ["dead-letters", "Dead letters", "d"],
  ["sagas", "Sagas", "g"],
  ["flows", "Flows", "f"],
  ["consumers", "Consumers", "c"],
  ["audit", "Audit", "a"],
  ["settings", "Settings", "t"],
] as const;

function pageOf([first = "", second, third]: readonly string[]): JSX.Element {
  switch (first) {
    case "":
    case "overview":
      return <OverviewPage />;
    case "search":
      return <SearchPage />;
    case "messages":
      return second === undefined ? <MessagesPage /> : <MessagePage key={second} id={second} />;
    case "dead-letters":
      if (second === undefined) return <DeadLettersPage />;
      if (second === "replay") return <ReplayPlanPage />;
      if (second === "discard") return <DiscardPlanPage />;
      if (second === "compare") return <ComparePage />;
      return third === "edit" ? (
        <EditLetterPage key={second} id={second} />
      ) : (
        <DeadLetterPage key={second} id={second} />
      );
    case "jobs":
      return second === undefined ? <DeadLettersPage /> : <JobPage key={second} id={second} />;
    case "sagas":
      return second === undefined ? <SagasPage /> : <SagaPage key={second} id={second} />;
    case "flows":
      return second === undefined ? <FlowsPage /> : <FlowPage key={second} id={second} />;
    case "consumers":
      return <ConsumersPage />;
    case "audit":
      return <AuditPage />;
    case "settings":
      return <SettingsPage />;
    case "permissions":
      return <PermissionsPage />;
    default:
      return (
        <Page title="No such page">
          <Empty title="This address leads nowhere.">
            <p>
              It may be from a newer version. <a href={hrefTo([])}>Go to the overview</a>
            </p>
          </Empty>
        </Page>
      );
  }
}

function App(): JSX.Element {
  if (isStarting.value) return <main class="start" aria-busy="true" />;
  if (startProblem.value !== undefined) {
    return (
      <main class="start">
        <div class="box bad" role="alert">
          <h1>The dashboard cannot reach its server</h1>
          <p>{startProblem.value}</p>
          <button type="button" class="btn primary" onClick={() => void startSession()}>
            Try again
          </button>
        </div>
      </main>
    );
  }
  return isSignedIn.value ? <Shell /> : <SignInPage />;
}

function Shell(): JSX.Element {
  const { path } = route.value;
  const place = path.join("/");
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    setOpen(false);
    // A new page begins at its title, for the eye and for screen readers. The first one is left alone.
    if (place === firstPlace) return;
    firstPlace = undefined;
    window.scrollTo(0, 0);
    document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
  }, [place]);
  useEffect(watchKeys, []);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.querySelector<HTMLElement>("main h1")?.focus();
        }}
      >
        Skip to the page
      </a>
      <header class="top">
        <a class="brand" href={hrefTo([])}>
          <span class="mark" aria-hidden="true" />
          <span>sagabox</span>
        </a>
        <button
          type="button"
          class="btn menu"
          aria-expanded={isOpen}
          aria-controls="navigation"
          onClick={() => setOpen(!isOpen)}
        >
          Menu
        </button>
        <QuickSearch />
        <Connection />
        <TopButtons />
      </header>
      <nav id="navigation" class={isOpen ? "side open" : "side"} aria-label="Pages">
        <div>
          {" "}
          <ul>
            {NAVIGATION.map(([name, title]) => (
              <li key={name}>
                <a
                  href={hrefTo(name === "" ? [] : [name])}
                  aria-current={isCurrent(name, path[0] ?? "") ? "page" : undefined}
                >
                  <span>{title}</span>
                  <Badge name={name} />
                </a>
              </li>
            ))}
          </ul>
          <p class="who muted small">
            <a href={hrefTo(["permissions"])}>
              {me.value?.actor} · {me.value?.role}
            </a>
          </p>
        </div>{" "}
      </nav>
      <main id="main">{pageOf(path)}</main>
      <HelpDialog />
      <Tour />
      <Announcer />
    </div>
  );
}

let firstPlace: string | undefined = route.peek().path.join("/");

function isCurrent(name: string, first: string): boolean {
  if (name === "dead-letters" && first === "jobs") return true;
  if (name === "settings" && first === "permissions") return true;
  return name === first || (name === "" && first === "overview");
}

function Badge({ name }: { name: string }): JSX.Element | null {
  const view = overview.value;
  if (view === undefined) return null;
  if (name === "dead-letters" && view.deadLetters.count > 0) {
    return (
      <span class="badge" title="open dead letters">
        {formatCount(view.deadLetters).replace(" or more", "+")}
      </span>
    );
  }
  if (name === "sagas" && view.sagas.failed > 0)
    return (
      <span class="badge" title="failed sagas">
        {view.sagas.failed}
      </span>
    );
  if (name === "" && !view.verdict.healthy) return <Shape tone="bad" />;
  return null;
}

function QuickSearch(): JSX.Element {
  const [text, setText] = useState("");
  return (
    <form
      class="quick"
      role="search"
      aria-label="Search from any page"
      data-tour="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() === "") return;
        goTo(hrefTo(["search"], { id: text.trim() }));
        setText("");
      }}
    >
      <input
        id="quick-search"
        aria-label="Any id: message, saga, dead letter, key, correlation or trace"
        aria-keyshortcuts="/"
        placeholder="Search any id"
        value={text}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <kbd aria-hidden="true">/</kbd>
    </form>
  );
}

const CONNECTIONS = {
  connecting: "connecting",
  live: "live",
  polling: "polling",
  paused: "paused",
  lost: "no connection",
} as const;

function Connection(): JSX.Element {
  const state = connection.value;
  const age = heardAtMs.value === undefined ? undefined : (nowMs.value - heardAtMs.value) / 1000;
  return (
    <span class="connection" title="State of the live updates, and the age of the last one">
      <Status
        word={CONNECTIONS[state]}
        tone={state === "live" ? "ok" : state === "lost" ? "bad" : state === "connecting" ? "busy" : "warn"}
      />
      {age !== undefined && age > 20 && <span class="old nowrap">{formatSeconds(age)} old</span>}
    </span>
  );
}

const THEMES = { system: "Auto", light: "Light", dark: "Dark" } as const;

function TopButtons(): JSX.Element {
  const next = { system: "light", light: "dark", dark: "system" } as const;
  return (
    <div class="top-buttons">
      <button
        type="button"
        class="btn tiny"
        aria-label={zone.value === "utc" ? "UTC. Switch to local time." : "Local time. Switch to UTC."}
        onClick={() => (zone.value = zone.value === "utc" ? "local" : "utc")}
      >
        {zone.value === "utc" ? "UTC" : "Local time"}
      </button>
      <button
        type="button"
        class="btn tiny"
        aria-label={`${THEMES[theme.value]} colours. Switch to ${THEMES[next[theme.value]]}.`}
        onClick={() => (theme.value = next[theme.value])}
      >
        {THEMES[theme.value]}
      </button>
      <button type="button" class="btn tiny" aria-keyshortcuts="?" onClick={() => (helpIsOpen.value = true)}>
        Help
      </button>
    </div>
  );
}

const root = document.querySelector("#app");
if (root !== null) render(<App />, root);
void startSession();
