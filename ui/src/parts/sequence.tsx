// A sequence diagram: one column for each service or consumer, one row for each delivery, in order of time.
import type { JSX } from "preact";
import type { SequenceMessage } from "../../../src/dashboard/api-types.ts";
import { formatMs } from "../format.ts";
import { hrefTo } from "../router.ts";
import { Status } from "./status.tsx";
import { Time } from "./text.tsx";

interface Row {
  readonly message: SequenceMessage;
  readonly from: number;
  readonly to: number | undefined;
  readonly state: string;
  readonly receiver: string | undefined;
  readonly at: string | null;
  readonly isFirst: boolean;
}

export function SequenceDiagram({ messages }: { messages: readonly SequenceMessage[] }): JSX.Element {
  const names = [...new Set(messages.flatMap(({ from, to }) => [from, ...to.map(({ name }) => name)]))];
  const rows = messages.flatMap((message) => rowsOf(message, names));
  const first = messages[0];
  return (
    <div class="scroller" tabIndex={0} role="group" aria-label="Sequence diagram">
      <div
        class="sequence"
        role="table"
        aria-label="Messages between services"
        style={{ "--columns": String(names.length) }}
      >
        <div role="row" class="contents">
          <span role="columnheader" class="s-head">
            Time
          </span>
          {names.map((name) => (
            <span key={name} role="columnheader" class="s-head s-name">
              {name}
            </span>
          ))}
        </div>
        {names.map((name, index) => (
          <span
            key={name}
            class="s-life"
            aria-hidden="true"
            style={{ gridColumn: String(index + 2), gridRow: `2 / span ${rows.length}` }}
          />
        ))}
        {rows.map((row, index) => (
          <div role="row" class="contents" key={`${row.message.id} ${row.receiver ?? ""}`}>
            <span role="cell" class="s-time" style={{ gridRow: String(index + 2) }}>
              {row.isFirst && <Time at={row.message.at} />}
              {row.isFirst && first !== undefined && index > 0 && (
                <span class="gap">+{formatMs(Date.parse(row.message.at) - Date.parse(first.at))}</span>
              )}
            </span>
            <Arrow row={row} line={index + 2} />
          </div>
        ))}
      </div>
    </div>
  );
}

function rowsOf(message: SequenceMessage, names: readonly string[]): Row[] {
  const from = names.indexOf(message.from);
  if (message.to.length === 0) {
    return [
      {
        message,
        from,
        to: undefined,
        state: "no receiver yet",
        receiver: undefined,
        at: null,
        isFirst: true,
      },
    ];
  }
  return message.to.map(({ name, state, at }, index) => ({
    message,
    from,
    to: names.indexOf(name),
    state,
    receiver: name,
    at,
    isFirst: index === 0,
  }));
}

function Arrow({ row, line }: { row: Row; line: number }): JSX.Element {
  const to = row.to ?? row.from;
  const left = Math.min(row.from, to);
  const span = Math.abs(row.from - to) + 1;
  const direction = to === row.from ? "self" : to > row.from ? "right" : "left";
  return (
    <span
      role="cell"
      class={`s-arrow ${direction}`}
      style={{ gridRow: String(line), gridColumn: `${left + 2} / span ${span}`, "--span": String(span) }}
    >
      <a href={hrefTo(["messages", row.message.id])} title={row.message.id}>
        {row.message.type}
      </a>
      <span class="offscreen">
        {` from ${row.message.from}${row.receiver === undefined ? "" : ` to ${row.receiver}`}: `}
      </span>
      <span class="s-line" aria-hidden="true" />
      <Status word={row.state} />
    </span>
  );
}
