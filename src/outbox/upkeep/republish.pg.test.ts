import { expect, test } from "vitest";
import { anOutgoing, outboxDatabase } from "../../../test/support/outbox-rows.ts";
import { until } from "../../../test/support/relays.ts";
import { ensurePartitions } from "./history.ts";
import { nextSliceMs, republish, type RepublishOptions } from "./republish.ts";

const HOUR_MS = 3_600_000;

async function setup() {
  const parts = await outboxDatabase();
  const { database, rows } = parts;
  await ensurePartitions(database, "sagabox");
  const everything = { from: new Date(Date.now() - HOUR_MS), to: new Date(Date.now() + HOUR_MS) };
  const again = (options: Partial<RepublishOptions> = {}) =>
    republish(database, "sagabox", { ...everything, ...options });
  const settle = () => rows("delete from sagabox.outbox");
  const waiting = async () =>
    (await rows<{ id: string }>("select message_id as id from sagabox.outbox order by seq")).map(
      ({ id }) => id,
    );
  return { ...parts, again, settle, waiting };
}

const numbered = (count: number, more = {}) =>
  Array.from({ length: count }, (_, n) => ({ message: { id: `m-${n}`, key: `k-${n % 3}`, ...more } }));
const ids = (count: number) => Array.from({ length: count }, (_, n) => `m-${n}`);

test("A15: what was sent in a time window is sent again, under its own ids and in its old order", async () => {
  const { again, settle, waiting, rows, write } = await setup();
  for (const one of numbered(25)) await write(one);
  const before = await rows(
    "select message_id, lane, stream, topic, written_on from sagabox.outbox order by seq",
  );
  await settle();
  expect(await again({ pageSize: 10 })).toMatchObject({ count: 25, finished: true });
  expect(await waiting()).toEqual(ids(25));
  expect(
    await rows("select message_id, lane, stream, topic, written_on from sagabox.outbox order by seq"),
  ).toEqual(before);
});

test("A15: what still waits and what lies among the dead letters is not sent a second time", async () => {
  const { again, settle, waiting, rows, write } = await setup();
  await write(...numbered(3));
  await settle();
  await rows(`insert into sagabox.dead_letter
      (origin, message_id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority, max_attempts,
       headers, data, written_at, reason, attempts, error_type, error_message)
    select 'outbox', id, kind, type, schema_version, topic, correlation_id, traceparent, source, priority, max_attempts,
           headers, data, written_at, 'rejected', 1, 'Error', 'no' from sagabox.message where id = 'm-1'`);
  await write({ message: { id: "unsent" } });
  expect((await again()).count).toBe(2);
  expect(await waiting()).toEqual(["unsent", "m-0", "m-2"]);
});

test("A15: only the window and the topic that were asked for", async () => {
  const { again, settle, waiting, rows, write } = await setup();
  await write(...numbered(2), { message: { id: "other", topic: "events.other" } });
  await write({ message: { id: "old" } });
  await settle();
  await rows("update sagabox.message set written_at = written_at - interval '2 hours' where id = 'old'");
  await again({ topic: "events.other" });
  expect(await waiting()).toEqual(["other"]);
  await settle();
  await again();
  expect((await waiting()).toSorted()).toEqual(["m-0", "m-1", "other"]);
});

test("A15: it can be aborted between two pages, tells its progress, and goes on from there", async () => {
  const { again, settle, waiting, write } = await setup();
  await write(...numbered(30));
  await settle();
  const stop = new AbortController();
  const told: number[] = [];
  const first = await again({
    pageSize: 10,
    signal: stop.signal,
    onProgress: ({ count }) => {
      told.push(count);
      if (count === 20) stop.abort();
    },
  });
  expect(told).toEqual([10, 20]);
  expect(first).toMatchObject({ count: 20, finished: false });
  expect(await again({ pageSize: 10, after: first.after })).toMatchObject({ count: 10, finished: true });
  expect(await waiting()).toEqual(ids(30));
});

test("A15: a rate spreads the pages over time", async () => {
  const { again, settle, write } = await setup();
  await write(...numbered(30));
  await settle();
  const began = performance.now();
  await again({ pageSize: 10, ratePerSecond: 200 });
  expect(performance.now() - began).toBeGreaterThan(140);
});

