import { expect, test } from "vitest";
import { ClockAhead, laneReader } from "../../test/support/lane-reader.ts";
import { claimOn, outgoing } from "../../test/support/relays.ts";

/** Reads, and loses the lane after the last statement of that read was answered, before its answer is looked at. */
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

test("rule 7: what settles while a read is under way is not handed out again by that read", async () => {
  const { publish, fetch, settle, database, reader } = await laneReader();
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

test("rule 6: successors that a read left out are found when what was before them settles while it runs", async () => {
  const clock = new ClockAhead();
  const { publish, fetch, settle, database } = await laneReader(clock);
  await publish(outgoing({ id: "1", key: "k" }));
  const first = await fetch();
  await publish(outgoing({ id: "2", key: "k" }));
  clock.advance(120); // a busy lane is left alone for a moment
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  await settle(first);
  gate.open();
  expect(await reading).toEqual([]);
  expect((await fetch()).map((row) => row.messageId)).toEqual(["2"]);
});

test("a lane lost while it was being read hands out nothing of that read", async () => {
  const house = await laneReader();
  const { publish, reader } = house;
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "1", key: "k" }));
  expect(await readAndLose(house, lane)).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("a lane lost while others were being read hands out nothing that was taken before", async () => {
  const house = await laneReader();
  const { publish, fetch, reader } = house;
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "1", key: "k" }));
  reader.putBack(await fetch(), 0);
  const inFlight: number[] = [];
  expect(await readAndLose(house, lane, () => inFlight.push(reader.inFlight))).toEqual([]);
  expect([...inFlight, reader.inFlight]).toEqual([1, 0]);
});

test("a lane lost while others were being read hands out nothing of a low priority that was read before", async () => {
  const house = await laneReader();
  const { publish, fetch, settle, reader } = house;
  const { lane } = outgoing({ key: "k" });
  await publish(outgoing({ id: "high", key: "other", priority: 9 }));
  await fetch(); // tells that there are other priorities
  await settle(await fetch());
  await publish(outgoing({ id: "low", key: "k", priority: 1 }));
  expect(await readAndLose(house, lane)).toEqual([]);
  expect(reader.inFlight).toBe(0);
});

test("a hint that comes while its lane is being read is not taken for read", async () => {
  const { publish, fetch, database, reader } = await laneReader();
  const gate = database.pauseAfter("sagabox.outbox.fetch");
  const reading = fetch();
  await gate.reached;
  const late = outgoing({ id: "late", key: "k" });
  await publish(late);
  reader.hint([late.lane]);
  gate.open();
  expect(await reading).toEqual([]);
  expect(reader.hungry).toBe(true);
  expect((await fetch()).map((row) => row.messageId)).toEqual(["late"]);
  expect(reader.hungry).toBe(false);
});

test("what was due again is not left in flight when the read behind it fails", async () => {
  const { publish, fetch, ids, reader, database } = await laneReader();
  await publish(outgoing({ id: "m-1", key: "k" }));
  reader.putBack(await fetch(), 0);
  await publish(outgoing({ id: "m-2", key: "other" }));
  database.failOnce("sagabox.outbox.fetch"); // which comes after the statement for what is due again
  await expect(fetch()).rejects.toThrow("the connection was lost");
  expect((await ids()).toSorted()).toEqual(["m-1", "m-2"]);
});

test("two reads at once share the lanes: each row comes once, those of a key in their order", async () => {
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

test("what waited is looked for when no other read is under way, and found", async () => {
  const { publish, fetch, settle, reader } = await laneReader();
  await publish(...["a", "b", "c", "d"].map((key) => outgoing({ id: key, key })));
  const first = await fetch();
  reader.putBack(first, 0);
  await publish(outgoing({ id: "e", key: "e" }));
  const found = (await Promise.all([fetch(100, 2), fetch(100, 2)])).flat();
  expect(found.map((row) => row.messageId).toSorted()).toEqual(["a", "b", "c", "d", "e"]);
  await settle(found);
});
