// Replays and discards that this dashboard runs: progress, stop, result.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Job } from "../../../src/dashboard/api-types.ts";
import { call } from "../api.ts";
import { describeFilter } from "../dead-letter-filter.ts";
import { formatNumber } from "../format.ts";
import { jobs, takeJob } from "../live.ts";
import { mdFacts, mdPage, mdTable } from "../markdown.ts";
import { hrefTo, type Query } from "../router.ts";
import { whyNot } from "../session.ts";
import { useRead } from "../use-read.ts";
import { ActionButton, ActionDialog } from "../parts/action.tsx";
import { Empty, Facts, Loaded, Page, Panel } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command, Id, Time } from "../parts/text.tsx";

export function JobList(): JSX.Element {
  const read = useRead("jobs.list", {}, { everyMs: 15_000 });
  return (
    <Loaded read={read}>
      {({ items }) => {
        const rows = items.map((job) => jobs.value.get(job.id) ?? job);
        return rows.length === 0 ? (
          <Empty title="This dashboard runs no replay or discard.">
            <p>
              Those that were started from the command line, or before the dashboard was restarted, are in the{" "}
              <a href={hrefTo(["audit"], { targetKind: "dead_letter" })}>audit log</a>.
            </p>
          </Empty>
        ) : (
          <Table
            label="Replays and discards"
            rows={rows}
            keyOf={({ id }) => id}
            columns={[
              {
                title: "What",
                cell: ({ id, kind }) => (
                  <a href={hrefTo(["jobs", id])}>{kind === "replay" ? "Replay" : "Discard"}</a>
                ),
              },
              { title: "State", cell: ({ state }) => <Status word={state} /> },
              { title: "Progress", cell: (job) => <Progress job={job} /> },
              { title: "Started", cell: ({ startedAt }) => <Time at={startedAt} age /> },
              { title: "By", cell: ({ actor }) => actor },
              { title: "Reason", isWide: true, cell: ({ reason }) => reason },
            ]}
          />
        );
      }}
    </Loaded>
  );
}

function Progress({ job }: { job: Job }): JSX.Element {
  return (
    <span class="progress">
      <progress max={Math.max(1, job.total)} value={job.done} aria-label={`Progress of the ${job.kind}`} />
      <span class="nowrap">
        {formatNumber(job.done)} of {formatNumber(job.total)}
      </span>
    </span>
  );
}

export function JobPage({ id }: { id: string }): JSX.Element {
  const live = jobs.value.get(id);
  const isRunning = live === undefined || live.endedAt === null;
  const read = useRead("jobs.show", { params: { id } }, { everyMs: isRunning ? 5_000 : undefined });
  useEffect(() => {
    if (read.data !== undefined) takeJob(read.data);
  }, [read.data]);
  const job = live ?? read.data;
  return (
    <Page
      title={job === undefined ? "Replay" : job.kind === "replay" ? "Replay" : "Discard"}
      lead={job === undefined ? undefined : `Of ${describeFilter(job.filter)}`}
      {...(job !== undefined && { markdown: () => jobMarkdown(job) })}
    >
      {job === undefined ? <Loaded read={read}>{() => null}</Loaded> : <JobView job={job} />}
    </Page>
  );
}

function JobView({ job }: { job: Job }): JSX.Element {
  const [isAsking, setAsking] = useState(false);
  const cannotStop =
    whyNot("jobs.stop") ??
    (job.endedAt !== null ? "It has ended." : job.state === "stopping" ? "It is stopping already." : null);
  return (
    <>
      <Panel
        title="Progress"
        tools={<ActionButton label="Stop" tone="danger" why={cannotStop} onPress={() => setAsking(true)} />}
      >
        <p aria-live="polite">
          <Status word={job.state} /> {job.now === null ? "" : `${job.now.stage} of ${job.now.label}`}
          {job.why !== null && job.why}
        </p>
        <Progress job={job} />
        <Facts
          items={[
            ["Started", <Time at={job.startedAt} age />],
            ["Ended", job.endedAt === null ? null : <Time at={job.endedAt} age />],
            ["By", job.actor],
            ["Reason", job.reason],
          ]}
        />
        <Command label="On the command line" text={job.command} />
      </Panel>
      {job.groups.length > 0 && (
        <Panel title="Result by cause">
          <Table
            label="Result by cause"
            rows={job.groups}
            keyOf={({ fingerprint }) => fingerprint}
            columns={[
              {
                title: "Cause",
                isWide: true,
                cell: ({ fingerprint, label }) => (
                  <a href={hrefTo(["dead-letters"], { fingerprint, open: "both" })}>{label}</a>
                ),
              },
              {
                title: "Verdict",
                cell: ({ verdict, why }) => (
                  <>
                    <Status word={verdict} />
                    {why !== null && <div class="small">{why}</div>}
                  </>
                ),
              },
              { title: "Replayed", isNumber: true, cell: ({ replayed }) => formatNumber(replayed) },
              { title: "Handled", isNumber: true, cell: ({ handled }) => formatNumber(handled) },
              { title: "Died again", isNumber: true, cell: ({ diedAgain }) => formatNumber(diedAgain) },
              { title: "Waiting", isNumber: true, cell: ({ waiting }) => formatNumber(waiting) },
              { title: "Left", isNumber: true, cell: ({ left }) => formatNumber(left) },
            ]}
          />
        </Panel>
      )}
      {job.endedAt !== null && (
        <div class="next">
          <a class="btn" href={hrefTo(["dead-letters"])}>
            Dead letters that are left
          </a>
          {job.kind === "replay" && (
            <a class="btn" href={hrefTo(["dead-letters", "replay"], job.filter as Query)}>
              Plan it again
            </a>
          )}
        </div>
      )}
      {isAsking && (
        <ActionDialog
          title={`Stop this ${job.kind}`}
          plan={
            <p>
              What is in flight is finished. Everything else stays a dead letter, and a new plan can go on
              with it.
            </p>
          }
          verb="Stop"
          isDangerous
          run={async (reason) => {
            const stopped = await call("jobs.stop", { params: { id: job.id }, body: { reason } });
            takeJob(stopped);
            return {
              what: stopped.endedAt === null ? "It stops after what is in flight." : "It has stopped.",
            };
          }}
          onClose={() => setAsking(false)}
        />
      )}
      <p class="muted small">
        <Id id={job.id} />
      </p>
    </>
  );
}

function jobMarkdown(job: Job): string {
  return mdPage(
    `${job.kind === "replay" ? "Replay" : "Discard"} of ${describeFilter(job.filter)}`,
    mdFacts([
      ["State", job.state],
      ["Progress", `${job.done} of ${job.total}`],
      ["Why", job.why],
      ["Started", job.startedAt],
      ["Ended", job.endedAt],
      ["By", job.actor],
      ["Reason", job.reason],
    ]),
    job.groups.length === 0
      ? ""
      : mdTable(
          ["Cause", "Verdict", "Replayed", "Handled", "Died again", "Waiting", "Left"],
          job.groups.map((group) => [
            group.label,
            group.verdict,
            group.replayed,
            group.handled,
            group.diedAgain,
            group.waiting,
            group.left,
          ]),
        ),
    `\`${job.command}\``,
  );
}
