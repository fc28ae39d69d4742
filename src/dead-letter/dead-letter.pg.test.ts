import { expect, test } from "vitest";
import { laneFor, streamFor } from "../message/index.ts";
import { pgDatabase } from "../storage/index.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { aMessage } from "../../test/support/messages.ts";
import { type Burial, buryMessage, forgetDeadLetters } from "./bury.ts";
import { deadLetterStore, type DeadLetterStore } from "./dead-letter.ts";
import { discardDeadLetter, replayDeadLetter } from "./replay.ts";
import { listDeadLetters, showDeadLetter } from "./search.ts";

const message = aMessage({
  id: "m-1",
  topic: "events.order",
  key: "order-1",
  data: '{"orderId":"order-1","note":"$1 ? \\"quoted\\""}',
  headers: { tenant: "a" },
  causationId: "m-0",
  aggregateType: "order",
  aggregateId: "order-1",
});

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = pgDatabase(pool);
  const store = deadLetterStore(database, "sagabox");
  const rows = async (sql: string, params: unknown[] = []) =>
    (await pool.query<Record<string, unknown>>(sql, params)).rows;
  return { store, rows, pool };
}

async function bury(store: DeadLetterStore, change: Partial<Burial> = {}): Promise<string> {
  const death = { origin: "consumer", consumer: "billing", message, reason: "exhausted" } as const;
  const counts = { attempts: 6, maxAttempts: 6, error: new TypeError("no such card") };
  const id = await buryMessage(store.database, store.sql, { ...death, ...counts, ...change } as Burial);
  expect(id).not.toBeNull();
  return id ?? "";
}

// Lanes that a group has after one of its workers has read from this database.
const LANES = "insert into sagabox.relay_lane (lane, scope) select id * 256, id from sagabox.consumer_group";

test("E3: a dead letter shows the untouched message and everything about its failure", async () => {
  const { store } = await setup();
  const id = await bury(store);
  expect(await showDeadLetter(store, id)).toEqual({
    original_message: message,
    dlq_metadata: {
      id,
      reason: "exhausted",
      error_type: "TypeError",
      error_message: "no such card",
      stack_trace: expect.stringContaining("no such card") as string,
      retry_count: 6,
      failed_at: expect.stringMatching(/^\d{4}-.*Z$/) as string,
      source_topic: "events.order",
      consumer_group: "billing",
      original_timestamp: message.writtenAt,
      closed_at: null,
      closed_as: null,
      fingerprint: expect.stringMatching(/^[0-9a-f]{12}$/) as string,
    },
  });
});

test("a message with an open dead letter is not buried again", async () => {
  const { store } = await setup();
  await bury(store);
  const again = { origin: "consumer", consumer: "billing", message, reason: "rejected" } as const;
  const twice = { ...again, attempts: 1, maxAttempts: 6, error: new Error("again") };
  expect(await buryMessage(store.database, store.sql, twice)).toBeNull();
  expect(await buryMessage(store.database, store.sql, { ...twice, consumer: "mail" })).not.toBeNull();
});

test("R-10: characters that PostgreSQL cannot store are replaced", async () => {
  const { store } = await setup();
  const id = await bury(store, {
    message: { ...message, id: "", data: "a\0b", writtenAt: "yesterday", expiresAt: "never" },
  });
  expect((await showDeadLetter(store, id)).original_message).toMatchObject({
    data: "a\uFFFDb",
    expiresAt: null,
  });
});

test("dead letters are listed newest first, in pages, and filtered", async () => {
  const { store } = await setup();
  for (const n of [1, 2, 3, 4, 5]) {
    const consumer = n % 2 === 0 ? "mail" : "billing";
    await bury(store, { message: { ...message, id: `m-${n}` }, consumer } as Partial<Burial>);
  }
  const first = await listDeadLetters(store, { limit: 2 });
  const second = await listDeadLetters(store, { limit: 2, after: first.at(-1)?.id ?? "" });
  expect([...first, ...second].map((letter) => letter.messageId)).toEqual(["m-5", "m-4", "m-3", "m-2"]);
  const mail = await listDeadLetters(store, {
    consumer: "mail",
    type: "order.placed",
    topic: "events.order",
  });
  expect(mail.map((letter) => letter.messageId)).toEqual(["m-4", "m-2"]);
  await discardDeadLetter(store, first[0]?.id ?? "");
  expect(await listDeadLetters(store, { open: false })).toMatchObject([
    { messageId: "m-5", closedAs: "discarded" },
  ]);
  expect(await listDeadLetters(store, { open: true })).toHaveLength(4);
});

