import { expect, test } from "vitest";
import { ClockAhead, laneReader } from "../../test/support/lanes.ts";
import { claimOn, outgoing } from "../../test/support/relays.ts";

/** Runs a read and loses the lane after its last statement has returned, before the result is processed. */
async function readAndLose(
  { database, fetch, ownership }: Awaited<ReturnType<typeof laneReader>>,
  lane: number,
  before: () => void = () => undefined,
): Promise<readonly unknown[]> {
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  before();
  ownership.lose([claimOn(ownership, lane)]);
  gate.open();
  return reading;
}

test("rule 7: a row that settles during a read is not returned by that read", async () => {
  const { publish, fetch, settle, database, reader } = await laneReader();
  // The urgent row makes the later one wait, so the stream is read again from its first row at once.
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

test("rule 6: later rows that a read left out are found if the row before them settles during the read", async () => {
  const clock = new ClockAhead();
  const { publish, fetch, settle, database } = await laneReader(clock);
  await publish(outgoing({ id: "1", key: "k" }));
  const first = await fetch();
  await publish(outgoing({ id: "2", key: "k" }));
  clock.advance(120); // a busy lane is not read for 100 ms
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  await settle(first);
  gate.open();
  expect(await reading).toEqual([]);
  expect((await fetch()).map((row) => row.messageId)).toEqual(["2"]);
});

test("a lane lost during its read returns nothing of that read", async () => {
  const harness = await laneReader();
  const { publish, reader } = harness;
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "1", key: "k" }));
  expect(await readAndLose(harness, lane)).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("a lane lost while others were read returns nothing that was taken before", async () => {
  const harness = await laneReader();
  const { publish, fetch, reader } = harness;
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "1", key: "k" }));
  reader.putBack(await fetch(), 0);
  const inFlight: number[] = [];
  expect(await readAndLose(harness, lane, () => inFlight.push(reader.inFlight))).toEqual([]);
  expect([...inFlight, reader.inFlight]).toEqual([1, 0]);
});

test("a lane lost while others were read returns no low-priority row that was read before", async () => {
  const harness = await laneReader();
  const { publish, fetch, settle, reader } = harness;
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "high", key: "other", priority: 9 }));
  await fetch(); // finds out that there are other priorities
  await settle(await fetch());
  await publish(outgoing({ id: "low", key: "k", priority: 1 }));
  expect(await readAndLose(harness, lane)).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("a hint that arrives during the read of its lane is kept", async () => {
  const { publish, fetch, database, reader } = await laneReader();
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  const late = outgoing({ id: "late", key: "k" });
  await publish(late);
  reader.hint([late.lane]);
  gate.open();
  expect(await reading).toEqual([]);
  expect(reader.hasWork).toBe(true);
  expect((await fetch()).map((row) => row.messageId)).toEqual(["late"]);
  expect(reader.hasWork).toBe(false);
});

test("held rows that were taken are put back if the next statement of the read fails", async () => {
  const { publish, fetch, ids, reader, database } = await laneReader();
  await publish(outgoing({ id: "m-1", key: "k" }));
  reader.putBack(await fetch(), 0);
  await publish(outgoing({ id: "m-2", key: "other" }));
  database.failOnce("sagabox.outbox.fetch"); // the statement after the one for held rows
  await expect(fetch()).rejects.toThrow("the connection was lost");
  expect((await ids()).toSorted()).toEqual(["m-1", "m-2"]);
});

test("two concurrent reads share the lanes: each row is returned once, in order per key", async () => {
  const { publish, fetch, settle } = await laneReader();
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

test("held rows are read when no other read runs", async () => {
  const { publish, fetch, settle, reader } = await laneReader();
  await publish(...["a", "b", "c", "d"].map((key) => outgoing({ id: key, key })));
  const first = await fetch();
  reader.putBack(first, 0);
  await publish(outgoing({ id: "e", key: "e" }));
  const found = (await Promise.all([fetch(100, 2), fetch(100, 2)])).flat();
  expect(found.map((row) => row.messageId).toSorted()).toEqual(["a", "b", "c", "d", "e"]);
  await settle(found);
});
