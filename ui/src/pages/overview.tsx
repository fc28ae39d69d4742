// The first page at 3 a.m.: a verdict in one sentence and the next action. Below it what the verdict was made from.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { HistoryView, LivePoint, OverviewView, Problem } from "../../../src/dashboard/api-types.ts";
import { isVisible } from "../clock.ts";
import {
  countOf,
  formatCount,
  formatMeasuredAge,
  formatNumber,
  formatRate,
  formatSeconds,
} from "../format.ts";
import { connection, heardAtMs, overview, overviewError, point } from "../live.ts";
import { mdFacts, mdPage, mdTable } from "../markdown.ts";
import { hrefOfLink, hrefTo, route, setQuery } from "../router.ts";
import { me } from "../session.ts";
import { useRead } from "../use-read.ts";
import { Chart } from "../parts/chart.tsx";
import { DemoPanel } from "../parts/demo-panel.tsx";
import { Empty, ErrorBox, Page, Panel, Skeleton } from "../parts/page.tsx";
import { Shape, Status, type Tone } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command, Time } from "../parts/text.tsx";

export function OverviewPage(): JSX.Element {
  const view = overview.value;
  const lead =
    connection.value === "live"
      ? "Live. Pauses while this tab is hidden."
      : connection.value === "polling"
        ? "The live stream is blocked, so this page reads every 10 seconds."
        : undefined;
  return (
    <Page
      title="Overview"
      lead={lead}
      {...(view !== undefined && { markdown: () => overviewMarkdown(view) })}
      read={{
        readAtMs: heardAtMs.value,
        isLoading: connection.value === "connecting",
        error: overviewError.value,
        reload: reloadOverview,
      }}
    >
      {view !== undefined ? (
        <Loaded view={view} />
      ) : overviewError.value !== undefined ? (
        <ErrorBox error={overviewError.value} onRetry={reloadOverview} />
      ) : (
        <Skeleton lines={14} />
      )}
    </Page>
  );
}

/** The stream starts anew when the visibility changes, and its first lines are the current state. */
function reloadOverview(): void {
  isVisible.value = false;
  isVisible.value = true;
}

function Loaded({ view }: { view: OverviewView }): JSX.Element {
  return (
    <>
      <Verdict view={view} />
      {me.value?.hasDemo === true && <DemoPanel />}
      <Figures view={view} />
      <Charts />
      <div class="columns">
        <Causes view={view} />
        <Consumers view={view} />
        <Workers view={view} />
        <Checks view={view} />
      </div>
    </>
  );
}

