import { expect, test, vi } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { someDeadLetters } from "../../../test/support/dead-letters.ts";
import { aMessage } from "../../../test/support/messages.ts";
import { buryMessage, deadLetterStatements, replayDeadLetters } from "../../dead-letter/index.ts";
import { pgDatabase } from "../../storage/index.ts";
import { verifyConservation } from "../conservation/verify.ts";
import { editDeadLetter } from "./dead-letter-actions.ts";
import { createDeadLetterAdmin } from "./dead-letter-admin.ts";
import { listDeadLetterGroups } from "./list-dead-letters.ts";

vi.setConfig({ testTimeout: 90_000 });

const place = { type: "order.placed", topic: "events.order.placed" };
const by = { actor: "ann", reason: "fixed" };

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const admin = createDeadLetterAdmin(pgDatabase(pool), "sagabox");
  const rows = async (sql: string, params: unknown[] = []) =>
    (await pool.query<Record<string, unknown>>(sql, params)).rows;
  return { pool, admin, rows };
}

test("groups, pages, keys and outcomes of 100,000 dead letters are found by index", async () => {
  const { pool, admin } = await setup();
  await someDeadLetters(pool, place, [
    { consumer: "billing", letters: 60_000, error: "'late'" },
    { consumer: "mail", letters: 40_000, error: "'full'" },
  ]);
  await pool.query(
    `update sagabox.dead_letter set fingerprint = case consumer when 'mail' then '0123456789ab' else 'ba9876543210' end,
            closed_at = case when consumer = 'billing' and id % 3 > 0 then now() end,
            closed_as = case when consumer = 'billing' and id % 3 > 0 then 'replayed' end`,
  );
  await pool.query("vacuum analyze sagabox.dead_letter");
  const plan = async (text: string, values: readonly unknown[]): Promise<string> => {
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(`explain ${text}`, [...values]);
    return rows.map((row) => row["QUERY PLAN"]).join("\n");
  };
  const page = await plan(admin.store.sql.listInOrder([]).text, [
    "0123456789ab",
    "999999",
    "-2",
    "-infinity",
    "",
    100,
  ]);
  expect(page).toContain("dead_letter_open_cause");
  expect(page).toContain("dead_letter_open_key");
  expect(page).not.toContain("Seq Scan");
  const outcomes = await plan(admin.sql.outcomes.text, ["{1,2}", "{queue,queue}", "{256,256}", "{1,2}"]);
  expect(outcomes).toContain("dead_letter_message");
  const { list } = deadLetterStatements("sagabox");
  expect(await plan(list(["messageId", "open"]).text, [50, null, "m1-7"])).toContain("dead_letter_message");
  expect(await plan(list(["fingerprint", "open"]).text, [50, null, "00000000000a"])).not.toContain(
    "Seq Scan",
  );
  const beganMs = performance.now();
  expect(await listDeadLetterGroups(admin)).toMatchObject({
    open: 60_000,
    groups: [
      { consumer: "mail", open: 40_000 },
      { consumer: "billing", open: 20_000, replayed: 40_000 },
    ],
  });
  expect(performance.now() - beganMs).toBeLessThan(5_000);
});