test("R-06: a replayed message returns to its consumer only, with its id and all attempts", async () => {
  const { store, rows } = await setup();
  const groups = await rows(
    "insert into sagabox.consumer_group (name) values ('billing'), ('mail') returning id, name",
  );
  await rows(LANES);
  const group = Number(groups[0]?.["id"]);
  const id = await bury(store, { message: { ...message, expiresAt: "2026-01-03T00:00:00Z" } });
  const replayed = await replayDeadLetter(store, id);
  expect(replayed).toMatchObject({ table: "queue", lane: group * 256 + laneFor("order-1") });
  expect(
    await rows(
      "select lane, stream::text, message_id, attempts, max_attempts, expires_at from sagabox.queue",
    ),
  ).toEqual([
    {
      lane: replayed.lane,
      stream: streamFor("events.order", "order-1"),
      message_id: "m-1",
      attempts: 0,
      max_attempts: 6,
      expires_at: null,
    },
  ]);
  const kept = await rows(
    "select data, headers from sagabox.message join sagabox.queue on message_id = message.id and queue.written_on = message.written_on",
  );
  expect(kept).toEqual([{ data: message.data, headers: '{"tenant":"a"}' }]);
});

test("R-08: when two operators replay one dead letter, one gets DEAD_LETTER_CLOSED", async () => {
  const { store, rows } = await setup();
  await rows("insert into sagabox.consumer_group (name) values ('billing')");
  await rows(LANES);
  const id = await bury(store);
  const outcomes = await Promise.allSettled([replayDeadLetter(store, id), replayDeadLetter(store, id)]);
  expect(outcomes.map((outcome) => outcome.status).sort()).toEqual(["fulfilled", "rejected"]);
  expect(outcomes.find((outcome) => outcome.status === "rejected")?.reason).toMatchObject({
    code: "DEAD_LETTER_CLOSED",
  });
  expect(await rows("select 1 from sagabox.queue")).toHaveLength(1);
});

test("an unknown dead letter, or one whose consumer has no group, changes nothing", async () => {
  const { store } = await setup();
  await expect(replayDeadLetter(store, "99")).rejects.toMatchObject({ code: "DEAD_LETTER_NOT_FOUND" });
  await expect(showDeadLetter(store, "1; drop")).rejects.toMatchObject({ code: "DEAD_LETTER_NOT_FOUND" });
  const id = await bury(store);
  await expect(replayDeadLetter(store, id)).rejects.toMatchObject({ code: "TRANSPORT_UNROUTABLE" });
  expect((await showDeadLetter(store, id)).dlq_metadata.closed_as).toBeNull();
});

test("a dead letter of the outbox is sent again, with the archived copy if it exists", async () => {
  const { store, rows } = await setup();
  const first = await bury(store, { origin: "outbox" });
  await replayDeadLetter(store, first);
  const second = await bury(store, { origin: "outbox" });
  await replayDeadLetter(store, second);
  expect(await rows("select count(*)::int as copies from sagabox.message")).toEqual([{ copies: 1 }]);
  const sent = await rows("select lane, stream::text, message_id, attempts from sagabox.outbox order by seq");
  const row = {
    lane: laneFor("order-1"),
    stream: streamFor("events.order", "order-1"),
    message_id: "m-1",
    attempts: 0,
  };
  expect(sent).toEqual([row, row]);
});

async function holdKey(store: DeadLetterStore, rows: (sql: string, params?: unknown[]) => Promise<unknown>) {
  await rows(
    `insert into sagabox.outbox (lane, seq, topic, type, message_id, written_on, attempts, due_at)
     values (7, 42, 'events.order', 'order.placed', 'm-1', current_date, 10, 'infinity')`,
  );
  const id = await bury(store, { origin: "outbox" });
  await rows("update sagabox.dead_letter set held_lane = 7, held_seq = 42 where id = $1", [id]);
  return id;
}

test("a dead letter that blocks its key is re-armed in its outbox row", async () => {
  const { store, rows } = await setup();
  const id = await holdKey(store, rows);
  expect(await replayDeadLetter(store, id)).toMatchObject({ table: "outbox", lane: 7 });
  expect(
    await rows("select seq::text, attempts, due_at <= clock_timestamp() as due from sagabox.outbox"),
  ).toEqual([{ seq: "42", attempts: 0, due: true }]);
});

test("discarding a dead letter that blocks its key releases the key", async () => {
  const { store, rows } = await setup();
  await discardDeadLetter(store, await holdKey(store, rows));
  expect(await rows("select 1 from sagabox.outbox")).toEqual([]);
});

test("E5: expired dead letters are deleted in batches, with their tombstones", async () => {
  const { store, rows } = await setup();
  await holdKey(store, rows);
  for (const n of [2, 3, 4]) await bury(store, { message: { ...message, id: `m-${n}` } });
  const [third] = await rows("select id from sagabox.dead_letter where message_id = 'm-3'");
  await discardDeadLetter(store, String(third?.["id"]));
  await rows(
    "update sagabox.dead_letter set failed_at = failed_at - interval '15 days' where message_id <> 'm-4'",
  );
  const stopped = AbortSignal.abort();
  expect(await forgetDeadLetters(store, { signal: stopped })).toEqual({ count: 0, open: 0 });
  expect(await forgetDeadLetters(store, { batchSize: 2 })).toEqual({ count: 3, open: 2 });
  expect(await rows("select message_id from sagabox.dead_letter")).toEqual([{ message_id: "m-4" }]);
  expect(await rows("select 1 from sagabox.outbox")).toEqual([]);
});
