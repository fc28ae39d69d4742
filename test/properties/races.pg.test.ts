import { expect, test } from "vitest";
import { outgoing, relays, until, type Relays } from "../support/relays.ts";
import { seededRandom } from "../support/random-data.ts";

const STEPS = [
  "sagabox.outbox.fetch",
  "sagabox.outbox.reenter",
  "sagabox.outbox.sent",
  "sagabox.outbox.sent_in_place",
  "sagabox.outbox.failed",
  "sagabox.lanes.look",
  "sagabox.lanes.renew",
  "sagabox.lanes.acquire",
  "sagabox.lanes.release",
];

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** First appearance of each id, in order; a fault may repeat a message, never invert a key. */
function firsts(house: Relays, key: string): string[] {
  return [...new Set(house.transport.published.filter((message) => message.key === key).map(({ id }) => id))];
}

const inKey = (key: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${key}-${n}`);

async function publishSteadily(house: Relays, keys: readonly string[], count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    await house.publish(...keys.map((key) => outgoing({ id: `${key}-${n}`, key })));
    if (n % 4 === 0) await pause(5);
  }
}

test.each([1, 2, 3, 4, 5, 6])(
  "members whose statements stall, fail or lose their answers at random: nothing lost, no key inverted (seed %i)",
  { timeout: 60_000 },
  async (seed) => {
    const house = await relays({ poolSize: 40 });
    const random = seededRandom(seed);
    const keys = ["a", "b", "c", "d", "e", "f"];
    const members = ["m1", "m2", "m3"].map((worker) => ({ worker, database: house.fresh() }));
    for (const { worker, database } of members) {
      await house.relay({ worker, database, leaseMs: 1_000, batchSize: 8 }).start();
    }
    const writing = publishSteadily(house, keys, 60);
    for (let fault = 0; fault < 40; fault++) {
      const { database } = members[Math.floor(random() * members.length)] ?? {};
      const step = STEPS[Math.floor(random() * STEPS.length)] ?? "";
      const kind = random();
      if (kind < 0.3) database?.failOnce(step);
      else if (kind < 0.6) database?.loseReply(step);
      else {
        const gate = kind < 0.8 ? database?.pauseBefore(step) : database?.pauseAfter(step);
        // Some stall for longer than the lease: others take over, and the late statement must do no harm.
        setTimeout(() => gate?.open(), random() < 0.2 ? 1_300 : random() * 100);
      }
      await pause(random() * 60);
    }
    await writing;
    for (const { database } of members) database.letGo();
    await house.drained();
    for (const key of keys) expect(firsts(house, key)).toEqual(inKey(key, 60));
  },
);

test("a take-over between read and settle: the old owner's settle does nothing, the new one sends what is left", async () => {
  const house = await relays();
  const old = house.fresh();
  const settling = old.pauseBefore("sagabox.outbox.sent");
  await house.publish(outgoing({ id: "k-0", key: "k" }));
  const first = house.relay({ worker: "old", database: old, leaseMs: 1_000 });
  await first.start();
  await settling.reached;
  old.silence();
  await house.relay({ worker: "new", database: house.fresh(), leaseMs: 1_000 }).start();
  await until(() => house.transport.ids.length === 2);
  await house.drained();
  await house.publish(outgoing({ id: "k-1", key: "k" }));
  await house.drained();
  old.speak();
  settling.open();
  await until(() => first.ownedLanes === 128);
  expect(firsts(house, "k")).toEqual(["k-0", "k-1"]);
  expect(await house.rows("select distinct relay from sagabox.receipt")).toEqual([{ relay: "new" }]);
});

test("a release whose answer is late: nobody owns the lane twice, and nothing is sent twice", async () => {
  const house = await relays();
  const giver = house.fresh();
  const first = house.relay({ worker: "giver", database: giver });
  await first.start();
  await until(() => first.ownedLanes === 256);
  const releasing = giver.pauseAfter("sagabox.lanes.release");
  const second = house.relay({ worker: "taker", database: house.fresh() });
  await second.start();
  await releasing.reached;
  await until(() => second.ownedLanes > 0);
  await publishSteadily(house, ["a", "b", "c", "d", "e", "f", "g", "h"], 10);
  await house.drained();
  releasing.open();
  await until(() => first.ownedLanes === 128 && second.ownedLanes === 128);
  expect(house.transport.ids).toHaveLength(80);
  expect(new Set(house.transport.ids).size).toBe(80);
});

test("a lane given up while it is being read: what the read found is left to the next owner", async () => {
  const house = await relays();
  const reading = house.fresh();
  const first = house.relay({ worker: "reader", database: reading });
  await first.start();
  await until(() => first.ownedLanes === 256);
  const gate = reading.pauseAfter("sagabox.outbox.fetch");
  await gate.reached;
  await house.publish(...inKey("k", 5).map((id) => outgoing({ id, key: "k" })));
  await house.relay({ worker: "next", database: house.fresh() }).start();
  await until(() => first.ownedLanes === 128);
  gate.open();
  await house.drained();
  expect(house.transport.ids).toEqual(inKey("k", 5));
});

test("an optimistic sender and a relay on the same key: whoever sends, each message goes once, in order", async () => {
  const house = await relays();
  house.transport.before = () => pause(1);
  const { send } = house.optimistic();
  const relaying = house.fresh();
  await house.relay({ database: relaying }).start();
  for (let n = 0; n < 60; n++) {
    const message = outgoing({ id: `k-${n}`, key: "k" });
    if (n % 7 === 3) await house.publish(message);
    else await send(message);
    if (n % 3 === 0) {
      const gate = relaying.pauseAfter(n % 2 === 0 ? "sagabox.outbox.fetch" : "sagabox.outbox.reenter");
      void gate.reached.then(() => setTimeout(() => gate.open(), 10));
    }
    await pause(n % 5);
  }
  await house.drained();
  expect(house.transport.ids).toEqual(inKey("k", 60));
});

test("an optimistic send that is released while a relay reads: sent once more at most, and in order", async () => {
  const house = await relays();
  house.transport.answer = () => (house.transport.calls.length === 1 ? "rejected" : "published");
  const { send } = house.optimistic();
  const releasing = house.database.pauseAfter("sagabox.outbox.release_leased");
  await send(outgoing({ id: "k-0", key: "k" }), outgoing({ id: "k-1", key: "k" }));
  await releasing.reached;
  await house.relay({ database: house.fresh() }).start();
  await house.publish(outgoing({ id: "k-2", key: "k" }));
  await house.drained();
  releasing.open();
  expect(house.transport.ids).toEqual(["k-0", "k-1", "k-2"]);
});
