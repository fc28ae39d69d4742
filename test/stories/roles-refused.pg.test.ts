import { event } from "sagabox";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import type { RoleName } from "../../src/admin/index.ts";
import { rolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 90_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

/** One message, one receipt of a day of its own, one line of the audit log. */
async function setup() {
  const harness = await rolesHarness();
  const owner = await harness.bus(["owner"]);
  await owner.migrate();
  const writer = await harness.bus(["writer"]);
  await writer.transaction((tx) => tx.publish(Placed, { id: "1" }));
  await harness.pool.query(
    `insert into sagabox.audit_log (actor, action, target_kind, outcome) values ('ann', 'test', 'message', 'done')`,
  );
  return harness;
}

const allRoles: RoleName[] = [
  "writer",
  "relay",
  "consumer",
  "saga",
  "worker",
  "viewer",
  "operator",
  "privacy",
];

// When and in which transaction a line was written, and as which, is the word of the database.
const key = "key_id, subject, wrapped, kek_id";
const aKey = "repeat('k', 22), repeat('s', 43), 'w', 'kek'";
const erasure = "subject, reason, actor, key_ids, to_scrub, scrubbed, proof";
const anErasure = "repeat('s', 43), 'request', 'ann', '{}', '{}', '{}', 'p'";
const line = "saga_id, version, event_type, cause";
const aLine = "'s', 1, 'noted', 'x'";
const action = "actor, action, target_kind, outcome";
const anAction = "'ann', 'test', 'message', 'done'";

const forbidden: readonly (readonly [RoleName | "every role", string])[] = [
  ["writer", "select data from sagabox.message"],
  ["writer", "select * from sagabox.outbox"],
  ["writer", "select message_id from sagabox.outbox"],
  ["writer", "delete from sagabox.outbox"],
  ["writer", "select id, key from sagabox.message"],
  ["writer", "select * from sagabox.scheduled"],
  ["writer", "select id, data from sagabox.scheduled"],
  ["writer", "select written_on from sagabox.published_id"],
  ["writer", "delete from sagabox.published_id"],
  ["writer", "insert into sagabox.message values (default) returning data"],
  ["relay", "update sagabox.message set data = '{}'"],
  ["relay", "update sagabox.scheduled set data = '{}'"],
  ["relay", "update sagabox.outbox set message_id = 'x'"],
  ["relay", "select data from sagabox.dead_letter"],
  ["relay", "update sagabox.receipt set sent_at = now()"],
  ["consumer", "delete from sagabox.message"],
  ["consumer", "delete from sagabox.consumer_inbox"],
  ["consumer", "delete from sagabox.subscription"],
  ["consumer", "do $$ begin lock table sagabox.subscription in access exclusive mode; end $$"],
  ["consumer", "update sagabox.dead_letter set closed_as = 'discarded'"],
  ["consumer", "select state from sagabox.saga_instance"],
  ["saga", "delete from sagabox.saga_instance"],
  ["saga", "update sagabox.saga_instance set input = '{}'"],
  ["saga", "select note from sagabox.saga_audit_log"],
  ["viewer", "select data from sagabox.message"],
  ["viewer", "select headers from sagabox.message"],
  ["viewer", "select payload from sagabox.outbox_events"],
  ["viewer", "select error_message from sagabox.dead_letter"],
  ["viewer", "select token from sagabox.relay_lane"],
  ["viewer", "insert into sagabox.masked_outbox (lane) values (1)"],
  ["operator", "select data from sagabox.message"],
  ["operator", "insert into sagabox.message (id) values ('x')"],
  ["operator", "update sagabox.dead_letter set data = '{}'"],
  ["operator", "delete from sagabox.dead_letter"],
  ["operator", "update sagabox.saga_instance set status = 'completed'"],
  ["operator", "select wrapped from sagabox.subject_key"],
  ["privacy", "update sagabox.message set data = '{}'"],
  ["privacy", "delete from sagabox.gdpr_erasure_log"],
  ["writer", `insert into sagabox.subject_key (${key}, created_xid) values (${aKey}, '1')`],
  ["writer", `insert into sagabox.subject_key (${key}, created_at) values (${aKey}, '2000-01-01')`],
  ["privacy", `insert into sagabox.subject_key (${key}, created_xid) values (${aKey}, '1')`],
  ["privacy", `insert into sagabox.gdpr_erasure_log (${erasure}, xid) values (${anErasure}, '1')`],
  [
    "privacy",
    `insert into sagabox.gdpr_erasure_log (${erasure}, id) overriding system value values (${anErasure}, 1)`,
  ],
  ...["id", "xid", "timestamp"].flatMap((column) => [
    [
      "every role",
      `insert into sagabox.saga_audit_log (${line}, ${column}) values (${aLine}, default)`,
    ] as const,
    [
      "every role",
      `insert into sagabox.audit_log (${action}, ${column}) values (${anAction}, default)`,
    ] as const,
  ]),
  ["every role", "update sagabox.audit_log set actor = 'bob'"],
  ["every role", "delete from sagabox.audit_log"],
  ["every role", "insert into sagabox.audit_seal (number) values (1)"],
  ["every role", "update sagabox.saga_audit_log set note = 'x'"],
  ["every role", "truncate sagabox.message"],
  ["every role", "truncate sagabox.audit_log"],
  ["every role", "drop table sagabox.message"],
  ["every role", "alter table sagabox.message add column x text"],
  ["every role", "alter table sagabox.audit_log disable trigger all"],
  ["every role", "create table sagabox.mine (id int)"],
  [
    "every role",
    "create or replace function sagabox.lock_subscriptions() returns void language sql as 'select'",
  ],
  ["every role", "insert into sagabox.schema_migration values (99, 'x', false, 'x')"],
  ["every role", "update sagabox.outbox_move set to_status = 'sent'"],
  ["every role", "select * from sagabox.message_default"],
  ["every role", "insert into sagabox.outbox_move values ('x', 'pending', 'sent')"],
];

test("SEC-35: what must not be done is refused, by each role that could try", async () => {
  const harness = await setup();
  const allowed: string[] = [];
  for (const role of allRoles) {
    const pool = await harness.as(role);
    for (const [who, sql] of forbidden) {
      if (who !== "every role" && who !== role) continue;
      const code = await pool.query(sql).then(
        () => "allowed",
        (error: unknown) => (error as { code?: string }).code ?? "?",
      );
      if (code !== "42501") allowed.push(`${role}: ${sql} → ${code}`);
    }
  }
  expect(allowed).toEqual([]);
});

test("who may write a log writes lines whose number, transaction and time the database chose", async () => {
  const harness = await setup();
  const refused: string[] = [];
  for (const [role, sql] of [
    ["writer", `insert into sagabox.subject_key (${key}) values (${aKey})`],
    ["saga", `insert into sagabox.saga_audit_log (${line}) values (${aLine})`],
    ["operator", `insert into sagabox.saga_audit_log (${line}) values (${aLine})`],
    ["operator", `insert into sagabox.audit_log (${action}) values (${anAction})`],
    ["privacy", `insert into sagabox.audit_log (${action}) values (${anAction})`],
    ["privacy", `insert into sagabox.gdpr_erasure_log (${erasure}) values (${anErasure})`],
  ] as const) {
    const pool = await harness.as(role);
    await pool.query(sql).catch((error: unknown) => refused.push(`${role}: ${sql} → ${String(error)}`));
  }
  expect(refused).toEqual([]);
});

test("G10: a partition that is attached later is reached through its parent, and only through it", async () => {
  const harness = await setup();
  const { rows } = await harness.pool.query<{ name: string }>(
    "select tableoid::regclass::text as name from sagabox.message",
  );
  expect(rows[0]?.name).toMatch(/message_\d{8}$/);
  const relay = await harness.as("relay");
  expect((await relay.query("select data from sagabox.message")).rowCount).toBe(1);
  await expect(relay.query(`select data from ${rows[0]?.name}`)).rejects.toThrow("permission denied");
});

const called = "insert into trap.called values (current_user, session_user)";
const shadow = (name: string, args: string, returns: string, value: string): string =>
  `create function trap.${name}(${args}) returns ${returns} language plpgsql as
     'begin ${called}; return ${value}; end'`;

test("SEC-13: functions and operators planted in a search_path are not called with the owner's rights", async () => {
  const harness = await setup();
  await harness.pool.query(
    `create schema trap; create table trap.called (who text, session text); grant all on schema trap to public;
     grant all on trap.called to public;
     ${shadow("clock_timestamp", "", "timestamptz", "now()")};
     ${shadow("nextval", "text", "bigint", "1")};
     ${shadow("found", "", "boolean", "true")};
     ${shadow("equal", "bigint, bigint", "boolean", "true")};
     ${shadow("equal", "text, text", "boolean", "true")};
     ${shadow("equal", "timestamptz, timestamptz", "boolean", "true")};
     create operator trap.= (function = trap.equal, leftarg = bigint, rightarg = bigint);
     create operator trap.= (function = trap.equal, leftarg = text, rightarg = text);
     create operator trap.= (function = trap.equal, leftarg = timestamptz, rightarg = timestamptz);
     update sagabox.outbox set due_at = 'infinity';
     insert into sagabox.dead_letter
       (origin, message_id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority, max_attempts,
        headers, data, written_at, reason, attempts, error_type, error_message, held_lane, held_seq, closed_at, closed_as)
     select 'outbox', id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority, max_attempts,
            headers, data, written_at, 'buried', 0, 'Error', 'x', lane, seq, now(), closed
       from sagabox.message, unnest(array['replayed', 'discarded']) as closed`,
  );
  const pool = await harness.as("operator", "worker");
  const client = await pool.connect();
  await client.query("create temp table message (id text); create temp table dead_letter (id bigint)");
  await client.query("set search_path = trap, pg_temp, pg_catalog");
  await client.query("select pg_catalog.count(*) from (select clock_timestamp()) as trapped");
  const ids = await client.query<{ id: string }>("select id from sagabox.dead_letter order by id");
  expect((await harness.pool.query("delete from trap.called")).rowCount).toBeGreaterThan(0); // the trap works
  for (const { id } of ids.rows) {
    await client.query("select sagabox.dead_letter_rearm($1)", [id]);
    await client.query("select sagabox.dead_letter_keep_copy($1, 3::smallint, null)", [id]);
    await client.query("select sagabox.dead_letter_free_key($1)", [id]);
  }
  await client.query("begin");
  await client.query("select sagabox.lock_subscriptions()");
  await client.query("update sagabox.outbox set attempts = attempts + 1::smallint, due_at = due_at"); // fires the trigger
  await client.query("rollback");
  client.release();
  const { rows } = await harness.pool.query("select distinct who from trap.called where who <> session");
  expect(rows).toEqual([]);
  expect((await harness.pool.query("select 1 from trap.called")).rowCount).toBe(0);
});
