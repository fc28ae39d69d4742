import { expect, test } from "vitest";
import { ClockAhead, laneReader } from "../../test/support/lanes.ts";
import { claimOn, outgoing, until } from "../../test/support/relays.ts";
import { systemClock } from "../runtime/index.ts";
import { LANES } from "./statements.ts";

/** Builds messages with keys of one lane. */
function neighbours(count: number): string[] {
  const { lane } = outgoing({ key: "n0" });
  const keys: string[] = [];
  for (let n = 0; keys.length < count; n++) if (outgoing({ key: `n${n}` }).lane === lane) keys.push(`n${n}`);
  return keys;
}

/** Publishes and settles until a read starts after the first row; returns where each read started. */
async function moveTheMark(harness: Awaited<ReturnType<typeof laneReader>>): Promise<number[]> {
  const { publish, fetch, settle, database } = harness;
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

test("rule 6: a row that commits long after later rows were settled is still found", async () => {
  const { database, writer, publish, fetch, ids, settle } = await laneReader();
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

test("rule 6: without open writers the mark moves up, so that scans skip dead index entries", async () => {
  const marks = await moveTheMark(await laneReader());
  // The mark stays below the row that was settled last.
  expect(marks.at(-1)).toBeLessThanOrEqual(marks.length - 2);
});

test("rule 6: rows that commit late are all found if one read cannot return them all", async () => {
  const { database, writer, publish, fetch, settle } = await laneReader();
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

test("rule 6: a mark that passes later rows of a stream in flight does not lose them", async () => {
  const { database, publish, ids, fetch, settle } = await laneReader();
  await publish(outgoing({ id: "1", key: "k" }));
  const first = await fetch();
  await publish(outgoing({ id: "2", key: "k" }));
  // A busy lane is not read for 100 ms; then it is read past its busy streams. A transaction of another test may be
  // open in the same cluster; the mark moves when it has ended.
  let mark = 0;
  await until(async () => {
    database.once("sagabox.outbox.fetch", (run, [lanes, marks]) => {
      const [inLanes = [], from = []] = [lanes, marks].map((list) =>
        String(list).slice(1, -1).split(",").map(Number),
      );
      mark = from[inLanes.indexOf(first[0]?.lane ?? -1)] ?? 0;
      return run();
    });
    expect(await fetch()).toEqual([]);
    await settle([]);
    return mark >= 2;
  });
  await settle(first);
  expect(await ids()).toEqual(["2"]);
});

test("lanes that a read did not reach keep their rows in flight out of later reads", async () => {
  const clock = new ClockAhead();
  const { publish, fetch, settle, reader } = await laneReader(clock);
  await publish(outgoing({ key: "slow" }));
  const slow = await fetch();
  await publish(
    ...["a", "b", "c"].map((key) => outgoing({ id: key, key })),
    outgoing({ id: "next", key: "slow" }),
  );
  clock.advance(120); // from now on its lane is read past the rows in flight
  await settle(await fetch(1));
  expect(reader.held).toBe(0);
  await settle(await fetch());
  expect(reader.held).toBe(1);
  await settle(slow);
  expect((await fetch()).map((row) => row.messageId)).toEqual(["next"]);
});

test("rule 6: the first message of a new database is found, however long the reader has waited", async () => {
  const { publish, ids, fetch, settle, rows } = await laneReader();
  for (let round = 0; round < 4; round++) {
    await fetch();
    await settle([]);
  }
  await publish(outgoing({ id: "first" }));
  expect(await rows("select seq from sagabox.outbox")).toEqual([{ seq: "1" }]);
  expect(await ids()).toEqual(["first"]);
});

test("rule 6: after a failed read every lane is read from 0, because a crashed server may draw a seq twice", async () => {
  const harness = await laneReader();
  const { publish, ids, fetch, database, pool } = harness;
  await moveTheMark(harness);
  database.failOnce("sagabox.outbox.fetch");
  await expect(fetch()).rejects.toThrow("the connection was lost");
  await pool.query("select setval('sagabox.outbox_seq', 1, false)");
  await publish(outgoing({ id: "again", key: "k" }));
  expect(await ids()).toEqual(["again"]);
});

test("rule 6: a new claim starts from 0", async () => {
  const harness = await laneReader();
  const { publish, ids, ownership, pool } = harness;
  await moveTheMark(harness);
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

test("held rows that are due stay within the limit", async () => {
  const { publish, fetch, reader } = await laneReader();
  const keys = ["a", "b"];
  await publish(...keys.flatMap((key) => ["1", "2"].map((n) => outgoing({ id: key + n, key }))));
  reader.putBack(await fetch(), 0);
  const first = (await fetch(3)).map((row) => row.messageId);
  expect(first.length).toBeLessThanOrEqual(3);
  expect(first).toContain("a1");
});

test("rows that were put back are returned again in order, after their delay", async () => {
  const { publish, fetch, ids, reader } = await laneReader();
  await publish(...["1", "2", "3"].map((id) => outgoing({ id, key: "k" })));
  const rows = await fetch();
  reader.putBack(rows.toReversed(), 30);
  expect(await ids()).toEqual([]);
  await until(() => reader.hasWork);
  await until(() => reader.nextDueMs() === 0);
  expect(await ids()).toEqual(["1", "2", "3"]);
});

test("messages of every size are returned with their rows, also from one read", async () => {
  const { publish, fetch } = await laneReader();
  const texts = [10, 8_000, 9_000, 200_000, 20, 8_192].map((length, n) => `"${n}${"x".repeat(length)}"`);
  await publish(...texts.map((data, n) => outgoing({ id: `m${n}`, key: `k${n}`, data })));
  const rows = await fetch();
  const byId = new Map(rows.map((row) => [row.messageId, row.message?.data]));
  expect(texts.map((_, n) => byId.get(`m${n}`))).toEqual(texts);
});

test.each([-3, -1, 1, 3])(
  "A18: with clocks %i days apart, the first messages are fetched separately and later ones with their rows",
  async (days) => {
    const clock = { ...systemClock, wallMs: () => systemClock.wallMs() + days * 86_400_000 };
    const { database, publish, fetch, settle, reader } = await laneReader(clock);
    let apart = 0;
    for (const id of ["first", "second", "third"]) {
      await publish(outgoing({ id, key: "k" }));
      database.once("sagabox.lanes.messages", (run) => {
        apart += 1;
        return run();
      });
      const rows = await fetch();
      expect(rows.map(({ message }) => message?.id)).toEqual([id]);
      expect(reader.hasLargeMessages).toBe(false);
      await settle(rows);
    }
    expect(apart).toBe(1);
  },
);
