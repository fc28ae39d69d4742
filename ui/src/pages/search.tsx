// One box that takes any id and answers: what happened, why it is where it is, what happens next.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { FoundSaga, MessageView, SearchView } from "../../../src/dashboard/api-types.ts";
import { mdPage, mdTable } from "../markdown.ts";
import { goTo, hrefTo, route } from "../router.ts";
import { useRead } from "../use-read.ts";
import { Empty, Loaded, Page, Panel } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command, Id, MaybeMasked, Time } from "../parts/text.tsx";
import { Timeline } from "../parts/timeline.tsx";

const MEANINGS = { key: "a key", correlationId: "a correlation id", traceId: "a trace id" } as const;
type Meaning = keyof typeof MEANINGS;

export function SearchPage(): JSX.Element {
  const { id = "", as = "" } = route.value.query;
  const meaning = (Object.keys(MEANINGS) as Meaning[]).find((name) => name === as);
  const read = useRead(
    "search",
    id === "" ? null : { query: { id, ...(meaning !== undefined && { as: meaning }) } },
  );
  const { data } = read;
  return (
    <Page
      title="Search"
      lead="Message, saga, dead letter, key, correlation id or trace id: paste it, and see why it is where it is."
      {...(id !== "" && { read })}
      {...(data !== undefined && { markdown: () => searchMarkdown(data) })}
    >
      <BigSearch id={id} />
      {id === "" ? (
        <Empty title="Paste an id.">
          <p>
            Ids are in log lines, in traces and in error messages. A business key, like an order number, works
            as well. From any page, press <kbd>/</kbd>.
          </p>
        </Empty>
      ) : (
        <Loaded read={read}>{(view) => <Found view={view} id={id} meaning={meaning} />}</Loaded>
      )}
    </Page>
  );
}

function BigSearch({ id }: { id: string }): JSX.Element {
  const [text, setText] = useState(id);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setText(id), [id]);
  useEffect(() => {
    if (id === "") input.current?.focus();
  }, []);
  return (
    <form
      class="big-search"
      role="search"
      aria-label="Search by id"
      onSubmit={(event) => {
        event.preventDefault();
        goTo(hrefTo(["search"], { id: text.trim() }));
      }}
    >
      <input
        ref={input}
        aria-label="Any id"
        value={text}
        autocomplete="off"
        spellcheck={false}
        placeholder="Any id"
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit" class="btn primary">
        Explain
      </button>
    </form>
  );
}

function Found({
  view,
  id,
  meaning,
}: {
  view: SearchView;
  id: string;
  meaning: Meaning | undefined;
}): JSX.Element {
  const isNothing = view.messages.length === 0 && view.sagas.length === 0 && view.timeline.length === 0;
  const others = (Object.keys(MEANINGS) as Meaning[]).filter((name) => name !== meaning);
  if (isNothing) {
    return (
      <Empty title="Nothing has this id.">
        <p>
          Check that it was copied in full. It may be older than the archive keeps messages, belong to another
          schema, or the transaction that wrote it was rolled back.
        </p>
        <p>
          Read it as{" "}
          {others.map((name, index) => (
            <span key={name}>
              {index > 0 && ", "}
              <a href={hrefTo(["search"], { id, as: name })}>{MEANINGS[name]}</a>
            </span>
          ))}
          , or look at the <a href={hrefTo(["messages"])}>newest messages</a>.
        </p>
      </Empty>
    );
  }
  return (
    <>
      {view.meanings.length > 1 && (
        <p class="box">
          This is {view.meanings.join(" and ")}. Only as{" "}
          {others.map((name, index) => (
            <span key={name}>
              {index > 0 && ", "}
              <a href={hrefTo(["search"], { id, as: name })}>{MEANINGS[name]}</a>
            </span>
          ))}
        </p>
      )}
      {view.isMasked && <p class="box">Keys and error texts are hidden from your role.</p>}
      <Panel title="Why it is where it is, and what comes next">
        {view.next.length === 0 ? (
          <Empty title="Nothing is left to do: all of it is finished." />
        ) : (
          <ul class="answers">
            {view.next.map(({ of, state, why, next }) => (
              <li key={`${of} ${state} ${why}`}>
                <p>
                  <Status word={state} /> <strong>{of}</strong>
                </p>
                <p>{why}</p>
                <p class="then">{next}</p>
              </li>
            ))}
          </ul>
        )}
        <Command text={view.command} />
      </Panel>
      {view.timeline.length > 0 && (
        <Panel title="What happened">
          <Timeline
            label="What happened"
            items={view.timeline.map(({ at, what, of }, index) => ({
              key: `${index}`,
              at,
              what,
              detail: of,
            }))}
          />
        </Panel>
      )}
      {view.messages.length > 0 && (
        <Panel title="Messages">
          <FoundMessages messages={view.messages} />
        </Panel>
      )}
      {view.sagas.length > 0 && (
        <Panel title="Sagas">
          <FoundSagas sagas={view.sagas} />
        </Panel>
      )}
      {view.isCut && (
        <p class="box">There is more than is shown. Search for one of the messages to see all of its life.</p>
      )}
    </>
  );
}

function FoundMessages({ messages }: { messages: readonly MessageView[] }): JSX.Element {
  return (
    <Table
      label="Messages"
      rows={messages}
      keyOf={({ message }) => message.id}
      columns={[
        {
          title: "Message",
          cell: ({ message }) => <Id id={message.id} href={hrefTo(["messages", message.id])} />,
        },
        { title: "Type", isWide: true, cell: ({ message }) => message.type },
        { title: "Key", cell: ({ message }) => <MaybeMasked value={message.key} /> },
        { title: "Written", cell: ({ message }) => <Time at={message.writtenAt} /> },
        {
          title: "State",
          cell: ({ standings }) =>
            standings.map(({ where, state }) => (
              <div key={where}>
                <Status word={state} /> <span class="muted small">{where}</span>
              </div>
            )),
        },
        {
          title: "Flow",
          cell: ({ message }) => <a href={hrefTo(["flows", message.correlationId])}>sequence</a>,
        },
      ]}
    />
  );
}

export function FoundSagas({ sagas }: { sagas: readonly FoundSaga[] }): JSX.Element {
  return (
    <Table
      label="Sagas"
      rows={sagas}
      keyOf={({ id }) => id}
      columns={[
        { title: "Saga", cell: ({ id }) => <Id id={id} href={hrefTo(["sagas", id])} /> },
        { title: "Type", cell: ({ type }) => type },
        { title: "Key", cell: ({ key }) => <MaybeMasked value={key} /> },
        { title: "Status", cell: ({ status }) => <Status word={status} /> },
        { title: "Step", cell: ({ currentStep }) => currentStep ?? "–" },
        { title: "Next", isWide: true, cell: ({ next }) => next },
      ]}
    />
  );
}

function searchMarkdown(view: SearchView): string {
  return mdPage(
    `What happened to ${view.asked}`,
    view.next.map(({ of, state, why, next }) => `- **${of}** is ${state}: ${why} Next: ${next}`).join("\n"),
    mdTable(
      ["Time (UTC)", "What", "Of"],
      view.timeline.map(({ at, what, of }) => [at, what, of]),
    ),
    `\`${view.command}\``,
  );
}
