// The audit log: who did what, why, and what came of it.
import type { JSX } from "preact";
import type { AuditLine, AuditQuery } from "../../../src/dashboard/api-types.ts";
import { diffLines, prettyPrint } from "../json-text.ts";
import { hrefTo, route } from "../router.ts";
import { whyNot } from "../session.ts";
import { useRead } from "../use-read.ts";
import { Diff } from "../parts/diff.tsx";
import { FilterBar } from "../parts/filter-bar.tsx";
import { Empty, Loaded, Page } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Pager, Table } from "../parts/table.tsx";
import { Command, Id, Time } from "../parts/text.tsx";

export function AuditPage(): JSX.Element {
  const { query } = route.value;
  const why = whyNot("audit.list");
  const read = useRead("audit.list", why === null ? { query: query as AuditQuery } : null);
  return (
    <Page
      title="Audit"
      lead="Append-only and sealed into a hash chain. A row that was changed later is found by the check below."
      {...(why === null && { read })}
    >
      {why !== null ? (
        <Empty title="You may not read the audit log.">
          <p>{why}</p>
        </Empty>
      ) : (
        <>
          <FilterBar
            label="Filter the audit log"
            filters={[
              { name: "people", label: "Entries", values: [["false", "of people and of sagas"]] },
              { name: "actor", label: "Who" },
              { name: "action", label: "Action" },
              { name: "outcome", label: "Outcome", values: ["done", "refused", "failed"] },
              { name: "targetKind", label: "Kind of thing", isRare: true },
              { name: "targetId", label: "Its id", isRare: true },
              { name: "sagaId", label: "Saga", isRare: true },
              { name: "from", label: "From", isRare: true, kind: "time" },
              { name: "to", label: "until", isRare: true, kind: "time" },
            ]}
          />
          <Loaded read={read}>
            {(page) =>
              page.items.length === 0 ? (
                <Empty title="No entry matches." />
              ) : (
                <>
                  <Table
                    label="Audit log"
                    rows={page.items}
                    keyOf={({ log, id }) => `${log} ${id}`}
                    columns={[
                      { title: "When", cell: ({ at }) => <Time at={at} age /> },
                      { title: "Who", cell: ({ actor }) => actor ?? "–" },
                      { title: "Action", cell: (line) => <Action line={line} /> },
                      { title: "Of", cell: (line) => <Target line={line} /> },
                      { title: "Outcome", cell: (line) => <Outcome line={line} /> },
                      { title: "Reason", isWide: true, cell: ({ reason }) => reason ?? "–" },
                    ]}
                  />
                  <Pager next={page.next} shown={page.items.length} />
                </>
              )
            }
          </Loaded>
          <Command label="Check the chain" text="sagabox audit verify" />
        </>
      )}
    </Page>
  );
}

function Action({ line }: { line: AuditLine }): JSX.Element {
  if (line.before === null && line.after === null) return <>{line.action}</>;
  return (
    <details>
      <summary>{line.action}</summary>
      <Diff lines={diffLines(prettyPrint(line.before ?? ""), prettyPrint(line.after ?? ""))} />
    </details>
  );
}

const PAGES: Readonly<Record<string, string>> = {
  dead_letter: "dead-letters",
  saga: "sagas",
  message: "messages",
  outbox: "messages",
};

function Target({ line: { target, step } }: { line: AuditLine }): JSX.Element {
  const page = PAGES[target.kind];
  return (
    <>
      {target.kind.replaceAll("_", " ")}{" "}
      {target.id !== null &&
        (page === undefined ? <Id id={target.id} /> : <Id id={target.id} href={hrefTo([page, target.id])} />)}
      {step !== null && <div class="muted small">step {step}</div>}
    </>
  );
}

function Outcome({ line }: { line: AuditLine }): JSX.Element {
  return (
    <>
      <Status word={line.outcome} />
      {line.errorCode !== null && (
        <div>
          <code class="small">{line.errorCode}</code>
        </div>
      )}
    </>
  );
}