test("a waiting message among 100,000 is found by index", async () => {
  const { pool, admin, rows } = await setup();
  await pool.query(
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, due_at)
     select n % 256, nextval('sagabox.outbox_seq'), 't', 't', 'x-' || n, current_date, clock_timestamp()
       from generate_series(1, 100000) as n`,
  );
  await pool.query("analyze sagabox.outbox");
  const plan = await rows(`explain ${admin.sql.waiting.text}`, ["m-1"]);
  expect(plan.map((row) => row["QUERY PLAN"]).join("\n")).not.toMatch(/Seq Scan on outbox/);
});

async function holdKey({ admin, rows }: Awaited<ReturnType<typeof setup>>, id: string, seq: number) {
  const message = aMessage({ id, key: "k", data: '{"n":1}', topic: place.topic });
  const { database, sql } = admin.store;
  const death = {
    message,
    reason: "rejected",
    attempts: 1,
    maxAttempts: 10,
    error: new Error("too large"),
  } as const;
  const letter = (await buryMessage(database, sql, { origin: "outbox", ...death })) ?? "";
  await rows(
    `insert into sagabox.message (id, written_on, seq, lane, kind, type, schema_version, topic, key, correlation_id,
       traceparent, source, priority, max_attempts, holds_on_death, headers, data, written_at)
     select message_id, current_date, $2, 7, kind, type, schema_version, topic, key, correlation_id, traceparent, source,
            priority, max_attempts, true, headers, data, written_at from sagabox.dead_letter where id = $1`,
    [letter, seq],
  );
  await rows(
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, attempts, due_at)
     values (7, $2, $3, 'order.placed', $1, current_date, 10, 'infinity')`,
    [id, seq, place.topic],
  );
  await rows("update sagabox.dead_letter set held_lane = 7, held_seq = $2 where id = $1", [letter, seq]);
  return { letter, message };
}

test("an edited dead letter that blocks its key is sent from its own outbox row, with the new data", async () => {
  const harness = await setup();
  const { letter } = await holdKey(harness, "m-1", 42);
  await editDeadLetter(harness.admin, letter, { ...by, data: '{"n":2}' });
  expect(
    await harness.rows(
      `select outbox.seq::int, attempts, due_at <= clock_timestamp() as due, data
         from sagabox.outbox join sagabox.message on id = message_id and message.written_on = outbox.written_on`,
    ),
  ).toEqual([{ seq: 42, attempts: 0, due: true, data: '{"n":2}' }]);
  expect(await harness.rows("select data from sagabox.dead_letter")).toEqual([{ data: '{"n":1}' }]);
  const { findings } = await verifyConservation(harness.admin.store.database, "sagabox");
  expect(findings).toEqual([]);
});

test("a batch from the outbox is replayed: blocking rows in place, the others in new rows", async () => {
  const harness = await setup();
  const { letter, message } = await holdKey(harness, "m-1", 42);
  const free = aMessage({ id: "m-2", topic: place.topic });
  const { database, sql } = harness.admin.store;
  const death = { reason: "rejected", attempts: 1, maxAttempts: 10, error: new Error("too large") } as const;
  const other = (await buryMessage(database, sql, { origin: "outbox", message: free, ...death })) ?? "";
  const replayed = await replayDeadLetters(
    harness.admin.store,
    [
      { id: letter, message_id: "m-1", topic: place.topic, key: message.key },
      { id: other, message_id: "m-2", topic: place.topic, key: null },
    ],
    by,
  );
  expect(replayed).toMatchObject([
    { id: letter, table: "outbox", lane: 7, seq: "42" },
    { id: other, table: "outbox" },
  ]);
  expect(
    await harness.rows(
      "select message_id, again, due_at <= clock_timestamp() as due from sagabox.outbox order by 1",
    ),
  ).toEqual([
    { message_id: "m-1", again: false, due: true },
    { message_id: "m-2", again: true, due: true },
  ]);
});

test("no dead letter of a batch is closed if the consumer group is unknown", async () => {
  const { pool, admin, rows } = await setup();
  await someDeadLetters(pool, place, [{ consumer: "nobody", letters: 2, error: "'late'" }]);
  const candidates = [1, 2].map((n) => ({
    id: String(n),
    message_id: `m0-${n}`,
    topic: place.topic,
    key: `k${n}`,
  }));
  await expect(replayDeadLetters(admin.store, candidates, by)).rejects.toMatchObject({
    code: "TRANSPORT_UNROUTABLE",
  });
  expect(await rows("select 1 from sagabox.dead_letter where closed_at is null")).toHaveLength(2);
  expect(await rows("select 1 from sagabox.audit_log")).toEqual([]);
});
