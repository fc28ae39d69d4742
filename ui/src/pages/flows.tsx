// Flows: declared choreographies with live counts, those without progress, and the path of one correlation id.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { CorrelationView, FlowPathView } from "../../../src/dashboard/api-types.ts";
import { formatMs, spaced } from "../format.ts";
import { mdPage, mdTable } from "../markdown.ts";
import { goTo, hrefTo, route } from "../router.ts";
import { useRead } from "../use-read.ts";
import { FlowGraph } from "../parts/flow-graph.tsx";
import { Empty, Loaded, Page, Panel } from "../parts/page.tsx";
import { SequenceDiagram } from "../parts/sequence.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command, Id, Time } from "../parts/text.tsx";
import { FoundSagas } from "./search.tsx";

export function FlowsPage(): JSX.Element {
  const { flow } = route.value.query;
  const flows = useRead("flows.list", {}, { everyMs: 30_000 });
  const unfinished = useRead("flows.unfinished", { query: flow === undefined ? {} : { flow } });
  return (
    <Page title="Flows" lead="How messages lead to other messages across services." read={flows}>
      <OpenFlow />
      <Panel title="Without progress for 15 minutes">
        <Loaded read={unfinished} lines={3}>
          {({ paths }) =>
            paths.length === 0 ? <Empty title="No flow is unfinished." /> : <Unfinished paths={paths} />
          }
        </Loaded>
      </Panel>
      <Loaded read={flows}>
        {(view) =>
          view.flows.length === 0 ? (
            <Empty title="No flow is declared here.">
              <p>
                A choreography that is declared with <code>flow(…)</code> and registered in the process of
                this dashboard is drawn here. The path of one correlation id works without a declaration.
              </p>
            </Empty>
          ) : (
            view.flows.map((declared) => (
              <Panel key={declared.name} title={declared.name}>
                <FlowGraph flow={declared} />
                {declared.findings.length > 0 && (
                  <ul class="list">
                    {declared.findings.map((finding) => (
                      <li key={finding}>
                        <Status word="finding" tone="warn" /> {finding}
                      </li>
                    ))}
                  </ul>
                )}
              </Panel>
            ))
          )
        }
      </Loaded>
    </Page>
  );
}

function OpenFlow(): JSX.Element {
  const [text, setText] = useState("");
  return (
    <form
      class="big-search"
      role="search"
      aria-label="Open a flow"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "") goTo(hrefTo(["flows", text.trim()]));
      }}
    >
      <input
        aria-label="Correlation id"
        placeholder="Correlation id"
        value={text}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit" class="btn primary">
        Draw it
      </button>
    </form>
  );
}

function Unfinished({ paths }: { paths: readonly FlowPathView[] }): JSX.Element {
  return (
    <Table
      label="Unfinished flows"
      rows={paths}
      keyOf={({ correlationId, flow }) => `${flow} ${correlationId}`}
      columns={[
        { title: "Flow", cell: ({ flow }) => flow },
        {
          title: "Correlation id",
          cell: ({ correlationId }) => <Id id={correlationId} href={hrefTo(["flows", correlationId])} />,
        },
        { title: "Status", cell: ({ status }) => <Status word={status} /> },
        { title: "Waits for", isWide: true, cell: (path) => <Waits path={path} /> },
        { title: "Last", cell: ({ lastAt }) => <Time at={lastAt} age /> },
      ]}
    />
  );
}

function Waits({ path }: { path: FlowPathView }): JSX.Element {
  if (path.waitsFor.length === 0) return <>nothing</>;
  return (
    <ul class="plain">
      {path.waitsFor.map(({ by, oneOf, after }) => (
        <li key={`${by} ${after.messageId}`}>
          <strong>{by}</strong> after {after.type}:{" "}
          {oneOf.map((events) => events.join(" and ")).join(", or ")}
        </li>
      ))}
    </ul>
  );
}

export function FlowPage({ id }: { id: string }): JSX.Element {
  const read = useRead("flows.show", { params: { id } }, { everyMs: 15_000 });
  const { data } = read;
  return (
    <Page
      title="Flow"
      lead={
        <>
          Correlation id <Id id={id} full />
        </>
      }
      read={read}
      {...(data !== undefined && { markdown: () => flowMarkdown(data) })}
    >
      <Loaded read={read}>
        {(view) =>
          view.messages.length === 0 && view.sagas.length === 0 ? (
            <Empty title="Nothing has this correlation id.">
              <p>
                It may be another kind of id: <a href={hrefTo(["search"], { id })}>search for it</a>.
              </p>
            </Empty>
          ) : (
            <Flow view={view} />
          )
        }
      </Loaded>
    </Page>
  );
}

function Flow({ view }: { view: CorrelationView }): JSX.Element {
  return (
    <>
      {view.paths.map((path) => (
        <Panel key={path.flow} title={path.flow}>
          <p>
            <Status word={path.status} /> {formatMs(path.durationMs)} from <Time at={path.beganAt} /> to{" "}
            <Time at={path.lastAt} />
          </p>
          {path.waitsFor.length > 0 && (
            <div>
              Waits for:
              <Waits path={path} />
            </div>
          )}
          {path.notUndone.length > 0 && (
            <p>
              <Status word="not undone" tone="bad" /> {path.notUndone.join(", ")}
            </p>
          )}
          {path.surprises.map(({ messageId, type, what }) => (
            <p key={messageId}>
              <Status word="unexpected" tone="warn" /> <a href={hrefTo(["messages", messageId])}>{type}</a>:{" "}
              {what}
            </p>
          ))}
        </Panel>
      ))}
      <Panel title="Sequence">
        <SequenceDiagram messages={view.messages} />
        {view.isCut && <p class="box">There are more messages than are drawn.</p>}
      </Panel>
      {view.sagas.length > 0 && (
        <Panel title="Sagas">
          <FoundSagas sagas={view.sagas} />
        </Panel>
      )}
      <Command text={view.command} />
    </>
  );
}

function flowMarkdown(view: CorrelationView): string {
  return mdPage(
    `Flow ${view.correlationId}`,
    view.paths.map(({ flow, status }) => `- ${flow}: ${spaced(status)}`).join("\n"),
    mdTable(
      ["Time (UTC)", "From", "Message", "To"],
      view.messages.map(({ at, from, type, to }) => [
        at,
        from,
        type,
        to.map(({ name, state }) => `${name} (${state})`).join(", "),
      ]),
    ),
  );
}
