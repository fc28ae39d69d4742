import { expect, onTestFinished, test } from "vitest";
import { claimOn, outgoing, relays, until } from "../../test/support/relays.ts";
import type { LaneRow } from "./lane-row.ts";
import { laneSettings } from "./options.ts";
import { LaneOwnership } from "./ownership.ts";
import { LaneReader } from "./reader.ts";
import { LANES } from "./share.ts";

/** A reader that owns all lanes and moves only when it is told to. */
async function setup() {
  const house = await relays();
  const { database, observer } = house;
  const ownership = new LaneOwnership({
    database,
    schema: "sagabox",
    scope: 0,
    scopeName: "outbox",
    worker: "w",
    settings: laneSettings({ lease: 3_600_000 }),
    observer,
  });
  const reader = new LaneReader({
    schema: "sagabox",
    table: "outbox",
    messages: true,
    ownership,
    ageingMs: 60_000,
  });
  const session = await database.session("reader", { enable_hashjoin: "off", enable_mergejoin: "off" });
  onTestFinished(async () => {
    await ownership.stop();
    session.release();
  });
  await ownership.start();
  await until(() => ownership.size === LANES);
  const fetch = async (limit = 100, readers = 1): Promise<LaneRow[]> => {
    reader.sweep();
    return reader.fetch(session, limit, readers);
  };
  const ids = async (limit?: number): Promise<string[]> => (await fetch(limit)).map((row) => row.messageId);
  /** Deletes the rows as a settle would, and tells the reader. */
  const settle = async (rows: readonly LaneRow[]): Promise<void> => {
    const reads = reader.reads();
    const { rows: answer } = await house.pool.query<{ xid: string }>(
      `with gone as (delete from sagabox.outbox where seq = any($1::bigint[])) select pg_current_xact_id()::text as xid`,
      [rows.map((row) => row.seq)],
    );
    reader.settled(rows, { value: answer[0]?.xid ?? "0", reads });
  };
  return { ...house, ownership, reader, fetch, ids, settle };
}

/** Messages of keys that share one lane. */
function neighbours(count: number): string[] {
  const { lane } = outgoing({ key: "n0" });
  const keys: string[] = [];
  for (let n = 0; keys.length < count; n++) if (outgoing({ key: `n${n}` }).lane === lane) keys.push(`n${n}`);
  return keys;
}

test("rule 6: a row that commits long after its successors were read and settled is still found", async () => {
  const { database, writer, publish, fetch, ids, settle } = await setup();
  const [late = "", other = ""] = neighbours(2);
  const slow = await database.begin();
  await writer.write(slow, [outgoing({ id: "late", key: late })]);
  for (let round = 0; round < 6; round++) {
    await publish(outgoing({ key: other }));
    const rows = await fetch();
    expect(rows).toHaveLength(1);
    await settle(rows);
  }
  await slow.commit();
  expect(await ids()).toEqual(["late"]);
});

test("rule 6: with no writer under way the mark moves up, so that a scan leaves the dead entries behind", async () => {
  const marks = await moveTheMark(await setup());
  // It stays behind the row that was settled last.
  expect(marks.at(-1)).toBeLessThanOrEqual(marks.length - 2);
});

test("rule 6: rows that commit late are all found when one read cannot hold them", async () => {
  const { database, writer, publish, fetch, settle } = await setup();
  const keys = neighbours(6);
  const slow = await database.begin();
  await writer.write(
    slow,
    keys.slice(1).map((key) => outgoing({ id: key, key })),
  );
  await publish(outgoing({ id: "quick", key: keys[0] ?? "" }));
  await settle(await fetch());
  await slow.commit();
  const found: string[] = [];
  for (let round = 0; round < 12; round++) {
    const some = await fetch(2);
    found.push(...some.map((row) => row.messageId));
    await settle(some);
  }
  expect(found).toEqual(keys.slice(1));
});

test("rule 6: a mark that passes the successors of what is in flight does not forget them", async () => {
  const { publish, ids, fetch, settle } = await setup();
  await publish(outgoing({ id: "1", key: "k" }));
  const first = await fetch();
  await publish(outgoing({ id: "2", key: "k" }));
  // A lane with something in flight is left alone for a moment; only then is it read past its busy streams.
  await new Promise((resolve) => setTimeout(resolve, 120));
  for (let round = 0; round < 4; round++) {
    expect(await fetch()).toEqual([]);
    await settle([]);
  }
  await settle(first);
  expect(await ids()).toEqual(["2"]);
});

