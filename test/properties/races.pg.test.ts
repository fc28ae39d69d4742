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
function firsts(harness: Relays, key: string): string[] {
  return [
    ...new Set(harness.transport.published.filter((message) => message.key === key).map(({ id }) => id)),
  ];
}

const inKey = (key: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${key}-${n}`);

async function publishSteadily(harness: Relays, keys: readonly string[], count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    await harness.publish(...keys.map((key) => outgoing({ id: `${key}-${n}`, key })));
    if (n % 4 === 0) await pause(5);
  }
}

test.each([1, 2, 3, 4, 5, 6])(
  "members whose statements stall, fail or lose their answers at random: nothing lost, no key inverted (seed %i)",
  { timeout: 60_000 },
  async (seed) => {
    const harness = await relays({ poolSize: 40 });
    const random = seededRandom(seed);
    const keys = ["a", "b", "c", "d", "e", "f"];
    const members = ["m1", "m2", "m3"].map((worker) => ({ worker, database: harness.fresh() }));
    for (const { worker, database } of members) {
      await harness.relay({ worker, database, leaseMs: 1_000, batchSize: 8 }).start();
    }
    const writing = publishSteadily(harness, keys, 60);
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
    await harness.drained();
    for (const key of keys) expect(firsts(harness, key)).toEqual(inKey(key, 60));
  },
);

test("a take-over between read and settle: the old owner's settle does nothing, the new one sends what is left", async () => {
  const harness = await relays();
  const old = harness.fresh();
  const settling = old.pauseBefore("sagabox.outbox.sent");
  await harness.publish(outgoing({ id: "k-0", key: "k" }));
  const first = harness.relay({ worker: "old", database: old, leaseMs: 1_000 });
  await first.start();
  await settling.reached;
  old.silence();
  await harness.relay({ worker: "new", database: harness.fresh(), leaseMs: 1_000 }).start();
  await until(() => harness.transport.ids.length === 2);
  await harness.drained();
  await harness.publish(outgoing({ id: "k-1", key: "k" }));
  await harness.drained();
  old.speak();
  settling.open();
  await until(() => first.ownedLanes === 128);
  expect(firsts(harness, "k")).toEqual(["k-0", "k-1"]);
  expect(await harness.rows("select distinct relay from sagabox.receipt")).toEqual([{ relay: "new" }]);
});

test("a release whose answer is late: the lane never has two owners, and nothing is sent twice", async () => {
  const harness = await relays();
  const giver = harness.fresh();
  const first = harness.relay({ worker: "giver", database: giver });
  await first.start();
  await until(() => first.ownedLanes === 256);
  const releasing = giver.pauseAfter("sagabox.lanes.release");
  const second = harness.relay({ worker: "taker", database: harness.fresh() });
  await second.start();
  await releasing.reached;
  await until(() => second.ownedLanes > 0);
  await publishSteadily(harness, ["a", "b", "c", "d", "e", "f", "g", "h"], 10);
  await harness.drained();
  releasing.open();
  await until(() => first.ownedLanes === 128 && second.ownedLanes === 128);
  expect(harness.transport.ids).toHaveLength(80);
  expect(new Set(harness.transport.ids).size).toBe(80);
});

test("a lane given up while it is being read: what the read found is left to the next owner", async () => {
  const harness = await relays();
  const reading = harness.fresh();
  const first = harness.relay({ worker: "reader", database: reading });
  await first.start();
  await until(() => first.ownedLanes === 256);
  const gate = reading.pauseAfter("sagabox.outbox.fetch");
  await gate.reached;
  await harness.publish(...inKey("k", 5).map((id) => outgoing({ id, key: "k" })));
  await harness.relay({ worker: "next", database: harness.fresh() }).start();
  await until(() => first.ownedLanes === 128);
  gate.open();
  await harness.drained();
  expect(harness.transport.ids).toEqual(inKey("k", 5));
});

test("an optimistic sender and a relay on the same key: each message goes once, in order, from either of them", async () => {
  const harness = await relays();
  harness.transport.before = () => pause(1);
  const { send } = harness.optimistic();
  const relaying = harness.fresh();
  await harness.relay({ database: relaying }).start();
  for (let n = 0; n < 60; n++) {
    const message = outgoing({ id: `k-${n}`, key: "k" });
    if (n % 7 === 3) await harness.publish(message);
    else await send(message);
    if (n % 3 === 0) {
      const gate = relaying.pauseAfter(n % 2 === 0 ? "sagabox.outbox.fetch" : "sagabox.outbox.reenter");
      void gate.reached.then(() => setTimeout(() => gate.open(), 10));
    }
    await pause(n % 5);
  }
  await harness.drained();
  expect(harness.transport.ids).toEqual(inKey("k", 60));
});

test("an optimistic send that is released while a relay reads: sent once more at most, and in order", async () => {
  const harness = await relays();
  harness.transport.answer = () => (harness.transport.calls.length === 1 ? "rejected" : "published");
  const { send } = harness.optimistic();
  const releasing = harness.database.pauseAfter("sagabox.outbox.release_leased");
  await send(outgoing({ id: "k-0", key: "k" }), outgoing({ id: "k-1", key: "k" }));
  await releasing.reached;
  await harness.relay({ database: harness.fresh() }).start();
  await harness.publish(outgoing({ id: "k-2", key: "k" }));
  await harness.drained();
  releasing.open();
  expect(harness.transport.ids).toEqual(["k-0", "k-1", "k-2"]);
});