function Verdict({ view }: { view: OverviewView }): JSX.Element {
  const { healthy, sentence, next } = view.verdict;
  const others = view.problems.slice(1);
  return (
    <section
      class={`verdict ${healthy ? "ok" : "bad"}`}
      aria-label="Verdict"
      aria-live="polite"
      data-tour="verdict"
    >
      <div class="verdict-mark">
        <Shape tone={healthy ? "ok" : "bad"} />
        <span>
          {healthy ? "Healthy" : view.problems.length > 1 ? `${view.problems.length} problems` : "Problem"}
        </span>
      </div>
      <p class="verdict-text">{sentence}</p>
      {next !== null && <NextAction problem={next} isFirst />}
      {others.length > 0 && (
        <details>
          <summary>{others.length === 1 ? "One more problem" : `${others.length} more problems`}</summary>
          <ul class="problems">
            {others.map((problem) => (
              <li key={problem.what}>
                <p>{problem.what}</p>
                <NextAction problem={problem} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function NextAction({ problem, isFirst = false }: { problem: Problem; isFirst?: boolean }): JSX.Element {
  return (
    <div class="next">
      {problem.link !== null && (
        <a class={isFirst ? "btn primary" : "btn"} href={hrefOfLink(problem.link)}>
          {problem.action ?? "Look at it"}
        </a>
      )}
      {problem.command !== "" && <Command text={problem.command} />}
      {problem.runbook !== null && (
        <span class="muted small">
          Runbook: <code>docs/runbooks/{problem.runbook}.md</code>
        </span>
      )}
    </div>
  );
}

function Figures({ view }: { view: OverviewView }): JSX.Element {
  const { rates, outbox, sagas, deadLetters, lanes } = view;
  const late = outbox.oldestDueSeconds ?? 0;
  return (
    <ul class="figures" aria-label="Figures" data-tour="figures">
      <Figure
        title="Published"
        value={formatRate(rates.published)}
        unit="per second"
        href={hrefTo(["messages"])}
      />
      <Figure title="Sent" value={formatRate(rates.sent)} unit="per second" href={hrefTo(["messages"])} />
      <Figure
        title="Handled"
        value={formatRate(rates.handled)}
        unit="per second"
        href={hrefTo(["consumers"])}
      />
      <Figure
        title="Waiting"
        value={formatCount(outbox.waiting)}
        unit={outbox.oldestDueSeconds === null ? "none is due" : `oldest ${formatSeconds(late)}`}
        tone={late > 60 ? "warn" : undefined}
        href={hrefTo(["messages"], { state: "waiting" })}
      />
      <Figure
        title="Dead letters"
        value={formatCount(deadLetters)}
        unit="open"
        tone={deadLetters.count > 0 ? "bad" : undefined}
        href={hrefTo(["dead-letters"])}
      />
      <Figure
        title="Sagas"
        value={formatNumber(sagas.running + sagas.compensating)}
        unit={`${formatNumber(sagas.compensating)} undoing · ${formatNumber(sagas.failed)} failed`}
        tone={sagas.failed > 0 ? "bad" : undefined}
        href={hrefTo(["sagas"])}
      />
      <Figure
        title="Lanes"
        value={lanes.unowned === 0 ? "all owned" : `${formatNumber(lanes.unowned)} unowned`}
        unit={
          lanes.unread.length > 0
            ? `${lanes.unread.length} owned but not read`
            : `of ${formatNumber(lanes.total)}`
        }
        tone={lanes.unowned > 0 || lanes.unread.length > 0 ? "warn" : undefined}
        href={hrefTo(["consumers"])}
      />
    </ul>
  );
}

interface FigureProps {
  readonly title: string;
  readonly value: string;
  readonly unit: string;
  readonly href: string;
  readonly tone?: Tone | undefined;
}

function Figure({ title, value, unit, href, tone }: FigureProps): JSX.Element {
  return (
    <li>
      <a href={href} class={`figure ${tone ?? ""}`}>
        <span class="figure-title">
          {tone !== undefined && <Shape tone={tone} />}
          {title}
        </span>
        <span class="figure-value">{value}</span>
        <span class="muted small">{unit}</span>
      </a>
    </li>
  );
}

const WINDOWS = ["1h", "6h", "24h", "7d"] as const;
type Window = (typeof WINDOWS)[number];

function Charts(): JSX.Element {
  const window = WINDOWS.find((value) => value === route.value.query["window"]) ?? "1h";
  const read = useRead("history", { query: { window } }, { everyMs: window === "1h" ? 300_000 : 60_000 });
  const [history, setHistory] = useState<HistoryView>();
  useEffect(() => setHistory(read.data), [read.data]);
  const latest = point.value;
  useEffect(() => {
    if (latest !== undefined) setHistory((old) => (old?.window === "1h" ? append(old, latest) : old));
  }, [latest]);
  return (
    <Panel title="History" tools={<WindowChoice chosen={window} />}>
      {history === undefined ? (
        read.error !== undefined ? (
          <ErrorBox error={read.error} onRetry={read.reload} />
        ) : (
          <div class="charts placeholder" />
        )
      ) : (
        <div class="charts">
          <Chart
            title="Messages"
            unit="per second"
            at={history.at}
            lines={[
              { label: "published", values: history.published, style: 1 },
              { label: "sent", values: history.sent, style: 2 },
              { label: "handled", values: history.handled, style: 3 },
            ]}
          />
          <Chart
            title="Waiting"
            unit="messages"
            at={history.at}
            lines={[{ label: "to be sent", values: history.waiting, style: 1 }]}
          />
          <Chart
            title="Oldest"
            unit="seconds overdue"
            at={history.at}
            lines={[{ label: "due", values: history.oldestDueSeconds, style: 1 }]}
          />
          <Chart
            title="Dead letters"
            unit="open"
            at={history.at}
            lines={[{ label: "open", values: history.openDeadLetters, style: 1, isBad: true }]}
          />
        </div>
      )}
    </Panel>
  );
}

function WindowChoice({ chosen }: { chosen: Window }): JSX.Element {
  return (
    <div class="choice" role="group" aria-label="Time range">
      {WINDOWS.map((value) => (
        <button
          key={value}
          type="button"
          aria-pressed={value === chosen}
          onClick={() => setQuery({ window: value === "1h" ? undefined : value })}
        >
          {value}
        </button>
      ))}
    </div>
  );
}

/** Adds the newest point, or replaces the last one. The number of points stays, so that the chart slides. */
function append(history: HistoryView, latest: LivePoint): HistoryView {
  const last = history.at.at(-1);
  if (last !== undefined && latest.at < last) return history;
  const drop = last === latest.at ? 0 : 1;
  const keep = drop === 0 ? -1 : undefined;
  const extend = <T,>(values: readonly T[], value: T): T[] => [...values.slice(drop, keep), value];
  return {
    ...history,
    at: extend(history.at, latest.at),
    published: extend(history.published, latest.published),
    sent: extend(history.sent, latest.sent),
    handled: extend(history.handled, latest.handled),
    deadLettered: extend(history.deadLettered, latest.deadLettered),
    waiting: extend(history.waiting, latest.waiting),
    openDeadLetters: extend(history.openDeadLetters, latest.openDeadLetters),
    oldestDueSeconds: extend(history.oldestDueSeconds, latest.oldestDueSeconds),
  };
}

function More({ href, children }: { href: string; children: ComponentChildren }): JSX.Element {
  return (
    <a class="btn tiny" href={href}>
      {children}
    </a>
  );
}

function Causes({ view }: { view: OverviewView }): JSX.Element {
  return (
    <Panel title="Why messages die" tools={<More href={hrefTo(["dead-letters"])}>All causes</More>}>
      {view.causes.length === 0 ? (
        <Empty title="No open dead letters.">
          <p>A message that fails for good is stored here until a person decides. Nothing is lost.</p>
        </Empty>
      ) : (
        <ul class="list">
          {view.causes.map((cause) => (
            <li key={cause.fingerprint}>
              <a href={hrefTo(["dead-letters"], { fingerprint: cause.fingerprint })}>{cause.label}</a>
              <p class="muted small">
                {countOf(cause.open, "dead letter")} since <Time at={cause.firstAt} />, last{" "}
                <Time at={cause.lastAt} age />
              </p>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Consumers({ view }: { view: OverviewView }): JSX.Element {
  return (
    <Panel title="Consumers" tools={<More href={hrefTo(["consumers"])}>Details</More>}>
      {view.consumers.length === 0 ? (
        <Empty title="No consumer has started yet.">
          <p>
            A consumer appears here when a worker with <code>bus.on(…)</code> runs for the first time.
          </p>
        </Empty>
      ) : (
        <Table
          label="Consumers"
          rows={view.consumers}
          keyOf={({ name }) => name}
          columns={[
            {
              title: "Consumer",
              isWide: true,
              cell: ({ name }) => <a href={hrefTo(["consumers"], { name })}>{name}</a>,
            },
            {
              title: "Waiting",
              isNumber: true,
              cell: ({ waiting }) => (waiting === "unknown" ? "unknown" : formatCount(waiting)),
            },
            {
              title: "Oldest",
              isNumber: true,
              cell: ({ oldestAgeSeconds }) => formatMeasuredAge(oldestAgeSeconds),
            },
            { title: "Retrying", isNumber: true, cell: ({ failed }) => formatNumber(failed) },
          ]}
        />
      )}
    </Panel>
  );
}

function Workers({ view }: { view: OverviewView }): JSX.Element {
  const { unowned, total, unread } = view.lanes;
  return (
    <Panel title="Workers and lanes">
      {view.workers.length === 0 ? (
        <Empty title="No worker runs.">
          <p>Messages are safe, but none is sent or handled until a worker starts:</p>
          <Command text="sagabox worker" />
        </Empty>
      ) : (
        <Table
          label="Workers"
          rows={view.workers}
          keyOf={({ worker }) => worker}
          columns={[
            { title: "Worker", isWide: true, cell: ({ worker }) => <code>{worker}</code> },
            {
              title: "State",
              cell: ({ live, goneSeconds }) =>
                live ? (
                  <Status word="live" />
                ) : (
                  <Status word={`gone for ${formatSeconds(goneSeconds ?? 0)}`} tone="bad" />
                ),
            },
            { title: "Relay lanes", isNumber: true, cell: ({ relayLanes }) => formatNumber(relayLanes) },
          ]}
        />
      )}
      <p class="small">
        {unowned === 0
          ? `All ${formatNumber(total)} lanes have an owner.`
          : `${formatNumber(unowned)} of ${formatNumber(total)} lanes have no owner.`}
      </p>
      {unread.length > 0 && (
        <ul class="list">
          {unread.map(({ lane, worker, consumer, waitingSeconds }) => (
            <li key={`${lane} ${consumer ?? ""}`}>
              <Status word="owned but not read" tone="warn" /> lane {lane} of {consumer ?? "the outbox"}:
              waiting for {formatSeconds(waitingSeconds)} on <code>{worker}</code>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

const CONSERVATION: Readonly<Record<string, string>> = {
  kept: "Every message that was written is sent, waiting, dead-lettered or discarded.",
  broken: "Some messages are not accounted for.",
  unknown: "No worker has finished a round of the check yet.",
};

function Checks({ view }: { view: OverviewView }): JSX.Element {
  const { conservation, breakers } = view;
  return (
    <Panel title="Conservation and breakers">
      <p>
        <Status word={conservation.verdict} /> {CONSERVATION[conservation.verdict]}
        {conservation.breaches > 0 && ` ${formatNumber(conservation.breaches)} found.`}
      </p>
      {conservation.checkedAt !== null && (
        <p class="muted small">
          Checked <Time at={conservation.checkedAt} age />
        </p>
      )}
      {conservation.verdict === "broken" && <Command text="sagabox verify" />}
      {breakers.length === 0 ? (
        <p>
          <Status word="no open breaker" tone="ok" /> Every destination that this process sends to accepts
          messages.
        </p>
      ) : (
        <ul class="list">
          {breakers.map(({ destination, state }) => (
            <li key={destination}>
              <Status word={state} /> <code>{destination}</code>
              <p class="muted small">
                {state === "paused"
                  ? "Paused by an operator. Its messages wait."
                  : "The destination refused messages, so they wait and are tried again one by one."}
              </p>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function overviewMarkdown(view: OverviewView): string {
  return mdPage(
    view.verdict.healthy ? "sagabox is healthy" : "sagabox has a problem",
    view.verdict.sentence,
    view.problems.map(({ what, command }) => `- ${what} \`${command}\``).join("\n"),
    mdFacts([
      ["Waiting", formatCount(view.outbox.waiting)],
      [
        "Oldest due",
        view.outbox.oldestDueSeconds === null ? "none" : formatSeconds(view.outbox.oldestDueSeconds),
      ],
      ["Open dead letters", formatCount(view.deadLetters)],
      [
        "Sagas",
        `${view.sagas.running} running, ${view.sagas.compensating} compensating, ${view.sagas.failed} failed`,
      ],
      ["Lanes without owner", view.lanes.unowned],
      ["Conservation", view.conservation.verdict],
    ]),
    mdTable(
      ["Consumer", "Waiting", "Oldest", "Retrying"],
      view.consumers.map(({ name, waiting, oldestAgeSeconds, failed }) => [
        name,
        waiting === "unknown" ? waiting : formatCount(waiting),
        formatMeasuredAge(oldestAgeSeconds),
        failed,
      ]),
    ),
  );
}
