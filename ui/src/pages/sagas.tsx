// Sagas: those that need a person first, then all with filters.
import type { JSX } from "preact";
import type { SagaLine, SagasQuery, StuckSaga } from "../../../src/dashboard/api-types.ts";
import { formatNumber } from "../format.ts";
import { hrefTo, route } from "../router.ts";
import { useRead } from "../use-read.ts";
import { FilterBar } from "../parts/filter-bar.tsx";
import { Empty, Loaded, Page, Panel } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Pager, Table, type Column } from "../parts/table.tsx";
import { Id, MaybeMasked, Time } from "../parts/text.tsx";
import { maskedReason } from "./messages.tsx";

const REASONS: Readonly<Record<StuckSaga["reason"], string>> = {
  incident: "incident",
  unclaimed: "no worker takes it",
  held: "held",
  slow: "slow",
};

const common: readonly Column<SagaLine>[] = [
  { title: "Saga", cell: ({ id }) => <Id id={id} href={hrefTo(["sagas", id])} /> },
  { title: "Type", cell: ({ type, definitionVersion }) => `${type} v${definitionVersion}` },
  { title: "Key", cell: ({ key }) => <MaybeMasked value={key} /> },
];

export function SagasPage(): JSX.Element {
  const { query } = route.value;
  const stuck = useRead("sagas.stuck", {}, { everyMs: 30_000 });
  const read = useRead("sagas.list", { query: query as SagasQuery });
  const names = useRead("names", {}).data;
  return (
    <Page title="Sagas" lead="Those that need a person come first." read={read}>
      <Panel
        tour="sagas"
        id="stuck"
        title={
          stuck.data === undefined
            ? "Stuck"
            : `Stuck: ${formatNumber(stuck.data.items.length)}${stuck.data.exact ? "" : " or more"}`
        }
      >
        <Loaded read={stuck} lines={3}>
          {({ items }) =>
            items.length === 0 ? <Empty title="No saga is stuck." /> : <Stuck items={items} />
          }
        </Loaded>
      </Panel>
      <Panel title="All sagas">
        <FilterBar
          label="Filter sagas"
          filters={[
            { name: "type", label: "Type", values: names?.sagas ?? [] },
            { name: "status", label: "Status", values: names?.sagaStatuses ?? [] },
            { name: "step", label: "Step" },
            { name: "key", label: "Key", whyNot: maskedReason() },
            { name: "correlationId", label: "Correlation id" },
          ]}
        />
        <Loaded read={read}>
          {(page) =>
            page.items.length === 0 ? (
              <Empty title="No saga matches.">
                <p>Remove a filter. Finished sagas are deleted when their retention ends.</p>
              </Empty>
            ) : (
              <>
                <Table
                  label="Sagas"
                  rows={page.items}
                  keyOf={({ id }) => id}
                  columns={[
                    ...common,
                    { title: "Status", cell: ({ status }) => <Status word={status} /> },
                    { title: "Step", isWide: true, cell: (saga) => <Where saga={saga} /> },
                    { title: "Next timeout", cell: ({ dueAt }) => <Time at={dueAt} age /> },
                    { title: "Started", cell: ({ createdAt }) => <Time at={createdAt} age /> },
                  ]}
                />
                <Pager next={page.next} shown={page.items.length} />
              </>
            )
          }
        </Loaded>
      </Panel>
    </Page>
  );
}

function Where({ saga }: { saga: SagaLine }): JSX.Element {
  return (
    <>
      {saga.currentStep ?? "–"}
      {saga.waitsFor !== null && (
        <div class="muted small">
          waits for {saga.waitsFor}
          {saga.waitingSince !== null && (
            <>
              {" "}
              since <Time at={saga.waitingSince} />
            </>
          )}
        </div>
      )}
      {saga.lastError !== null && <div class="error-text small">{saga.lastError}</div>}
    </>
  );
}

function Stuck({ items }: { items: readonly StuckSaga[] }): JSX.Element {
  return (
    <Table
      label="Stuck sagas"
      rows={items}
      keyOf={({ id }) => id}
      columns={[
        ...(common as readonly Column<StuckSaga>[]),
        {
          title: "Why",
          cell: ({ reason }) => (
            <Status word={REASONS[reason]} tone={reason === "incident" ? "bad" : "warn"} />
          ),
        },
        {
          title: "Step",
          isWide: true,
          cell: (saga) => (
            <>
              {saga.currentStep ?? "–"}
              {saga.why !== null && <div class="error-text small">{saga.why}</div>}
            </>
          ),
        },
        { title: "What to do", isWide: true, cell: ({ whatToDo }) => whatToDo },
        { title: "Since", cell: ({ updatedAt }) => <Time at={updatedAt} age /> },
      ]}
    />
  );
}
