// Dead letters by cause, and one by one. Actions apply to everything that matches the filter, not only to what is on the page.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type {
  DeadLetterFilter,
  DeadLetterLine,
  DeadLettersQuery,
  GroupView,
} from "../../../src/dashboard/api-types.ts";
import { filterOf } from "../dead-letter-filter.ts";
import { countOf, formatCount, formatNumber } from "../format.ts";
import { jobs } from "../live.ts";
import { mdFacts, mdPage, mdTable } from "../markdown.ts";
import { hrefTo, route, type Query } from "../router.ts";
import { whyNot } from "../session.ts";
import { useRead } from "../use-read.ts";
import { Trend } from "../parts/chart.tsx";
import { FilterBar } from "../parts/filter-bar.tsx";
import { Empty, Loaded, Page } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Pager, Table } from "../parts/table.tsx";
import { Id, MaybeMasked, Time } from "../parts/text.tsx";
import { JobList } from "./jobs.tsx";
import { maskedReason } from "./messages.tsx";

export function DeadLettersPage(): JSX.Element {
  const { query } = route.value;
  const filter = filterOf(query);
  const view = query["view"] ?? (filter.fingerprint === undefined ? "causes" : "letters");
  const groups = useRead(
    "deadLetters.groups",
    { query: { ...filter, after: view === "causes" ? query["after"] : undefined } as DeadLettersQuery },
    { everyMs: 15_000 },
  );
  const running = [...jobs.value.values()].filter(({ endedAt }) => endedAt === null).length;
  const tab = (name: string, title: string): JSX.Element => (
    <a
      href={hrefTo(["dead-letters"], { ...query, view: name, after: undefined })}
      aria-current={view === name ? "page" : undefined}
    >
      {title}
    </a>
  );
  return (
    <Page
      title="Dead letters"
      lead={
        groups.data === undefined
          ? "Messages that could not be sent or handled. They are kept until a person decides."
          : `${countOf(groups.data.open, "open dead letter")}. They are kept until a person decides; nothing is lost.`
      }
      read={groups}
      {...(groups.data !== undefined && { markdown: () => groupsMarkdown(groups.data?.items ?? []) })}
    >
      <nav class="tabs" aria-label="Views of dead letters" data-tour="causes">
        {tab("causes", "By cause")}
        {tab("letters", "One by one")}
        {tab("jobs", running > 0 ? `Replays and discards (${running} running)` : "Replays and discards")}
      </nav>
      {view === "jobs" ? (
        <JobList />
      ) : (
        <>
          <Filters />
          <BulkActions filter={filter} />
          {view === "causes" ? (
            <Loaded read={groups}>
              {(page) =>
                page.items.length === 0 ? (
                  <NoneOpen isFiltered={Object.keys(filter).length > 0} />
                ) : (
                  <>
                    <ul class="causes">
                      {page.items.map((group) => (
                        <Cause key={group.fingerprint} group={group} />
                      ))}
                    </ul>
                    <Pager next={page.next} shown={page.items.length} />
                  </>
                )
              }
            </Loaded>
          ) : (
            <>
              {filter.fingerprint !== undefined && groups.data?.items[0] !== undefined && (
                <ul class="causes">
                  <Cause group={groups.data.items[0]} isAlone />
                </ul>
              )}
              <Letters filter={filter} />
            </>
          )}
        </>
      )}
    </Page>
  );
}

function NoneOpen({ isFiltered }: { isFiltered: boolean }): JSX.Element {
  return isFiltered ? (
    <Empty title="No open dead letter matches.">
      <p>
        Remove a filter, or look at{" "}
        <a href={hrefTo(["dead-letters"], { view: "letters", open: "false" })}>closed ones</a>.
      </p>
    </Empty>
  ) : (
    <Empty title="No open dead letters.">
      <p>
        A message that fails for good is stored here.{" "}
        <a href={hrefTo(["dead-letters"], { view: "letters", open: "false" })}>Closed ones</a> show what was
        replayed or discarded, by whom and why.
      </p>
    </Empty>
  );
}

