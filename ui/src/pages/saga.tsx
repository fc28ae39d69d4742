// One saga: its graph with the path it took, why it is where it is, its timeline, and the actions that are legal now.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type {
  Legality,
  RevealedSaga,
  SagaActionBody,
  SagaMoment,
  SagaView,
  StepView,
} from "../../../src/dashboard/api-types.ts";
import { call } from "../api.ts";
import { secondsSince } from "../clock.ts";
import { formatMs, formatSeconds, spaced } from "../format.ts";
import { isJson } from "../json-text.ts";
import { mdFacts, mdPage, mdTable } from "../markdown.ts";
import { hrefTo, route } from "../router.ts";
import { whyNot } from "../session.ts";
import { useRead } from "../use-read.ts";
import { ActionButton, ActionDialog, forbidden } from "../parts/action.tsx";
import { Empty, Facts, Loaded, Page, Panel } from "../parts/page.tsx";
import { Json } from "../parts/payload.tsx";
import { nodesOfSteps, SagaGraph, toneOfStep, wordOf } from "../parts/saga-graph.tsx";
import { Status, toneOf } from "../parts/status.tsx";
import { Pager, Table } from "../parts/table.tsx";
import { Id, Time } from "../parts/text.tsx";
import { Timeline } from "../parts/timeline.tsx";

export function SagaPage({ id }: { id: string }): JSX.Element {
  const [isFinished, setFinished] = useState(false);
  const read = useRead("sagas.show", { params: { id } }, { everyMs: isFinished ? undefined : 5_000 });
  const { data } = read;
  if (data !== undefined && isFinished !== (data.completedAt !== null))
    setFinished(data.completedAt !== null);
  return (
    <Page
      title={data === undefined ? "Saga" : data.type}
      lead={<Id id={id} full />}
      read={read}
      {...(data !== undefined && { markdown: () => sagaMarkdown(data) })}
    >
      <Loaded read={read}>{(saga) => <Saga saga={saga} />}</Loaded>
    </Page>
  );
}

