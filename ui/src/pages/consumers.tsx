// Consumers and topology: who reads what, how far behind, and which worker does it.
import type { JSX } from "preact";
import type { ConsumerDetail, TopologyView } from "../../../src/dashboard/api-types.ts";
import { formatCount, formatMeasuredAge, formatNumber, formatSeconds } from "../format.ts";
import { hrefTo, route } from "../router.ts";
import { useRead } from "../use-read.ts";
import { Empty, Loaded, Page, Panel } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command, Time } from "../parts/text.tsx";

export function ConsumersPage(): JSX.Element {
  const consumers = useRead("consumers.list", {}, { everyMs: 10_000 });
  const topology = useRead("topology", {});
  return (
    <Page
      title="Consumers and topology"
      lead="Who reads what, how far behind, and which worker does it."
      read={consumers}
    >
      <Loaded read={consumers}>
        {(view) =>
          view.consumers.length === 0 ? (
            <Empty title="No consumer has started yet.">
              <p>
                A consumer appears when a worker with <code>bus.on(…)</code> runs for the first time.
              </p>
            </Empty>
          ) : (
            <Consumers consumers={view.consumers} />
          )
        }
      </Loaded>
      <Loaded read={topology}>{(view) => <Topology view={view} />}</Loaded>
    </Page>
  );
}

function Consumers({ consumers }: { consumers: readonly ConsumerDetail[] }): JSX.Element {
  const { name } = route.value.query;
  const chosen = consumers.find((consumer) => consumer.name === name);
  return (
    <>
      <Table
        label="Consumers"
        rows={consumers}
        keyOf={(consumer) => consumer.name}
        columns={[
          {
            title: "Consumer",
            isWide: true,
            cell: (consumer) => <a href={hrefTo(["consumers"], { name: consumer.name })}>{consumer.name}</a>,
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
          {
            title: "Last minute",
            isNumber: true,
            cell: ({ handledLastMinute }) => formatCount(handledLastMinute),
          },
          { title: "Retrying", isNumber: true, cell: ({ failed }) => formatNumber(failed) },
          {
            title: "Dead letters",
            isNumber: true,
            cell: (consumer) =>
              consumer.deadLetters.count === 0 ? (
                "0"
              ) : (
                <a href={hrefTo(["dead-letters"], { consumer: consumer.name })}>
                  {formatCount(consumer.deadLetters)}
                </a>
              ),
          },
          {
            title: "Worked on by",
            isWide: true,
            cell: ({ workers, ownedLanes }) =>
              workers.length === 0 ? (
                <Status
                  word={ownedLanes === null ? "the broker decides" : "no worker"}
                  tone={ownedLanes === null ? "idle" : "bad"}
                />
              ) : (
                workers.map(({ worker, lanes }) => (
                  <div key={worker}>
                    <code>{worker}</code> <span class="muted small">{formatNumber(lanes)} lanes</span>
                  </div>
                ))
              ),
          },
        ]}
      />
      {chosen !== undefined && (
        <Panel title={`Topics of ${chosen.name}`}>
          <Table
            label={`Topics of ${chosen.name}`}
            rows={chosen.lags}
            keyOf={({ topic }) => topic ?? ""}
            columns={[
              { title: "Topic", isWide: true, cell: ({ topic }) => topic ?? "all" },
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
            ]}
          />
          <Command text={`sagabox inbox list --consumer ${chosen.name}`} />
        </Panel>
      )}
    </>
  );
}

function Topology({ view }: { view: TopologyView }): JSX.Element {
  return (
    <div class="columns">
      <Panel title={view.transport === null ? "Topics" : `Topics on ${view.transport}`}>
        {view.topics.length === 0 ? (
          <Empty title="No topic is known yet." />
        ) : (
          <Table
            label="Topics"
            rows={view.topics}
            keyOf={({ name }) => name}
            columns={[
              { title: "Topic", cell: ({ name }) => <strong>{name}</strong> },
              {
                title: "Types",
                isWide: true,
                cell: ({ types }) =>
                  types.map((type) => (
                    <div key={type}>
                      <a href={hrefTo(["messages"], { type })}>{type}</a>
                    </div>
                  )),
              },
              {
                title: "Read by",
                isWide: true,
                cell: ({ name }) => {
                  const readers = view.bindings.filter(({ topic }) => topic === name);
                  return readers.length === 0 ? (
                    <span class="muted">no consumer</span>
                  ) : (
                    readers.map(({ consumer, since }) => (
                      <div key={consumer}>
                        {consumer}{" "}
                        <span class="muted small">
                          since <Time at={since} />
                        </span>
                      </div>
                    ))
                  );
                },
              },
            ]}
          />
        )}
      </Panel>
      <div>
        <Panel title="Workers">
          {view.workers.length === 0 ? (
            <Empty title="No worker runs." />
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
                { title: "Since", cell: ({ since }) => <Time at={since} age /> },
              ]}
            />
          )}
        </Panel>
        <Panel title="Saga definitions">
          {view.sagas.length === 0 ? (
            <Empty title="No saga is stored yet." />
          ) : (
            <ul class="list">
              {view.sagas.map(({ type, version }) => (
                <li key={`${type} ${version}`}>
                  <a href={hrefTo(["sagas"], { type })}>{type}</a> version {version}
                </li>
              ))}
            </ul>
          )}
        </Panel>
      </div>
    </div>
  );
}
