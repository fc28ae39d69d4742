import { expect, test } from "vitest";
import {
  anOutgoing,
  outboxDatabase,
  outgoing,
  relays,
  until,
  type Relays,
} from "../../../test/support/relays.ts";
import { ensurePartitions } from "./history.ts";
import { countRepublish, cutPages, republish, type RepublishOptions } from "./republish.ts";

const HOUR_MS = 3_600_000;

async function setup() {
  const parts = await outboxDatabase();
  const { database, rows } = parts;
  await ensurePartitions(database, "sagabox");
  const everything = { from: new Date(Date.now() - HOUR_MS), to: new Date(Date.now() + HOUR_MS) };
  const again = (options: Partial<RepublishOptions> = {}) =>
    republish(database, "sagabox", { ...everything, ...options });
  const count = (options: Partial<RepublishOptions> = {}) =>
    countRepublish(database, "sagabox", { ...everything, ...options });
  const settle = () => rows("delete from sagabox.outbox");
  const waiting = async () =>
    (await rows<{ id: string }>("select message_id as id from sagabox.outbox order by seq")).map(
      ({ id }) => id,
    );
  return { ...parts, again, count, settle, waiting };
}

const numbered = (count: number, more = {}) =>
  Array.from({ length: count }, (_, n) => ({ message: { id: `m-${n}`, key: `k-${n % 3}`, ...more } }));
/** Ids of the key `k-<key>` among `count` messages, in the order in which they were written. */
const idsOf = (key: number, count: number) =>
  Array.from({ length: count }, (_, n) => n)
    .filter((n) => n % 3 === key)
    .map((n) => `m-${n}`);

test("A15: messages of a time window are sent again, with their ids and in the order of each key", async () => {
  const { again, settle, rows, write } = await setup();
  for (const one of numbered(25)) await write(one);
  const stored =
    "select message_id, lane, stream, topic, written_on from sagabox.outbox order by stream, outbox.seq";
  const before = await rows(stored);
  await settle();
  expect(await again({ pageSize: 10 })).toMatchObject({ count: 25, finished: true });
  expect(await rows(stored)).toEqual(before);
});