function Filters(): JSX.Element {
  const names = useRead("names", {}).data;
  const masked = maskedReason();
  return (
    <FilterBar
      label="Filter dead letters"
      filters={[
        { name: "consumer", label: "Consumer", values: names?.consumers ?? [] },
        { name: "type", label: "Type", values: names?.types ?? [] },
        { name: "reason", label: "Reason", values: ["exhausted", "rejected", "expired", "buried", "poison"] },
        {
          name: "origin",
          label: "Where",
          isRare: true,
          values: [
            ["outbox", "when sending"],
            ["consumer", "when handling"],
          ],
        },
        { name: "topic", label: "Topic", isRare: true, values: names?.topics ?? [] },
        { name: "text", label: "Error contains", whyNot: masked },
        { name: "key", label: "Key", isRare: true, whyNot: masked },
        { name: "messageId", label: "Message", isRare: true },
        { name: "correlationId", label: "Correlation id", isRare: true },
        { name: "fingerprint", label: "Cause", isRare: true },
        { name: "since", label: "Failed since", isRare: true, kind: "time" },
        { name: "until", label: "until", isRare: true, kind: "time" },
      ]}
    />
  );
}

/** Links, not buttons: each leads to a plan that changes nothing yet. */
function BulkActions({ filter }: { filter: DeadLetterFilter }): JSX.Element {
  const replay = whyNot("deadLetters.replayPlan");
  const discard = whyNot("deadLetters.discardPlan");
  const query = filter as Query;
  return (
    <div class="bulk" data-tour="replay">
      <span class="muted">Everything that matches:</span>
      <PlanLink
        label="Plan a replay"
        href={hrefTo(["dead-letters", "replay"], query)}
        why={replay}
        isPrimary
      />
      <PlanLink label="Plan a discard" href={hrefTo(["dead-letters", "discard"], query)} why={discard} />
    </div>
  );
}

function PlanLink({
  label,
  href,
  why,
  isPrimary = false,
}: {
  label: string;
  href: string;
  why: string | null;
  isPrimary?: boolean;
}): JSX.Element {
  if (why === null) {
    return (
      <a class={isPrimary ? "btn primary" : "btn"} href={href}>
        {label}
      </a>
    );
  }
  return (
    <span class="action">
      <button type="button" class="btn" aria-disabled="true" title={why}>
        {label}
      </button>
      <span class="why">{why}</span>
    </span>
  );
}

function Cause({ group, isAlone = false }: { group: GroupView; isAlone?: boolean }): JSX.Element {
  const sum = group.trend.reduce((total, value) => total + value, 0);
  return (
    <li class="cause">
      <div class="cause-head">
        <Status word={group.reason} tone="bad" />
        <h2>
          {isAlone ? (
            group.label
          ) : (
            <a href={hrefTo(["dead-letters"], { fingerprint: group.fingerprint })}>{group.label}</a>
          )}
        </h2>
        <span class="cause-count">{formatCount(group.open)}</span>
      </div>
      {group.errorMessage !== null && (
        <p class="error-text">
          <code>{group.errorType}</code> {group.errorMessage}
        </p>
      )}
      <div class="cause-facts">
        <span>
          <Trend values={group.trend} label={`${formatNumber(sum)} in the last hour`} />
          <span class="muted small">{formatNumber(sum)} in the last hour</span>
        </span>
        <span>
          <span class="muted small">First</span> <Time at={group.firstAt} age />
        </span>
        <span>
          <span class="muted small">Last</span> <Time at={group.lastAt} age />
        </span>
        <span>
          <span class="muted small">Waiting behind</span> {countOf(group.waitingKeys, "key")}
        </span>
        {(group.replayed.count > 0 || group.discarded.count > 0) && (
          <span>
            <span class="muted small">Before</span> {formatCount(group.replayed)} replayed,{" "}
            {formatCount(group.discarded)} discarded
          </span>
        )}
      </div>
      {group.notRunning !== null && (
        <p>
          <Status word="a replay would wait" tone="warn" /> {group.notRunning}
        </p>
      )}
      <div class="cause-links">
        {!isAlone && (
          <a class="btn" href={hrefTo(["dead-letters"], { fingerprint: group.fingerprint })}>
            Look at the group
          </a>
        )}
        <a class="btn" href={hrefTo(["dead-letters", group.sampleId])}>
          Look at one
        </a>
        <PlanLink
          label="Plan a replay"
          href={hrefTo(["dead-letters", "replay"], { fingerprint: group.fingerprint })}
          why={whyNot("deadLetters.replayPlan")}
        />
      </div>
    </li>
  );
}