test("rule 6: the first message of a fresh database is found, however long the reader has waited for it", async () => {
  const { publish, ids, fetch, settle, rows } = await setup();
  for (let round = 0; round < 4; round++) {
    await fetch();
    await settle([]);
  }
  await publish(outgoing({ id: "first" }));
  expect(await rows("select seq from sagabox.outbox")).toEqual([{ seq: "1" }]);
  expect(await ids()).toEqual(["first"]);
});

test("rule 6: after a failed read everything is read from its beginning: a crashed server may draw a seq twice", async () => {
  const house = await setup();
  const { publish, ids, fetch, database, pool } = house;
  await moveTheMark(house);
  database.failOnce("sagabox.outbox.fetch");
  await expect(fetch()).rejects.toThrow("the connection was lost");
  await pool.query("select setval('sagabox.outbox_seq', 1, false)");
  await publish(outgoing({ id: "again", key: "k" }));
  expect(await ids()).toEqual(["again"]);
});

test("rule 6: a new lease starts from the beginning", async () => {
  const house = await setup();
  const { publish, ids, ownership, pool } = house;
  await moveTheMark(house);
  await pool.query("select setval('sagabox.outbox_seq', 1, false)");
  await publish(outgoing({ id: "low", key: "k" }));
  expect(await ids()).toEqual([]);
  ownership.lose([claimOn(ownership, outgoing({ key: "k" }).lane)]);
  await pool.query("update sagabox.relay_lane set owner = null, token = null where lane = $1", [
    outgoing({ key: "k" }).lane,
  ]);
  ownership.wake();
  await until(() => ownership.size === LANES);
  expect(await ids()).toEqual(["low"]);
});

test("rule 7: what settles while a read is under way is not handed out again by that read", async () => {
  const { publish, fetch, settle, database, reader } = await setup();
  // The urgent one makes the later one wait, so the stream is read again from its head at once.
  await publish(
    outgoing({ id: "1", key: "k" }),
    outgoing({ id: "2", key: "k", priority: 9 }),
    outgoing({ id: "3", key: "k" }),
  );
  const first = await fetch();
  expect(first.map((row) => row.messageId)).toEqual(["1"]);
  const gate = database.pauseAfter("sagabox.outbox.reenter");
  const reading = fetch();
  await gate.reached;
  await settle(first);
  gate.open();
  const second = (await reading).map((row) => row.messageId);
  expect(second).not.toContain("1");
  reader.recheck([first[0]?.lane ?? 0]);
  expect([...second, ...(await fetch()).map((row) => row.messageId)]).toEqual(["2", "3"]);
});

test("a lane lost while it was being read hands out nothing of that read", async () => {
  const { publish, fetch, database, ownership, reader } = await setup();
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "1", key: "k" }));
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  ownership.lose([claimOn(ownership, lane)]);
  gate.open();
  expect(await reading).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("a lane lost while others were being read hands out nothing that was taken before", async () => {
  const { publish, fetch, database, ownership, reader } = await setup();
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "1", key: "k" }));
  reader.back(await fetch(), 0);
  const gate = database.pauseAfter("sagabox.outbox.fetch"); // which comes after the statement for what is due again
  const reading = fetch();
  await gate.reached;
  expect(reader.inFlight).toBe(1);
  ownership.lose([claimOn(ownership, lane)]);
  gate.open();
  expect(await reading).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("a lane lost while others were being read hands out nothing of a low priority that was read before", async () => {
  const { publish, fetch, settle, database, ownership, reader } = await setup();
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "high", key: "other", priority: 9 }));
  await fetch(); // tells that there are other priorities
  await settle(await fetch());
  await publish(outgoing({ id: "low", key: "k", priority: 1 }));
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  ownership.lose([claimOn(ownership, lane)]);
  gate.open();
  expect(await reading).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("what is due again is never more than was asked for", async () => {
  const { publish, fetch, reader } = await setup();
  const keys = ["a", "b"];
  await publish(...keys.flatMap((key) => ["1", "2"].map((n) => outgoing({ id: key + n, key }))));
  reader.back(await fetch(), 0);
  const first = (await fetch(3)).map((row) => row.messageId);
  expect(first.length).toBeLessThanOrEqual(3);
  expect(first).toContain("a1");
});