test("A15: a window that begins before the archive, or none at all, is refused with the reason", async () => {
  const { again, waiting } = await setup();
  const from = new Date(Date.now() - 40 * 24 * HOUR_MS);
  await expect(again({ from, retentionMs: 30 * 24 * HOUR_MS })).rejects.toThrow("lies before what is kept");
  await expect(again({ from: new Date("2026-01-02"), to: new Date("2026-01-01") })).rejects.toMatchObject({
    code: "OPTIONS_INVALID",
  });
  await expect(again({ after: { writtenAt: "yesterday", seq: "0" } })).rejects.toThrow("republish.after");
  await expect(again({ pagesize: 5 } as never)).rejects.toMatchObject({ code: "OPTIONS_UNKNOWN_KEY" });
  expect(await waiting()).toEqual([]);
});

test("slices shrink where much was written and grow where little was", () => {
  expect(nextSliceMs(1_000, 500, 500)).toBe(500);
  expect(nextSliceMs(1, 500, 500)).toBe(1);
  expect(nextSliceMs(1_000, 200, 500)).toBe(1_000);
  expect(nextSliceMs(1_000, 0, 500)).toBe(4_000);
  expect(nextSliceMs(86_400_000, 0, 500)).toBe(86_400_000);
});

/** Of one key, in the order in which they will be sent. */
const order = async (rows: Awaited<ReturnType<typeof setup>>["rows"], key: string): Promise<string[]> =>
  (
    await rows<{ id: string }>(
      `select message_id as id from sagabox.outbox
         join sagabox.message on message.id = outbox.message_id and message.written_on = outbox.written_on
        where message.key = $1 order by outbox.seq`,
      [key],
    )
  ).map(({ id }) => id);

test("what is sent again goes in front of newer messages of its key that still wait", async () => {
  const { again, settle, rows, write } = await setup();
  await write(...numbered(9));
  await settle();
  await write({ message: { id: "newer", key: "k-0" } }, { message: { id: "newest", key: "k-0" } });
  await rows(
    "update sagabox.outbox set attempts = 1, due_at = now() + interval '1 hour', last_error = 'no' where message_id = 'newer'",
  );
  expect(await again({ pageSize: 2 })).toMatchObject({ count: 9, finished: true });
  expect(await order(rows, "k-0")).toEqual(["m-0", "m-3", "m-6", "newer", "newest"]);
  expect(await order(rows, "k-1")).toEqual(["m-1", "m-4", "m-7"]);
  expect(
    await rows(
      "select attempts, last_error, due_at > now() as later from sagabox.outbox where message_id = 'newer'",
    ),
  ).toEqual([{ attempts: 1, last_error: "no", later: true }]);
  expect((await again()).count).toBe(0);
});

test("a message that its writer is sending right now keeps its place", async () => {
  const { again, settle, rows, write } = await setup();
  await write(...numbered(3));
  await settle();
  await write({ message: { id: "leased", key: "k-0" } }, { message: { id: "behind", key: "k-0" } });
  await rows(`begin; set local session_replication_role = replica;
    update sagabox.outbox set lease_until = now() + interval '1 hour' where message_id = 'leased'; commit`);
  await again();
  expect(await order(rows, "k-0")).toEqual(["leased", "m-0", "behind"]);
});

test("a message whose transaction is open while others are sent again comes behind them", async () => {
  const { again, settle, rows, write, database, writer } = await setup();
  await write(...numbered(3));
  await settle();
  const tx = await database.begin();
  await writer.write(tx, [anOutgoing({ message: { id: "concurrent", key: "k-0" } })]);
  const sending = again();
  const asked = "select 1 from pg_locks where relation = 'sagabox.outbox'::regclass and not granted";
  await until(async () => (await rows(asked)).length > 0);
  await tx.commit();
  await sending;
  expect(await order(rows, "k-0")).toEqual(["m-0", "concurrent"]);
});

test("messages published while a window is sent again keep the order of their keys", async () => {
  const { again, settle, rows, write } = await setup();
  await write(...numbered(60));
  await settle();
  let isOver = false;
  const publishing = [0, 1, 2].map(async (key) => {
    for (let n = 0; !isOver; n++) await write({ message: { id: `new-${key}-${n}`, key: `k-${key}` } });
  });
  await again({ pageSize: 5, to: new Date() });
  isOver = true;
  await Promise.all(publishing);
  for (const key of [0, 1, 2]) {
    const found = await order(rows, `k-${key}`);
    const old = Array.from({ length: 20 }, (_, n) => `m-${n * 3 + key}`);
    const fresh = Array.from({ length: found.length - 20 }, (_, n) => `new-${key}-${n}`);
    expect(found).toEqual([...old, ...fresh]);
  }
});
