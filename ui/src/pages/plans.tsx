// A replay or a discard of everything that matches a filter: first the plan, then the start, then its progress.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { DeadLetterFilter, Job, Pace, ReplayPlanView } from "../../../src/dashboard/api-types.ts";
import { call } from "../api.ts";
import { describeFilter, filterOf } from "../dead-letter-filter.ts";
import { countOf, formatNumber } from "../format.ts";
import { takeJob } from "../live.ts";
import { goTo, hrefTo, route, setQuery, type Query } from "../router.ts";
import { useRead } from "../use-read.ts";
import { ActionDialog } from "../parts/action.tsx";
import { Empty, Loaded, Page, Panel } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command } from "../parts/text.tsx";

const STAGES: Readonly<Record<string, string>> = {
  canary: "A few of each cause go first. The rest waits until they were handled.",
  ramp: "The rate rises step by step, one second each.",
  rest: "All that remain, at the full rate.",
};

export function ReplayPlanPage(): JSX.Element {
  const { query } = route.value;
  const filter = filterOf(query);
  const pace = paceOf(query);
  const read = useRead("deadLetters.replayPlan", { body: { filter, ...pace } });
  const [isAsking, setAsking] = useState(false);
  return (
    <Page title="Plan a replay" lead={`Of ${describeFilter(filter)}. Nothing has happened yet.`} read={read}>
      <PaceForm pace={pace} />
      <Loaded read={read}>
        {(plan) =>
          plan.deadLetters === 0 ? (
            <Empty title="Nothing to replay.">
              <p>
                No open dead letter matches. <a href={hrefTo(["dead-letters"])}>Back to the causes</a>
              </p>
            </Empty>
          ) : (
            <>
              <ReplayPlan plan={plan} />
              <div class="next">
                <button type="button" class="btn primary" onClick={() => setAsking(true)}>
                  Start this replay
                </button>
                <a class="btn" href={hrefTo(["dead-letters"], filter as Query)}>
                  Back
                </a>
              </div>
              {isAsking && (
                <ActionDialog
                  title={`Replay ${countOf(plan.deadLetters, "dead letter")}`}
                  plan={
                    <p>
                      It runs in the background and can be stopped at any time. Each message keeps its id, so
                      no effect happens twice.
                    </p>
                  }
                  verb="Start the replay"
                  command={plan.command}
                  run={async (reason) =>
                    started(
                      await call("jobs.start", {
                        body: { kind: "replay", filter, ...pace, confirm: plan.confirm, reason },
                      }),
                    )
                  }
                  onClose={() => setAsking(false)}
                />
              )}
            </>
          )
        }
      </Loaded>
    </Page>
  );
}

function started(job: Job): { what: string; link: { href: string; text: string } } {
  takeJob(job);
  const href = hrefTo(["jobs", job.id]);
  goTo(href);
  return { what: "The server has started it.", link: { href, text: "Watch it" } };
}

function paceOf(query: Query): Pace {
  const rate = Number(query["rate"]);
  const canary = Number(query["canary"]);
  return { ...(rate > 0 && { rate }), ...(Number.isInteger(canary) && canary > 0 && { canary }) };
}

function PaceForm({ pace }: { pace: Pace }): JSX.Element {
  const [rate, setRate] = useState(String(pace.rate ?? 50));
  const [canary, setCanary] = useState(String(pace.canary ?? 3));
  useEffect(() => setRate(String(pace.rate ?? 50)), [pace.rate]);
  useEffect(() => setCanary(String(pace.canary ?? 3)), [pace.canary]);
  return (
    <form class="filters" aria-label="Pace" onSubmit={(event) => event.preventDefault()}>
      <label class="filter">
        <span>Messages per second</span>
        <input
          type="number"
          min={1}
          max={10_000}
          value={rate}
          onInput={(event) => setRate(event.currentTarget.value)}
          onChange={() => setQuery({ rate }, { replace: true })}
        />
      </label>
      <label class="filter">
        <span>First of each cause</span>
        <input
          type="number"
          min={1}
          max={1000}
          value={canary}
          onInput={(event) => setCanary(event.currentTarget.value)}
          onChange={() => setQuery({ canary }, { replace: true })}
        />
      </label>
    </form>
  );
}