test("rows given back are handed out again in order, after their time", async () => {
  const { publish, fetch, ids, reader } = await setup();
  await publish(...["1", "2", "3"].map((id) => outgoing({ id, key: "k" })));
  const rows = await fetch();
  reader.back(rows.toReversed(), 30);
  expect(await ids()).toEqual([]);
  await until(() => reader.hungry);
  await until(() => reader.nextDueMs() === 0);
  expect(await ids()).toEqual(["1", "2", "3"]);
});

test("what was due again is not left in flight when the read behind it fails", async () => {
  const { publish, fetch, ids, reader, database } = await setup();
  await publish(outgoing({ id: "m-1", key: "k" }));
  reader.back(await fetch(), 0);
  await publish(outgoing({ id: "m-2", key: "other" }));
  database.failOnce("sagabox.outbox.fetch"); // which comes after the statement for what is due again
  await expect(fetch()).rejects.toThrow("the connection was lost");
  expect((await ids()).toSorted()).toEqual(["m-1", "m-2"]);
});

/** Publishes and settles until a read begins behind the first row; answers where each read began. */
async function moveTheMark(house: Awaited<ReturnType<typeof setup>>): Promise<number[]> {
  const { publish, fetch, settle, database } = house;
  const marks: number[] = [];
  // A transaction of another test may be open in the same cluster; the mark moves when it has ended.
  await until(async () => {
    await publish(outgoing({ key: "k" }));
    database.once("sagabox.outbox.fetch", (run, params) => {
      marks.push(Math.max(...String(params[1]).slice(1, -1).split(",").map(Number)));
      return run();
    });
    await settle(await fetch());
    return (marks.at(-1) ?? 0) > 0;
  });
  return marks;
}

test("messages of every size come with their rows, also from one read", async () => {
  const { publish, fetch } = await setup();
  const texts = [10, 8_000, 9_000, 200_000, 20, 8_192].map((length, n) => `"${n}${"x".repeat(length)}"`);
  await publish(...texts.map((data, n) => outgoing({ id: `m${n}`, key: `k${n}`, data })));
  const rows = await fetch();
  const byId = new Map(rows.map((row) => [row.messageId, row.message?.data]));
  expect(texts.map((_, n) => byId.get(`m${n}`))).toEqual(texts);
});

test("two reads at once share the lanes: each row comes once, those of a key in their order", async () => {
  const { publish, fetch, settle } = await setup();
  const keys = Array.from({ length: 30 }, (_, n) => `k${n}`);
  for (const turn of [1, 2, 3]) {
    await publish(...keys.map((key) => outgoing({ id: `${key}.${turn}`, key })));
  }
  const seen = new Map<string, string[]>();
  for (let round = 0; round < 20; round++) {
    const both = await Promise.all([fetch(7, 2), fetch(7, 2)]);
    const [first, second] = both.map((rows) => new Set(rows.map((row) => row.lane)));
    expect([...(first ?? [])].filter((lane) => second?.has(lane))).toEqual([]);
    for (const { messageId, message } of both.flat()) {
      const key = message?.key ?? "";
      seen.set(key, [...(seen.get(key) ?? []), messageId]);
    }
    await settle(both.flat());
  }
  expect(seen).toEqual(new Map([...seen.keys()].map((key) => [key, [`${key}.1`, `${key}.2`, `${key}.3`]])));
  expect([...seen.keys()].toSorted()).toEqual(keys.toSorted());
});

test("what waited is looked for when no other read is under way, and found", async () => {
  const { publish, fetch, settle, reader } = await setup();
  await publish(...["a", "b", "c", "d"].map((key) => outgoing({ id: key, key })));
  const first = await fetch();
  reader.back(first, 0);
  await publish(outgoing({ id: "e", key: "e" }));
  const found = (await Promise.all([fetch(100, 2), fetch(100, 2)])).flat();
  expect(found.map((row) => row.messageId).toSorted()).toEqual(["a", "b", "c", "d", "e"]);
  await settle(found);
});
