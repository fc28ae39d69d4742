import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type MessageState, type Move, type MoveName, moves } from "../src/outbox/index.ts";

const migration = join(import.meta.dirname, "../src/storage/migrations/0001_messages.sql");
const START = "-- ▼ written by scripts/embed-migrations.ts from src/outbox/message-state.ts";
const END = "-- ▲ end of the generated section";

/**
 * Whether an outbox row may be in a state. `claimed` is a property of the lane, so every row that may be claimed may
 * also be pending. A row that is sent is deleted.
 */
const stateConditions: Readonly<Record<MessageState, (row: string) => string>> = {
  pending: (row) => `${row}.due_at < 'infinity' and ${isUnleased(row)}`,
  optimistic: (row) => `${row}.due_at < 'infinity' and ${row}.lease_until is not null`,
  claimed: (row) => `${row}.due_at < 'infinity' and ${isUnleased(row)}`,
  sent: () => "false",
  failed: (row) => `${row}.due_at < 'infinity' and ${isUnleased(row)} and ${row}.attempts > 0`,
  dead_letter: (row) => `${row}.due_at = 'infinity'`,
};

/**
 * What else an update must do to be the move. Moves that insert or delete a row, lease a lane or happen when time passes
 * update no row. A relay that dead-letters a row makes the update of `bury`.
 */
const changeConditions: Readonly<Partial<Record<MoveName, string>>> = {
  publish_failed: "after.attempts = before.attempts + 1",
  optimistic_send_failed:
    "after.attempts = before.attempts and after.due_at <= before.due_at and after.lease_until is null",
  retry:
    "after.attempts = before.attempts and after.due_at <= before.due_at\n" +
    "                          and after.lease_until is not distinct from before.lease_until",
  manual_retry_dlq: "after.attempts = 0",
  bury: "after.attempts >= before.attempts",
};

function isUnleased(row: string): string {
  return `(${row}.lease_until is null or ${row}.lease_until <= clock_timestamp())`;
}

/** Returns the rows of `outbox_move` and the function that finds the move of an update, as SQL. */
export function moveGuardSql(): string {
  const rows = moves.map(({ name, from, to }) => `  ('${name}', '${from}', '${to}')`).join(",\n");
  return `${START}
insert into {schema}.outbox_move (name, from_status, to_status) values
${rows};

-- Returns the name of the move that an update makes, or null if it makes none. The change, the state before and the
-- state after must all fit one row of outbox_move.
create function {schema}.outbox_move_of(before {schema}.outbox, after {schema}.outbox) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select move.name
    from {schema}.outbox_move as move
   where (before.lane, before.seq, before.topic, before.message_id, before.written_on)
         is not distinct from (after.lane, after.seq, after.topic, after.message_id, after.written_on)
     and before.stream is not distinct from after.stream
     and (before.lease_until is not null or after.lease_until is null)
     and case move.name
${cases(changeConditions)}
           else false
         end
     and case move.from_status
${cases(statesOf("from", "before"))}
         end
     and case move.to_status
${cases(statesOf("to", "after"))}
         end
   limit 1
$$;
${END}`;
}

function statesOf(end: "from" | "to", row: string): Record<string, string> {
  const updates = moves.filter((move: Move) => changeConditions[move.name as MoveName] !== undefined);
  const states = [...new Set(updates.map((move) => move[end]))];
  return Object.fromEntries(states.map((state) => [state, stateConditions[state](row)]));
}

function cases(conditions: Readonly<Record<string, string>>): string {
  return Object.entries(conditions)
    .map(([value, condition]) => `           when '${value}' then ${condition}`)
    .join("\n");
}

/** Returns the migration with the current section, and the text it has now. */
export function withMoveGuard(): { readonly current: string; readonly expected: string } {
  const current = readFileSync(migration, "utf8");
  const [before = "", rest = ""] = current.split(START);
  const after = rest.slice(rest.indexOf(END) + END.length);
  return { current, expected: `${before}${moveGuardSql()}${after}` };
}

/** Writes the section of the migration that derives from the state machine. */
export function writeMoveGuard(): void {
  writeFileSync(migration, withMoveGuard().expected);
}