test("A15: waiting messages and dead letters are not sent again", async () => {
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

test("A15: only messages of the window and the topic are sent again", async () => {
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

test("A15: it can be aborted between two keys, reports its progress, and continues from there", async () => {
  const { again, count, settle, rows, write } = await setup();
  await write(...numbered(30));
  await settle();
  const stop = new AbortController();
  const counts: number[] = [];
  const first = await again({
    pageSize: 5,
    signal: stop.signal,
    onProgress: (progress) => {
      counts.push(progress.count);
      if (progress.count === 20) stop.abort();
    },
  });
  expect(counts).toEqual([10, 20]);
  expect(first).toMatchObject({ count: 20, finished: false });
  expect(await count({ after: first.after })).toBe(10);
  expect(await again({ pageSize: 5, after: first.after })).toMatchObject({ count: 10, finished: true });
  for (const key of [0, 1, 2]) expect(await order(rows, `k-${key}`)).toEqual(idsOf(key, 30));
});

test("messages without a key are sent again page by page, each once", async () => {
  const { again, settle, waiting, write } = await setup();
  await write(...Array.from({ length: 30 }, (_, n) => ({ message: { id: `m-${n}`, key: null } })));
  await settle();
  const counts: number[] = [];
  await again({ pageSize: 4, onProgress: ({ count }) => void counts.push(count) });
  expect(counts).toEqual([4, 8, 12, 16, 20, 24, 28, 30]);
  const sent = await waiting();
  expect(new Set(sent).size).toBe(30);
  expect(sent).toHaveLength(30);
});

test("A15: a rate spreads the keys over time", async () => {
  const { again, settle, write } = await setup();
  await write(...numbered(30));
  await settle();
  const began = performance.now();
  await again({ pageSize: 5, ratePerSecond: 200 });
  expect(performance.now() - began).toBeGreaterThan(140);
});

test("A15: a window before the start of the archive, or a missing one, is refused", async () => {
  const { again, waiting } = await setup();
  const from = new Date(Date.now() - 40 * 24 * HOUR_MS);
  await expect(again({ from, retentionMs: 30 * 24 * HOUR_MS })).rejects.toThrow(
    "is before the start of the archive",
  );
  await expect(again({ from: new Date("2026-01-02"), to: new Date("2026-01-01") })).rejects.toMatchObject({
    code: "OPTIONS_INVALID",
  });
  await expect(again({ after: "yesterday" })).rejects.toThrow("republish.after");
  await expect(again({ pagesize: 5 } as never)).rejects.toMatchObject({ code: "OPTIONS_UNKNOWN_KEY" });
  expect(await waiting()).toEqual([]);
});

test("a page holds whole keys, and the last key of a full list is left to the next list", () => {
  const listed = "aaabbcdddd".split("").map((position, n) => ({ id: `${n}`, day: "2026-01-01", position }));
  const cut = (pageSize: number, listSize: number) =>
    cutPages(listed.slice(0, listSize), { pageSize, listSize }).map(
      ({ messages, last, isCut }) => `${messages.map(({ position }) => position).join("")} ${last} ${isCut}`,
    );
  expect(cut(5, 11)).toEqual(["aaabb b false", "cdddd d false"]);
  expect(cut(2, 11)).toEqual(["aaa a false", "bb b false", "c c false", "dddd d false"]);
  expect(cut(5, 10)).toEqual(["aaabb b false", "c c false"]);
  expect(cut(2, 3)).toEqual(["aaa a true"]);
});

/** Ids of one key, in the order in which they will be sent. */
const order = async (rows: Awaited<ReturnType<typeof setup>>["rows"], key: string): Promise<string[]> =>
  (
    await rows<{ id: string }>(
      `select message_id as id from sagabox.outbox
         join sagabox.message on message.id = outbox.message_id and message.written_on = outbox.written_on
        where message.key = $1 order by outbox.seq`,
      [key],
    )
  ).map(({ id }) => id);

test("republished messages come before newer waiting ones of their key", async () => {
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

test("a message that its writer is sending keeps its position", async () => {
  const { again, settle, rows, write } = await setup();
  await write(...numbered(3));
  await settle();
  await write({ message: { id: "leased", key: "k-0" } }, { message: { id: "behind", key: "k-0" } });
  await rows(`begin; set local session_replication_role = replica;
    update sagabox.outbox set lease_until = now() + interval '1 hour' where message_id = 'leased'; commit`);
  await again();
  expect(await order(rows, "k-0")).toEqual(["leased", "m-0", "behind"]);
});

test("a message in an open transaction comes after republished ones", async () => {
  const { again, settle, rows, write, database, writer } = await setup();
  await write(...numbered(3));
  await settle();
  const tx = await database.begin();
  await writer.write(tx, [anOutgoing({ message: { id: "concurrent", key: "k-0" } })]);
  const sending = again();
  const blocked = "select 1 from pg_locks where relation = 'sagabox.outbox'::regclass and not granted";
  await until(async () => (await rows(blocked)).length > 0);
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

test("the rows of a key that wait are numbered anew once, however many messages of the key are sent again", async () => {
  const { again, settle, rows, write } = await setup();
  const old = (n: number) => ({ message: { id: `old-${n}`, key: "k" } });
  await write(...Array.from({ length: 200 }, (_, n) => old(n)));
  await settle();
  await write(...Array.from({ length: 50 }, (_, n) => ({ message: { id: `new-${n}`, key: "k" } })));
  const drawn = async () =>
    Number((await rows<{ n: string }>("select last_value as n from sagabox.outbox_seq"))[0]?.n);
  const before = await drawn();
  // 200 is more than a list of 40 pages, so the ids of this key are not listed.
  expect(await again({ pageSize: 2 })).toMatchObject({ count: 200, finished: true });
  expect((await drawn()) - before).toBe(250);
  const expected = [
    ...Array.from({ length: 200 }, (_, n) => `old-${n}`),
    ...Array.from({ length: 50 }, (_, n) => `new-${n}`),
  ];
  expect(await order(rows, "k")).toEqual(expected);
  expect(await again({ pageSize: 2 })).toMatchObject({ count: 0, finished: true });
  expect((await drawn()) - before).toBe(250);
});

test("messages of one key that are sent again type by type keep their order", async () => {
  const { again, settle, rows, write } = await setup();
  const types = ["a", "b", "a", "b", "a"];
  await write(...types.map((type, n) => ({ message: { id: `m-${n}`, key: "k", type } })));
  await settle();
  await write({ message: { id: "newer", key: "k" } });
  await again({ type: "b" });
  await again({ type: "a" });
  expect(await order(rows, "k")).toEqual(["m-0", "m-1", "m-2", "m-3", "m-4", "newer"]);
});

test("two republishes of one window at once send each message again once", async () => {
  const { again, settle, rows, write } = await setup();
  await write(...numbered(60));
  await settle();
  await write(...[0, 1, 2].map((key) => ({ message: { id: `newer-${key}`, key: `k-${key}` } })));
  const to = new Date();
  const results = await Promise.all([again({ pageSize: 5, to }), again({ pageSize: 5, to })]);
  expect(results.map(({ count }) => count).reduce((sum, n) => sum + n, 0)).toBe(60);
  for (const key of [0, 1, 2])
    expect(await order(rows, `k-${key}`)).toEqual([...idsOf(key, 60), `newer-${key}`]);
});

const window = () => ({ from: new Date(Date.now() - HOUR_MS), to: new Date(Date.now() + HOUR_MS) });
const sentBy = ({ transport }: Relays) => transport.published.map(({ id }) => id);

test("a relay that sends everything between two pages sends no newer message before an old one of its key", async () => {
  const stage = await relays();
  await ensurePartitions(stage.database, "sagabox");
  const keys = ["a", "b", "c"];
  const old = (key: string) => Array.from({ length: 12 }, (_, n) => `old-${key}-${n}`);
  const fresh = (key: string) => Array.from({ length: 4 }, (_, n) => `new-${key}-${n}`);
  const write = (ids: (key: string) => string[]) =>
    stage.publish(...keys.flatMap((key) => ids(key).map((id) => outgoing({ id, key }))));
  await write(old);
  await stage.rows("delete from sagabox.outbox");
  const options = { ...window(), to: new Date(), pageSize: 5 };
  await write(fresh);
  const relay = stage.relay();
  for (let after: string | undefined, finished = false; !finished;) {
    const stop = new AbortController();
    const more = after === undefined ? options : { ...options, after };
    const onProgress = () => stop.abort();
    const result = await republish(stage.database, "sagabox", { ...more, signal: stop.signal, onProgress });
    ({ after, finished } = result);
    // A key whose turn has not come is sent by the relay as it is: its newer messages were never held back.
    await relay.start();
    await stage.drained();
    await relay.stop();
  }
  for (const key of keys) {
    const sent = sentBy(stage).filter((id) => id.includes(`-${key}-`));
    const from = sent.indexOf(`old-${key}-0`);
    expect(sent.slice(from, from + 12)).toEqual(old(key));
  }
  // The key that came first was waiting when it was placed.
  const [first = ""] = sentBy(stage).filter((id) => id.startsWith("old-"));
  const key = first.split("-")[1] ?? "";
  expect(sentBy(stage).filter((id) => id.includes(`-${key}-`))).toEqual([...old(key), ...fresh(key)]);
});

test("while relays and publishers run, nothing comes between the old messages of a key", async () => {
  const stage = await relays();
  await ensurePartitions(stage.database, "sagabox");
  const keys = ["a", "b", "c", "d"];
  const old = (key: string) => Array.from({ length: 60 }, (_, n) => `old-${key}-${n}`);
  await stage.publish(...keys.flatMap((key) => old(key).map((id) => outgoing({ id, key }))));
  await stage.rows("delete from sagabox.outbox");
  const to = new Date();
  const relay = stage.relay({ batchSize: 10 });
  await relay.start();
  const { send } = stage.optimistic();
  let isOver = false;
  const publishing = keys.map(async (key) => {
    for (let n = 0; !isOver; n++) await send(outgoing({ id: `new-${key}-${n}`, key }));
  });
  await until(() => sentBy(stage).length > 20);
  const result = await republish(stage.database, "sagabox", { ...window(), to, pageSize: 10 });
  isOver = true;
  await Promise.all(publishing);
  expect(result).toMatchObject({ count: 240, finished: true });
  await stage.drained();
  for (const key of keys) {
    const sent = sentBy(stage).filter((id) => id.includes(`-${key}-`));
    const from = sent.indexOf(`old-${key}-0`);
    expect(sent.slice(from, from + 60)).toEqual(old(key));
  }
});

test("a process that dies leaves each key whole or untouched, and a second run completes the window", async () => {
  const { again, settle, rows, write, pool } = await setup();
  await write(...numbered(30));
  await settle();
  const ended = again({
    pageSize: 5,
    onProgress: ({ count }) => {
      if (count === 20) throw new Error("killed");
    },
  });
  await expect(ended).rejects.toThrow("killed");
  const upTo =
    "select after->>'upTo' as at from sagabox.audit_log where outcome = 'done' order by id desc limit 1";
  const [last] = (await pool.query<{ at: string }>(upTo)).rows;
  expect(await rows("select 1 from sagabox.outbox")).toHaveLength(20);
  expect(await again({ pageSize: 5, after: last?.at ?? "" })).toMatchObject({ count: 10, finished: true });
  expect(await again({ pageSize: 5 })).toMatchObject({ count: 0, finished: true });
  for (const key of [0, 1, 2]) expect(await order(rows, `k-${key}`)).toEqual(idsOf(key, 30));
});

test("while it waits for maintenance of the table, publishers do not wait, and its error names the session", async () => {
  const { settle, rows, write, pool, database } = await setup();
  await write(...numbered(3));
  await settle();
  const vacuum = await pool.connect();
  try {
    await vacuum.query("set application_name = 'maintenance'");
    await vacuum.query("begin; lock table sagabox.outbox in share update exclusive mode");
    const [{ pid } = { pid: 0 }] = (await vacuum.query<{ pid: number }>("select pg_backend_pid() as pid"))
      .rows;
    const limits = { maintenanceMs: 2_000, writersMs: 100, giveUpMs: 0 };
    const blocked = republish(database, "sagabox", window(), limits);
    const failure = expect(blocked).rejects.toMatchObject({
      code: "STORAGE_UNAVAILABLE",
      message: expect.stringContaining(`blocked by: pid ${pid} (maintenance)`),
    });
    const waits = "select 1 from pg_locks where relation = 'sagabox.outbox'::regclass and not granted";
    await until(async () => (await rows(waits)).length > 0);
    await write({ message: { id: "meanwhile", key: "k-0" } });
    await failure;
  } finally {
    await vacuum.query("rollback");
    vacuum.release();
  }
  expect((await republish(database, "sagabox", { ...window(), type: "none" })).finished).toBe(true);
});
