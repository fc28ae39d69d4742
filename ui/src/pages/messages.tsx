// Messages: the archive with filters, or what waits in the outbox.
import type { JSX } from "preact";
import type { MessagesQuery } from "../../../src/dashboard/api-types.ts";
import { hrefTo, route } from "../router.ts";
import { me } from "../session.ts";
import { useRead } from "../use-read.ts";
import { FilterBar } from "../parts/filter-bar.tsx";
import { Empty, Loaded, Page } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Pager, Table } from "../parts/table.tsx";
import { Id, MaybeMasked, Time } from "../parts/text.tsx";

const STATES = [
  ["waiting", "waiting to be sent"],
  ["failed", "failed, retried later"],
  ["held", "held behind a dead letter"],
  ["scheduled", "scheduled for later"],
] as const;

export function maskedReason(): string | null {
  return me.value?.isMasked === true ? "Your role may not read keys." : null;
}

export function MessagesPage(): JSX.Element {
  const { query } = route.value;
  const names = useRead("names", {}).data;
  const read = useRead("messages.list", { query: query as MessagesQuery });
  const isOutbox = query["state"] !== undefined;
  return (
    <Page
      title="Messages"
      lead={
        isOutbox ? "What waits in the outbox, oldest first." : "All messages of the archive, newest first."
      }
      read={read}
    >
      <FilterBar
        label="Filter messages"
        filters={[
          { name: "state", label: "State", values: STATES },
          { name: "type", label: "Type", values: names?.types ?? [] },
          { name: "topic", label: "Topic", values: names?.topics ?? [] },
          { name: "key", label: "Key", whyNot: maskedReason() },
          { name: "correlationId", label: "Correlation id" },
          { name: "from", label: "Written from", kind: "time" },
          { name: "to", label: "until", kind: "time" },
        ]}
      />
      <Loaded read={read}>
        {(page) =>
          page.items.length === 0 ? (
            <Empty title={isOutbox ? "Nothing waits here." : "No message matches."}>
              <p>
                {isOutbox
                  ? "Every message of this kind was sent."
                  : "Remove a filter or widen the time range. Messages older than the retention of the archive are gone."}
              </p>
            </Empty>
          ) : (
            <>
              <Table
                label="Messages"
                rows={page.items}
                keyOf={({ id }) => id}
                columns={[
                  { title: "Message", cell: ({ id }) => <Id id={id} href={hrefTo(["messages", id])} /> },
                  { title: "Type", isWide: true, cell: ({ type }) => type },
                  { title: "Key", cell: ({ key }) => <MaybeMasked value={key} /> },
                  { title: "Topic", cell: ({ topic }) => topic },
                  { title: "Written", cell: ({ writtenAt }) => <Time at={writtenAt} age /> },
                  {
                    title: "State",
                    cell: ({ state, attempts, dueAt, lastError }) => (
                      <>
                        <Status word={state} tone={state === "waiting" ? "busy" : undefined} />
                        {attempts > 0 && (
                          <div class="muted small">
                            {attempts} {attempts === 1 ? "attempt" : "attempts"}
                            {dueAt !== null && (
                              <>
                                , next <Time at={dueAt} />
                              </>
                            )}
                          </div>
                        )}
                        {lastError !== null && <div class="error-text small">{lastError}</div>}
                      </>
                    ),
                  },
                ]}
              />
              <Pager next={page.next} shown={page.items.length} />
            </>
          )
        }
      </Loaded>
    </Page>
  );
}
