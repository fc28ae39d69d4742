// One dead letter: the error, the data, what was tried before; replay it, edit it, discard it. And two of them side by side.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { DeadLetterView } from "../../../src/dashboard/api-types.ts";
import { call } from "../api.ts";
import { diffLines, prettyPrint } from "../json-text.ts";
import { mdFacts, mdPage, mdTable } from "../markdown.ts";
import { hrefTo, route } from "../router.ts";
import { whyNot } from "../session.ts";
import { useRead } from "../use-read.ts";
import { ActionButton, ActionDialog, forbidden } from "../parts/action.tsx";
import { Diff } from "../parts/diff.tsx";
import { Empty, Facts, Loaded, Page, Panel } from "../parts/page.tsx";
import { Payload } from "../parts/payload.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Copy, Id, Time } from "../parts/text.tsx";

export function DeadLetterPage({ id }: { id: string }): JSX.Element {
  const read = useRead("deadLetters.show", { params: { id } });
  const { data } = read;
  return (
    <Page
      title={data === undefined ? "Dead letter" : `Dead letter of ${data.consumer ?? "the outbox"}`}
      lead={<Id id={id} full />}
      read={read}
      {...(data !== undefined && { markdown: () => letterMarkdown(data) })}
    >
      <Loaded read={read}>{(letter) => <Letter letter={letter} />}</Loaded>
    </Page>
  );
}

function Letter({ letter }: { letter: DeadLetterView }): JSX.Element {
  return (
    <>
      <Panel title="What went wrong" tools={<Actions letter={letter} />}>
        <p>
          <Status word={letter.closedAs ?? "open"} /> <Status word={letter.reason} tone="bad" /> after{" "}
          {letter.attempts} {letter.attempts === 1 ? "attempt" : "attempts"},{" "}
          <Time at={letter.failedAt} age />
        </p>
        <p class="error-text large">
          <code>{letter.errorType}</code>{" "}
          {letter.errorMessage ?? <span class="muted">The text is hidden from your role.</span>}
        </p>
        {letter.stackTrace !== null && (
          <details>
            <summary>Stack</summary>
            <pre tabIndex={0}>{letter.stackTrace}</pre>
            <Copy text={letter.stackTrace} what="the stack" />
          </details>
        )}
        {letter.notRunning !== null && (
          <p>
            <Status word="a replay would wait" tone="warn" /> {letter.notRunning}
          </p>
        )}
        {letter.fingerprint !== null && (
          <p>
            Cause: <a href={hrefTo(["dead-letters"], { fingerprint: letter.fingerprint })}>{letter.label}</a>
          </p>
        )}
      </Panel>
      <div class="columns">
        <Panel title="Data">
          <Payload
            payload={letter.payload}
            route="deadLetters.reveal"
            what={`the data of dead letter ${letter.id}`}
            reveal={(reason) => call("deadLetters.reveal", { params: { id: letter.id }, body: { reason } })}
          />
        </Panel>
        <Panel title="Message">
          <Facts
            items={[
              ["Message", <Id id={letter.messageId} href={hrefTo(["messages", letter.messageId])} />],
              ["Type", `${letter.type}, version ${letter.schemaVersion}`],
              ["Topic", letter.topic],
              ["Key", letter.key],
              ["From", letter.source],
              ["Written", <Time at={letter.writtenAt} age />],
              [
                "Saga",
                letter.sagaId === null ? null : (
                  <Id id={letter.sagaId} href={hrefTo(["sagas", letter.sagaId])} />
                ),
              ],
              [
                "Correlation id",
                <Id id={letter.correlationId} href={hrefTo(["flows", letter.correlationId])} />,
              ],
              [
                "Trace id",
                letter.traceId === null ? null : (
                  <Id id={letter.traceId} href={hrefTo(["search"], { id: letter.traceId })} />
                ),
              ],
              ["Closed", letter.closedAt === null ? null : <Time at={letter.closedAt} age />],
            ]}
          />
        </Panel>
        <History letter={letter} />
      </div>
    </>
  );
}