function Letters({ filter }: { filter: DeadLetterFilter }): JSX.Element {
  const { query } = route.value;
  const open = (["true", "false", "both"] as const).find((value) => value === query["open"]) ?? "true";
  const read = useRead("deadLetters.list", {
    query: { ...filter, open, after: query["after"] } as DeadLettersQuery,
  });
  const [compared, setCompared] = useState<readonly string[]>([]);
  const [a, b] = compared;
  const toggle = (id: string): void =>
    setCompared((old) => (old.includes(id) ? old.filter((other) => other !== id) : [...old, id].slice(-2)));
  return (
    <>
      <div class="bulk">
        <div class="choice" role="group" aria-label="Which dead letters">
          {(
            [
              ["true", "Open"],
              ["false", "Closed"],
              ["both", "Both"],
            ] as const
          ).map(([value, title]) => (
            <a
              key={value}
              href={hrefTo(["dead-letters"], {
                ...query,
                view: "letters",
                open: value === "true" ? undefined : value,
                after: undefined,
              })}
              aria-current={open === value ? "true" : undefined}
            >
              {title}
            </a>
          ))}
        </div>
        <span class="muted">Tick two to compare them.</span>
        {a !== undefined && b !== undefined && (
          <a class="btn" href={hrefTo(["dead-letters", "compare"], { a, b })}>
            Compare the two
          </a>
        )}
      </div>
      <Loaded read={read}>
        {(page) =>
          page.items.length === 0 ? (
            <NoneOpen isFiltered={Object.keys(filter).length > 0} />
          ) : (
            <>
              <Table
                label="Dead letters"
                rows={page.items}
                keyOf={({ id }) => id}
                columns={[
                  {
                    title: "Compare",
                    cell: ({ id }) => (
                      <input
                        type="checkbox"
                        aria-label={`Compare dead letter ${id}`}
                        checked={compared.includes(id)}
                        onChange={() => toggle(id)}
                      />
                    ),
                  },
                  {
                    title: "Dead letter",
                    cell: ({ id }) => <Id id={id} href={hrefTo(["dead-letters", id])} />,
                  },
                  { title: "Consumer", cell: ({ consumer }) => consumer ?? "outbox" },
                  { title: "Type", cell: ({ type }) => type },
                  { title: "Key", cell: ({ key }) => <MaybeMasked value={key} /> },
                  { title: "Error", isWide: true, cell: (line) => <ErrorCell line={line} /> },
                  { title: "Attempts", isNumber: true, cell: ({ attempts }) => formatNumber(attempts) },
                  { title: "Failed", cell: ({ failedAt }) => <Time at={failedAt} age /> },
                  { title: "State", cell: ({ closedAs }) => <Status word={closedAs ?? "open"} /> },
                ]}
              />
              <Pager next={page.next} shown={page.items.length} />
            </>
          )
        }
      </Loaded>
    </>
  );
}

function ErrorCell({ line }: { line: DeadLetterLine }): JSX.Element {
  return (
    <>
      <code>{line.errorType}</code>{" "}
      {line.errorMessage === null ? (
        <span class="muted">text hidden</span>
      ) : (
        <span class="error-text">{line.errorMessage}</span>
      )}
    </>
  );
}

function groupsMarkdown(groups: readonly GroupView[]): string {
  return mdPage(
    "Dead letters by cause",
    mdFacts([["Causes", groups.length]]),
    mdTable(
      ["Cause", "Open", "First (UTC)", "Last (UTC)", "Keys waiting", "Group"],
      groups.map((group) => [
        group.label,
        formatCount(group.open),
        group.firstAt,
        group.lastAt,
        formatCount(group.waitingKeys),
        group.fingerprint,
      ]),
    ),
  );
}
