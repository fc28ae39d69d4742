// One message: where it is and why, its life, its data, and what may be done with it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { MessageView } from "../../../src/dashboard/api-types.ts";
import { call } from "../api.ts";
import { mdFacts, mdPage, mdTable } from "../markdown.ts";
import { hrefTo } from "../router.ts";
import { useRead } from "../use-read.ts";
import { ActionButton, ActionDialog, forbidden } from "../parts/action.tsx";
import { Empty, Facts, Loaded, Page, Panel } from "../parts/page.tsx";
import { Payload } from "../parts/payload.tsx";
import { Status } from "../parts/status.tsx";
import { Command, Id, Time } from "../parts/text.tsx";
import { Timeline } from "../parts/timeline.tsx";

export function MessagePage({ id }: { id: string }): JSX.Element {
  const read = useRead("messages.show", { params: { id } }, { everyMs: 15_000 });
  const { data } = read;
  return (
    <Page
      title={data === undefined ? "Message" : data.message.type}
      lead={<Id id={id} full />}
      read={read}
      {...(data !== undefined && { markdown: () => messageMarkdown(data) })}
    >
      <Loaded read={read}>{(view) => <Message view={view} />}</Loaded>
    </Page>
  );
}

function Message({ view }: { view: MessageView }): JSX.Element {
  const { message } = view;
  return (
    <>
      <Panel title="Where it is" tools={<Actions view={view} />}>
        <ul class="answers">
          {view.standings.map(({ where, state, why, next }) => (
            <li key={where}>
              <p>
                <Status word={state} /> <strong>{where}</strong>
              </p>
              <p>{why}</p>
              <p class="then">{next}</p>
            </li>
          ))}
        </ul>
        <Command text={view.command} />
      </Panel>
      <div class="columns">
        <Panel title="Its life">
          {view.timeline.length === 0 ? (
            <Empty title="Nothing is recorded." />
          ) : (
            <Timeline
              label="Its life"
              items={view.timeline.map(({ at, what }, index) => ({ key: `${index}`, at, what }))}
            />
          )}
        </Panel>
        <div>
          <Panel title="Data">
            <Payload
              payload={view.payload}
              route="messages.reveal"
              what={`the data of message ${message.id}`}
              reveal={(reason) => call("messages.reveal", { params: { id: message.id }, body: { reason } })}
            />
          </Panel>
          <Panel title="Envelope">
            <Envelope view={view} />
          </Panel>
          {view.deadLetters.length > 0 && (
            <Panel title="Its dead letters">
              <ul class="list">
                {view.deadLetters.map(({ id, consumer, failedAt, closedAs }) => (
                  <li key={id}>
                    <Id id={id} href={hrefTo(["dead-letters", id])} /> <Status word={closedAs ?? "open"} />
                    <p class="muted small">
                      {consumer ?? "outbox"}, <Time at={failedAt} age />
                    </p>
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

function Envelope({ view: { message, isMasked } }: { view: MessageView }): JSX.Element {
  return (
    <Facts
      items={[
        ["Type", `${message.type}, version ${message.schemaVersion}`],
        ["Kind", message.kind],
        ["Topic", message.topic],
        ["Key", message.key ?? (isMasked ? "hidden from your role" : null)],
        ["From", message.source],
        ["Written", <Time at={message.writtenAt} age />],
        ["Scheduled for", message.scheduledFor === null ? null : <Time at={message.scheduledFor} age />],
        ["Expires", message.expiresAt === null ? null : <Time at={message.expiresAt} age />],
        ["Priority", message.priority],
        ["Lane", message.lane],
        [
          "Saga",
          message.sagaId === null ? null : (
            <Id id={message.sagaId} href={hrefTo(["sagas", message.sagaId])} />
          ),
        ],
        ["Correlation id", <Id id={message.correlationId} href={hrefTo(["flows", message.correlationId])} />],
        [
          "Caused by",
          message.causationId === null ? null : (
            <Id id={message.causationId} href={hrefTo(["search"], { id: message.causationId })} />
          ),
        ],
        [
          "Trace id",
          <Id id={message.traceId} href={hrefTo(["search"], { id: message.traceId, as: "traceId" })} />,
        ],
      ]}
    />
  );
}

function Actions({ view }: { view: MessageView }): JSX.Element {
  const [asked, setAsked] = useState<"retry" | "bury">();
  const { id } = view.message;
  const retry = view.actions.find(({ action }) => /retry/i.test(action));
  const bury = view.actions.find(({ action }) => /bury/i.test(action));
  const close = (): void => setAsked(undefined);
  return (
    <>
      <ActionButton
        label="Retry now"
        why={forbidden("messages.retryNow", retry)}
        onPress={() => setAsked("retry")}
      />
      <ActionButton
        label="Dead-letter it"
        tone="danger"
        why={forbidden("messages.bury", bury)}
        onPress={() => setAsked("bury")}
      />
      {asked === "retry" && (
        <ActionDialog
          title="Retry this message now"
          plan={
            <p>
              The next attempt does not wait for its time. A worker takes it at once; later messages of its
              key follow.
            </p>
          }
          verb="Retry now"
          command={retry?.command}
          run={(reason) => call("messages.retryNow", { params: { id }, body: { reason } })}
          onClose={close}
        />
      )}
      {asked === "bury" && (
        <ActionDialog
          title="Dead-letter this message"
          plan={
            <p>
              It is not tried again. It is stored as a dead letter, from where it can be replayed later.
              Unless its contract says otherwise, the next messages of its key go on.
            </p>
          }
          verb="Dead-letter it"
          isDangerous
          command={bury?.command}
          run={async (reason) => {
            const done = await call("messages.bury", { params: { id }, body: { reason } });
            return {
              ...done,
              link: { href: hrefTo(["dead-letters", done.deadLetterId]), text: "Show the dead letter" },
            };
          }}
          onClose={close}
        />
      )}
    </>
  );
}

function messageMarkdown(view: MessageView): string {
  const { message } = view;
  return mdPage(
    `Message ${message.type}`,
    mdFacts([
      ["Id", message.id],
      ["Topic", message.topic],
      ["Key", message.key],
      ["Written", message.writtenAt],
      ["Correlation id", message.correlationId],
      ["Trace id", message.traceId],
      ["Saga", message.sagaId],
    ]),
    view.standings
      .map(({ where, state, why, next }) => `- **${where}**: ${state}. ${why} Next: ${next}`)
      .join("\n"),
    mdTable(
      ["Time (UTC)", "What"],
      view.timeline.map(({ at, what }) => [at, what]),
    ),
    `\`${view.command}\``,
  );
}