function History({ letter }: { letter: DeadLetterView }): JSX.Element {
  return (
    <Panel title="What was tried before" class="all">
      {letter.others.length === 0 && letter.edits.length === 0 && letter.history.length === 0 ? (
        <Empty title="Nothing was tried with this message." />
      ) : (
        <>
          {letter.others.length > 0 && (
            <Table
              label="Other dead letters of this message"
              rows={letter.others}
              keyOf={({ id }) => id}
              columns={[
                {
                  title: "Dead letter",
                  cell: ({ id }) => <Id id={id} href={hrefTo(["dead-letters", id])} />,
                },
                {
                  title: "Error",
                  isWide: true,
                  cell: ({ errorType, errorMessage }) => `${errorType} ${errorMessage ?? ""}`,
                },
                { title: "Failed", cell: ({ failedAt }) => <Time at={failedAt} /> },
                { title: "State", cell: ({ closedAs }) => <Status word={closedAs ?? "open"} /> },
                {
                  title: "Compare",
                  cell: ({ id }) => (
                    <a href={hrefTo(["dead-letters", "compare"], { a: id, b: letter.id })}>compare</a>
                  ),
                },
              ]}
            />
          )}
          {letter.edits.length > 0 && (
            <Table
              label="Edits"
              rows={letter.edits}
              keyOf={({ version }) => String(version)}
              columns={[
                { title: "Edit", cell: ({ version }) => `version ${version}` },
                { title: "By", cell: ({ actor }) => actor },
                { title: "When", cell: ({ at }) => <Time at={at} /> },
                { title: "Reason", isWide: true, cell: ({ reason }) => reason },
                { title: "Schema", cell: ({ contract }) => contract ?? "not checked" },
              ]}
            />
          )}
          {letter.history.length > 0 && (
            <Table
              label="Actions of people"
              rows={letter.history}
              keyOf={({ at, action, deadLetterId }) => `${at} ${action} ${deadLetterId}`}
              columns={[
                { title: "When", cell: ({ at }) => <Time at={at} /> },
                { title: "Who", cell: ({ actor }) => actor },
                { title: "Action", cell: ({ action }) => action },
                { title: "Outcome", cell: ({ outcome }) => <Status word={outcome} /> },
                { title: "Reason", isWide: true, cell: ({ reason }) => reason ?? "–" },
              ]}
            />
          )}
        </>
      )}
    </Panel>
  );
}

function Actions({ letter }: { letter: DeadLetterView }): JSX.Element {
  const [asked, setAsked] = useState<"replay" | "discard">();
  const legality = (name: string): DeadLetterView["actions"][number] | undefined =>
    letter.actions.find(({ action }) => action === name);
  const edit = forbidden("deadLetters.edit", legality("edit")) ?? whyNot("deadLetters.reveal");
  const close = (): void => setAsked(undefined);
  return (
    <>
      <ActionButton
        label="Replay"
        tone="primary"
        why={forbidden("deadLetters.replay", legality("replay"))}
        onPress={() => setAsked("replay")}
      />
      <ActionButton
        label="Edit and replay"
        why={edit}
        onPress={() => {
          location.hash = hrefTo(["dead-letters", letter.id, "edit"]);
        }}
      />
      <ActionButton
        label="Discard"
        tone="danger"
        why={forbidden("deadLetters.discard", legality("discard"))}
        onPress={() => setAsked("discard")}
      />
      {asked === "replay" && (
        <ActionDialog
          title="Replay this dead letter"
          plan={
            <>
              <p>
                The message goes back to{" "}
                {letter.consumer === null ? "the outbox" : <strong>{letter.consumer}</strong>} with its id. If
                its effect has happened already, it is dropped as a duplicate.
              </p>
              {letter.notRunning !== null && <p>{letter.notRunning} It would wait until then.</p>}
            </>
          }
          verb="Replay"
          command={legality("replay")?.command}
          run={(reason) => call("deadLetters.replay", { params: { id: letter.id }, body: { reason } })}
          onClose={close}
        />
      )}
      {asked === "discard" && (
        <ActionDialog
          title="Discard this dead letter"
          plan={
            <p>
              The message will not be handled. It stays in the archive until its retention ends, but it cannot
              be replayed.
            </p>
          }
          verb="Discard"
          isDangerous
          command={legality("discard")?.command}
          run={(reason) => call("deadLetters.discard", { params: { id: letter.id }, body: { reason } })}
          onClose={close}
        />
      )}
    </>
  );
}

