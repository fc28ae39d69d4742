import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { pgDatabase } from "../storage/index.ts";
import type { LoadedInstance } from "./saga-store.ts";
import { newState } from "./state.ts";
import { sagaStatements } from "./statements.ts";
import type { Transition } from "./transition.ts";
import { writeTransition } from "./transition-writer.ts";

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const before: LoadedInstance = {
    id: "a",
    type: "order",
    definitionVersion: 1,
    key: "k",
    input: { id: "k" },
    status: "started",
    state: newState(),
    version: 0,
    traceparent: "00-t-s-01",
    correlationId: "c",
    parent: null,
    claims: 0,
    nowMs: 0,
  };
  const lines = [
    { nr: 1, event: "failed", stepPath: "pay", from: "pending", to: "failed", note: 'its {words}, "quoted"' },
    { nr: 2, event: "state_changed", from: "started", to: "failed" },
  ];
  const transition = (more: Partial<Transition["plain"]> = {}): Transition => ({
    id: "a",
    plain: {
      id: "a",
      version: 0,
      status: "running",
      step: "pay",
      waits: "run: pay",
      since: 1_794_907_179_810.5,
      error: undefined,
      retries: 2,
      due: 1_794_907_179_811.25,
      release: false,
      cause: "start:a",
      actor: null,
      steps: undefined,
      incident: undefined,
      resolution: undefined,
      attachments: undefined,
      ...more,
    },
    parts: {
      state: '{"of":"a"}',
      lines: JSON.stringify(lines),
      input: '{"kind":"start"}',
      metadata: null,
      oldState: '{"units":0}',
      newState: '{"units":1}',
    },
  });
  const write = (one: Transition): Promise<boolean> =>
    writeTransition(sagaStatements('"sagabox"'), pgDatabase(pool), before, one, {
      definitionVersion: 1,
      traceId: "t",
    });
  const rows = async (query: string): Promise<unknown[]> => (await pool.query(query)).rows;
  return { write, transition, rows };
}

test("an instance is written with all that its first decision says, and with its history", async () => {
  const { write, transition, rows } = await setup();
  expect(await write(transition())).toBe(false);
  expect(
    await rows(
      `select status, state::text, current_step, waits_for, extract(epoch from waiting_since)::text as since, last_error,
              retry_count, extract(epoch from due_at)::text as due, version, completed_at, attachments, claims
         from sagabox.saga_instance`,
    ),
  ).toEqual([
    {
      status: "running",
      state: '{"of":"a"}',
      current_step: "pay",
      waits_for: "run: pay",
      since: "1794907179.810500",
      last_error: null,
      retry_count: 2,
      due: "1794907179.811250",
      version: 1,
      completed_at: null,
      attachments: null,
      claims: 0,
    },
  ]);
  expect(
    await rows(
      `select version, event_type, step, old_status, new_status, note, cause, user_id, trace_id, input::text,
              metadata::text, old_state::text, new_state::text
         from sagabox.saga_audit_log order by id`,
    ),
  ).toEqual([
    {
      version: 1,
      event_type: "failed",
      step: "pay",
      old_status: "pending",
      new_status: "failed",
      note: 'its {words}, "quoted"',
      cause: "start:a",
      user_id: null,
      trace_id: "t",
      input: '{"kind":"start"}',
      metadata: null,
      old_state: '{"units":0}',
      new_state: '{"units":1}',
    },
    {
      version: 1,
      event_type: "state_changed",
      step: null,
      old_status: "started",
      new_status: "failed",
      note: null,
      cause: "start:a",
      user_id: null,
      trace_id: "t",
      input: null,
      metadata: null,
      old_state: null,
      new_state: null,
    },
  ]);
  expect(await rows("select from sagabox.saga_incident")).toEqual([]);
});

test("one that fails at its start has its incident, with its steps by name", async () => {
  const { write, transition, rows } = await setup();
  const attachments = ["0123456789ab/2026-01-01/0123"];
  await write(
    transition({
      status: "failed",
      steps: ["pay", 'a "b", c'],
      incident: "no, {never}",
      due: null,
      attachments,
    }),
  );
  expect(await rows("select saga_id, steps, error, closed_at from sagabox.saga_incident")).toEqual([
    { saga_id: "a", steps: ["pay", 'a "b", c'], error: "no, {never}", closed_at: null },
  ]);
  expect(await rows("select status, due_at, attachments from sagabox.saga_instance")).toEqual([
    { status: "failed", due_at: null, attachments },
  ]);
});

test("where the key is taken nothing is written", async () => {
  const { write, transition, rows } = await setup();
  await write(transition());
  await expect(write(transition({ incident: "x", steps: [] }))).rejects.toThrow(
    "changed by another transaction",
  );
  expect(await rows("select from sagabox.saga_audit_log")).toHaveLength(2);
  expect(await rows("select from sagabox.saga_incident")).toEqual([]);
});