function ReplayPlan({ plan }: { plan: ReplayPlanView }): JSX.Element {
  return (
    <Panel title={`What it would do with ${countOf(plan.deadLetters, "dead letter")}`}>
      <Table
        label="Causes"
        rows={plan.groups}
        keyOf={({ fingerprint }) => fingerprint}
        columns={[
          {
            title: "Cause",
            isWide: true,
            cell: ({ fingerprint, label }) => <a href={hrefTo(["dead-letters"], { fingerprint })}>{label}</a>,
          },
          { title: "Goes to", cell: ({ consumer }) => consumer ?? "outbox" },
          { title: "Open", isNumber: true, cell: ({ open }) => formatNumber(open) },
          {
            title: "Ready",
            isWide: true,
            cell: ({ notRunning }) =>
              notRunning === null ? (
                <Status word="a worker runs" tone="ok" />
              ) : (
                <>
                  <Status word="skipped" tone="warn" /> {notRunning}
                </>
              ),
          },
        ]}
      />
      <ol class="stages">
        {plan.stages.map(({ name, perSecond, count }, index) => (
          <li key={index}>
            <strong>{name}</strong>
            <p>
              {count === null ? "all that remain" : formatNumber(count)}, {formatNumber(perSecond)} per second
            </p>
            <p class="muted small">{STAGES[name]}</p>
          </li>
        ))}
      </ol>
      <p>
        <Status word="stop rule" tone="warn" /> {plan.stopRule}
      </p>
      <Command text={plan.command} />
    </Panel>
  );
}

export function DiscardPlanPage(): JSX.Element {
  const filter: DeadLetterFilter = filterOf(route.value.query);
  const read = useRead("deadLetters.discardPlan", { body: { filter } });
  const [isAsking, setAsking] = useState(false);
  const [typed, setTyped] = useState("");
  return (
    <Page title="Plan a discard" lead={`Of ${describeFilter(filter)}. Nothing has happened yet.`} read={read}>
      <Loaded read={read}>
        {(plan) => {
          if (plan.deadLetters.count === 0) return <Empty title="Nothing to discard." />;
          const expected = String(plan.deadLetters.count);
          return (
            <Panel title={`This would discard ${countOf(plan.deadLetters, "dead letter")}`}>
              <p>
                They will not be handled, and they cannot be replayed afterwards. A replay is the usual way; a
                discard is for messages that are not valid any more.
              </p>
              <Command text={plan.command} />
              <div class="next">
                <button type="button" class="btn danger" onClick={() => setAsking(true)}>
                  Discard them
                </button>
                <a class="btn" href={hrefTo(["dead-letters"], filter as Query)}>
                  Back
                </a>
              </div>
              {isAsking && (
                <ActionDialog
                  title={`Discard ${countOf(plan.deadLetters, "dead letter")}`}
                  plan={<p>This cannot be undone.</p>}
                  verb="Discard them"
                  isDangerous
                  command={plan.command}
                  blocked={typed.trim() === expected ? undefined : `Type ${expected} above to confirm.`}
                  fields={
                    <label class="field">
                      <span>
                        Type <b>{expected}</b>, the number of dead letters
                      </span>
                      <input
                        value={typed}
                        inputMode="numeric"
                        onInput={(event) => setTyped(event.currentTarget.value)}
                      />
                    </label>
                  }
                  run={async (reason) =>
                    started(
                      await call("jobs.start", {
                        body: { kind: "discard", filter, confirm: plan.confirm, reason },
                      }),
                    )
                  }
                  onClose={() => setAsking(false)}
                />
              )}
            </Panel>
          );
        }}
      </Loaded>
    </Page>
  );
}