export function ComparePage(): JSX.Element {
  const { a = "", b = "" } = route.value.query;
  const left = useRead("deadLetters.show", a === "" ? null : { params: { id: a } });
  const right = useRead("deadLetters.show", b === "" ? null : { params: { id: b } });
  const isReady = left.data !== undefined && right.data !== undefined;
  return (
    <Page title="Compare two dead letters" lead="Lines that differ are marked with − and +.">
      {a === "" || b === "" ? (
        <Empty title="Choose two dead letters.">
          <p>
            Tick two in the <a href={hrefTo(["dead-letters"], { view: "letters" })}>list</a>.
          </p>
        </Empty>
      ) : (
        <Loaded read={isReady ? left : left.error === undefined ? right : left}>
          {() =>
            isReady && (
              <>
                <Panel title="Error and envelope">
                  <Diff lines={diffLines(describe(left.data), describe(right.data))} />
                </Panel>
                <CompareData left={left.data} right={right.data} />
              </>
            )
          }
        </Loaded>
      )}
    </Page>
  );
}

function CompareData({ left, right }: { left: DeadLetterView; right: DeadLetterView }): JSX.Element {
  const [isAsking, setAsking] = useState(false);
  const [data, setData] = useState<readonly [string, string]>();
  const reveal = async (id: string, reason: string): Promise<string> =>
    prettyPrint((await call("deadLetters.reveal", { params: { id }, body: { reason } })).data);
  return (
    <Panel title="Data">
      {data === undefined ? (
        <>
          <p>The data of both are hidden until you reveal them.</p>
          <ActionButton
            label="Reveal and compare"
            why={whyNot("deadLetters.reveal")}
            onPress={() => setAsking(true)}
          />
        </>
      ) : (
        <Diff lines={diffLines(...data)} />
      )}
      {isAsking && (
        <ActionDialog
          title="Reveal the data of both"
          plan={<p>Both reveals, and why, are in the audit log.</p>}
          verb="Reveal"
          run={async (reason) => {
            setData([await reveal(left.id, reason), await reveal(right.id, reason)]);
            return { what: "Revealed. The audit log has your reason." };
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </Panel>
  );
}

function describe(letter: DeadLetterView): string {
  return [
    ["consumer", letter.consumer ?? "outbox"],
    ["type", `${letter.type} version ${letter.schemaVersion}`],
    ["topic", letter.topic],
    ["source", letter.source],
    ["key", letter.key],
    ["reason", letter.reason],
    ["attempts", letter.attempts],
    ["error", `${letter.errorType} ${letter.errorMessage ?? ""}`],
    ["stack", letter.stackTrace ?? "–"],
    ["failed", letter.failedAt],
    ["written", letter.writtenAt],
    ["saga", letter.sagaId],
  ]
    .map(([name, value]) => `${name}: ${value ?? "–"}`)
    .join("\n");
}

function letterMarkdown(letter: DeadLetterView): string {
  return mdPage(
    `Dead letter of ${letter.consumer ?? "the outbox"}: ${letter.type}`,
    mdFacts([
      ["Id", letter.id],
      ["Message", letter.messageId],
      ["State", letter.closedAs ?? "open"],
      ["Reason", letter.reason],
      ["Error", `${letter.errorType} ${letter.errorMessage ?? ""}`],
      ["Attempts", letter.attempts],
      ["Failed", letter.failedAt],
      ["Key", letter.key],
      ["Correlation id", letter.correlationId],
      ["Group", letter.fingerprint],
    ]),
    letter.history.length === 0
      ? ""
      : mdTable(
          ["Time (UTC)", "Who", "Action", "Outcome", "Reason"],
          letter.history.map(({ at, actor, action, outcome, reason }) => [
            at,
            actor,
            action,
            outcome,
            reason,
          ]),
        ),
  );
}