function Saga({ saga }: { saga: SagaView }): JSX.Element {
  return (
    <>
      <Panel title="Where it is" tools={<Timeout saga={saga} />}>
        <p>
          <Status word={saga.status} />{" "}
          {saga.direction === "backward" && saga.completedAt === null && (
            <Status word="undoing its steps" tone="warn" />
          )}{" "}
          {saga.pivoted && <Status word="past the pivot" tone="idle" />}
        </p>
        {saga.cause !== null && <p>It turned back: {saga.cause}</p>}
        {saga.incident !== null && (
          <div class="box bad">
            <p>
              <strong>
                Incident since <Time at={saga.incident.openedAt} age />:
              </strong>{" "}
              {saga.incident.steps.join(", ")}{" "}
              {saga.incident.error !== null && <span class="error-text">{saga.incident.error}</span>}
            </p>
            {saga.incident.deadLetters.length > 0 && (
              <p>
                Dead letters:{" "}
                {saga.incident.deadLetters.map((letter) => (
                  <Id key={letter} id={letter} href={hrefTo(["dead-letters", letter])} />
                ))}
              </p>
            )}
          </div>
        )}
        <p class="then">{saga.next}</p>
        <Actions saga={saga} />
      </Panel>
      <Panel title="Graph" tools={<Legend />}>
        <SagaGraph nodes={saga.graph?.nodes ?? nodesOfSteps(saga.steps)} steps={saga.steps} />
        {saga.graph === null && (
          <p class="muted small">
            This server does not know the definition, so the steps are drawn in the order in which they began.
            Mount the dashboard in a process that registers the saga to see branches and parallel steps.
          </p>
        )}
      </Panel>
      <Panel title="Steps">
        <Steps steps={saga.steps} />
      </Panel>
      <div class="columns">
        <Panel title="Timeline">
          <History id={saga.id} />
        </Panel>
        <div>
          <Panel title="Input and results">
            <Inputs id={saga.id} />
          </Panel>
          <Panel title="About it">
            <About saga={saga} />
          </Panel>
          {saga.children.length > 0 && (
            <Panel title="Child sagas">
              <ul class="list">
                {saga.children.map((child) => (
                  <li key={child.id}>
                    <Id id={child.id} href={hrefTo(["sagas", child.id])} /> {child.type}{" "}
                    <Status word={child.status} />
                  </li>
                ))}
              </ul>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}

function Timeout({ saga }: { saga: SagaView }): JSX.Element | null {
  if (saga.dueAt === null || saga.completedAt !== null) return null;
  const seconds = -secondsSince(saga.dueAt);
  return (
    <span class="clock" role="timer" aria-live="off">
      {seconds >= 0 ? `next timeout in ${formatSeconds(seconds)}` : `due for ${formatSeconds(-seconds)}`}
    </span>
  );
}

function Legend(): JSX.Element {
  return (
    <span class="muted small">
      left: the steps, thick line = path taken · right: the undo of each · dashed = not reached
    </span>
  );
}

function Steps({ steps }: { steps: readonly StepView[] }): JSX.Element {
  if (steps.length === 0) return <Empty title="No step has begun." />;
  return (
    <Table
      label="Steps"
      rows={steps}
      keyOf={({ step }) => step}
      columns={[
        { title: "Step", cell: ({ step }) => <strong>{step}</strong> },
        { title: "State", cell: (step) => <Status word={wordOf(step)} tone={toneOfStep(step)} /> },
        { title: "Began", cell: ({ startedAt }) => <Time at={startedAt} /> },
        {
          title: "Took",
          isNumber: true,
          cell: ({ durationMs }) => (durationMs === null ? "–" : formatMs(durationMs)),
        },
        { title: "Attempts", isNumber: true, cell: ({ attempts }) => attempts },
        { title: "Next", cell: ({ nextAt, dueAt }) => <Time at={nextAt ?? dueAt} age /> },
        {
          title: "Error",
          isWide: true,
          cell: ({ error }) => (error === null ? "–" : <span class="error-text">{error}</span>),
        },
        {
          title: "Undo",
          cell: ({ undo }) =>
            undo === null ? (
              "–"
            ) : (
              <>
                <Status word={undo.status} />
                {undo.durationMs !== null && <span class="muted small"> {formatMs(undo.durationMs)}</span>}
                {undo.error !== null && <div class="error-text small">{undo.error}</div>}
              </>
            ),
        },
      ]}
    />
  );
}

function History({ id }: { id: string }): JSX.Element {
  const { after } = route.value.query;
  const read = useRead(
    "sagas.history",
    { params: { id }, query: after === undefined ? {} : { after } },
    { everyMs: 10_000 },
  );
  return (
    <Loaded read={read}>
      {(page) => (
        <>
          <Timeline
            label="Timeline of the saga"
            items={page.items.map((moment) => ({
              key: moment.id,
              at: moment.at,
              what: describeMoment(moment),
              tone: toneOf(moment.to ?? ""),
              detail: (
                <>
                  {moment.note}
                  {moment.cause !== null && (
                    <>
                      {" "}
                      {/^[\w-]{20,}$/.test(moment.cause) ? (
                        <>
                          by message <Id id={moment.cause} href={hrefTo(["messages", moment.cause])} />
                        </>
                      ) : (
                        moment.cause
                      )}
                    </>
                  )}
                  {moment.actor !== null && ` by ${moment.actor}`}
                  {moment.reason !== null && `: ${moment.reason}`}
                </>
              ),
            }))}
          />
          <Pager next={page.next} shown={page.items.length} />
        </>
      )}
    </Loaded>
  );
}

function describeMoment({ event, step, from, to }: SagaMoment): string {
  const change =
    from === null && to === null
      ? ""
      : from === null
        ? `: ${spaced(to ?? "")}`
        : `: ${spaced(from)} → ${spaced(to ?? "?")}`;
  return `${spaced(event)}${step === null ? "" : ` ${step}`}${change}`;
}

function Inputs({ id }: { id: string }): JSX.Element {
  const [isAsking, setAsking] = useState(false);
  const [revealed, setRevealed] = useState<RevealedSaga>();
  if (revealed !== undefined) {
    return (
      <>
        <h3>Input</h3>
        <Json text={revealed.input} label="the input" />
        {Object.entries(revealed.results).map(([step, result]) => (
          <details key={step} open>
            <summary>Result of {step}</summary>
            <Json text={result} label={`the result of ${step}`} />
          </details>
        ))}
      </>
    );
  }
  return (
    <>
      <p>Input and results may hold personal data, so they are hidden.</p>
      <ActionButton label="Reveal" why={whyNot("sagas.reveal")} onPress={() => setAsking(true)} />
      {isAsking && (
        <ActionDialog
          title="Reveal the input and results"
          plan={<p>They are shown to you on this page. That you looked, and why, is in the audit log.</p>}
          verb="Reveal"
          run={async (reason) => {
            setRevealed(await call("sagas.reveal", { params: { id }, body: { reason } }));
            return { what: "Revealed. The audit log has your reason." };
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}

function About({ saga }: { saga: SagaView }): JSX.Element {
  return (
    <Facts
      items={[
        ["Definition", `${saga.type}, version ${saga.definitionVersion}`],
        ["Key", saga.key],
        ["Started", <Time at={saga.createdAt} age />],
        ["Changed", <Time at={saga.updatedAt} age />],
        ["Finished", saga.completedAt === null ? null : <Time at={saga.completedAt} age />],
        ["Deadline", saga.deadlineAt === null ? null : <Time at={saga.deadlineAt} age />],
        ["Waits for", saga.waitsFor],
        ["Worked on by", saga.claimedBy],
        ["Pending inputs", saga.pendingInputs],
        [
          "Parent",
          saga.parent === null ? null : (
            <>
              <Id id={saga.parent.id} href={hrefTo(["sagas", saga.parent.id])} /> at {saga.parent.step}
            </>
          ),
        ],
        ["Correlation id", <Id id={saga.correlationId} href={hrefTo(["flows", saga.correlationId])} />],
        ["Trace id", <Id id={saga.traceId} href={hrefTo(["search"], { id: saga.traceId, as: "traceId" })} />],
      ]}
    />
  );
}

const ACTIONS: Readonly<Record<string, { label: string; plan: string; isDangerous: boolean }>> = {
  retry: {
    label: "Retry",
    plan: "The step is tried again from its beginning, with a new count of attempts.",
    isDangerous: false,
  },
  skip: {
    label: "Skip",
    plan: "The step counts as done without a result, and the saga goes on. Its undo is skipped as well. This cannot be taken back.",
    isDangerous: true,
  },
  settle: {
    label: "Settle",
    plan: "The step was done by hand: the saga goes on with the result that you give. This cannot be taken back.",
    isDangerous: true,
  },
  compensate: {
    label: "Compensate",
    plan: "The saga gives up and undoes every step that happened or may have happened, latest first. This cannot be taken back.",
    isDangerous: true,
  },
  cancel: {
    label: "Cancel",
    plan: "The saga stops and undoes every step that happened or may have happened, latest first. This cannot be taken back.",
    isDangerous: true,
  },
};

function Actions({ saga }: { saga: SagaView }): JSX.Element {
  const [asked, setAsked] = useState<Legality>();
  return (
    <div class="actions">
      {saga.actions.map((legality) => {
        const { label = legality.action, isDangerous = false } = ACTIONS[legality.action] ?? {};
        return (
          <ActionButton
            key={`${legality.action} ${legality.step ?? ""}`}
            label={legality.step === null ? label : `${label} ${legality.step}`}
            why={forbidden("sagas.act", legality)}
            {...(isDangerous ? { tone: "danger" as const } : {})}
            onPress={() => setAsked(legality)}
          />
        );
      })}
      {asked !== undefined && <SagaAction saga={saga} legality={asked} onClose={() => setAsked(undefined)} />}
    </div>
  );
}

function SagaAction({
  saga,
  legality,
  onClose,
}: {
  saga: SagaView;
  legality: Legality;
  onClose: () => void;
}): JSX.Element {
  const [result, setResult] = useState("{}");
  const { label = legality.action, plan = "", isDangerous = false } = ACTIONS[legality.action] ?? {};
  const title = legality.step === null ? `${label} this saga` : `${label} step ${legality.step}`;
  const isSettle = legality.action === "settle";
  return (
    <ActionDialog
      title={title}
      plan={
        <>
          <p>{plan}</p>
          <p class="muted small">
            A worker that knows the definition carries it out, usually within a second.
          </p>
        </>
      }
      verb={label}
      isDangerous={isDangerous}
      command={legality.command}
      blocked={isSettle && !isJson(result) ? "The result is not JSON yet." : undefined}
      fields={
        isSettle && (
          <label class="field">
            <span>Result, as JSON</span>
            <textarea
              rows={4}
              value={result}
              spellcheck={false}
              onInput={(event) => setResult(event.currentTarget.value)}
            />
          </label>
        )
      }
      run={async (reason) => {
        const body: SagaActionBody = {
          action: legality.action as SagaActionBody["action"],
          reason,
          ...(legality.step !== null && { step: legality.step }),
          ...(isSettle && { result }),
        };
        const { accepted, ...done } = await call("sagas.act", { params: { id: saga.id }, body });
        return { ...done, isNew: accepted };
      }}
      onClose={onClose}
    />
  );
}

function sagaMarkdown(saga: SagaView): string {
  return mdPage(
    `Saga ${saga.type}: ${spaced(saga.status)}`,
    mdFacts([
      ["Id", saga.id],
      ["Key", saga.key],
      ["Step", saga.currentStep],
      [
        "Incident",
        saga.incident === null ? null : `${saga.incident.steps.join(", ")} ${saga.incident.error ?? ""}`,
      ],
      ["Turned back", saga.cause],
      ["Next", saga.next],
      ["Started", saga.createdAt],
      ["Correlation id", saga.correlationId],
    ]),
    mdTable(
      ["Step", "State", "Began (UTC)", "Took ms", "Attempts", "Error", "Undo"],
      saga.steps.map((step) => [
        step.step,
        wordOf(step),
        step.startedAt,
        step.durationMs,
        step.attempts,
        step.error,
        step.undo?.status ?? null,
      ]),
    ),
  );
}
