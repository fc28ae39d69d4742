import { expect, test } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { postgres } from "../transports/postgres/index.ts";
import type { PollingRelay } from "./polling-relay.ts";

const soon = { retry: { firstDelay: 300, maxDelay: 300 } };

test("rule 4: a failing head holds back only its key, which then continues in order", async () => {
  const harness = await relays();
  let failures = 0;
  harness.transport.answer = ({ id }) => (id === "a1" && failures++ < 2 ? "rejected" : "published");
  const keys = ["a1", "b1", "a2", "b2", "a3", "b3"];
  await harness.publish(...keys.map((id) => outgoing({ id, key: id.slice(0, 1) })));
  await harness.relay(soon).start();
  await harness.drained();
  const ids = harness.transport.ids;
  expect(ids.filter((id) => id.startsWith("a"))).toEqual(["a1", "a2", "a3"]);
  expect(ids.indexOf("b3")).toBeLessThan(ids.indexOf("a1"));
  expect(failures).toBe(3);
});

test("rule 4: messages behind a failing head wait and arrive in order", async () => {
  const harness = await relays();
  let healed = false;
  harness.transport.answer = ({ key }) => (key === "k" && !healed ? "rejected" : "published");
  await harness.publish(outgoing({ id: "0", key: "k", maxAttempts: 1_000 }));
  await harness.relay({ retry: { firstDelay: 20, maxDelay: 20 } }).start();
  await harness.observer.until("relay.failed");
  for (let n = 1; n < 40; n++)
    await harness.publish(outgoing({ id: String(n), key: "k" }), outgoing({ key: `o${n}` }));
  await until(() => harness.transport.published.length === 39);
  expect(new Set(harness.transport.calls.flat().map(({ key, id }) => (key === "k" ? id : "0")))).toEqual(
    new Set(["0"]),
  );
  healed = true;
  await harness.drained();
  const inKey = harness.transport.published.filter(({ key }) => key === "k").map(({ id }) => Number(id));
  expect(inKey).toEqual(Array.from({ length: 40 }, (_, n) => n));
});

test("rule 4: the same key on two topics is two streams", async () => {
  const harness = await relays();
  harness.transport.answer = ({ topic }) => (topic === "broken" ? "rejected" : "published");
  await harness.publish(
    outgoing({ id: "1", key: "k", topic: "broken" }),
    outgoing({ id: "2", key: "k", topic: "fine" }),
  );
  await harness.relay(soon).start();
  await until(() => harness.transport.ids.length === 1);
  expect(harness.transport.ids).toEqual(["2"]);
});

test("rule 8: no two messages of a key are ever unconfirmed together", async () => {
  const harness = await relays();
  const open = new Set<string>();
  const together: string[] = [];
  const publish = harness.transport.publish.bind(harness.transport);
  harness.transport.publish = async (batch) => {
    for (const { key } of batch) {
      if (open.has(key ?? "")) together.push(key ?? "");
      open.add(key ?? "");
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
    const outcomes = await publish(batch);
    for (const { key } of batch) open.delete(key ?? "");
    return outcomes;
  };
  for (let round = 0; round < 4; round++) {
    await harness.publish(
      ...Array.from({ length: 60 }, (_, n) => outgoing({ id: `${round}-${n}`, key: `k${n % 7}` })),
    );
  }
  await harness.relay({ batchSize: 50 }).start();
  await harness.drained();
  expect([together, new Set(harness.transport.ids).size, harness.transport.ids.length]).toEqual([
    [],
    240,
    240,
  ]);
});

const LEASE = /^sagabox\.lanes\.(join|look|renew|acquire|release|leave|reap)$/;

/** Statements of the relay per batch, without empty reads and lease renewals. */
async function statementsPerBatch(harness: Relays, relay: PollingRelay): Promise<number> {
  for (let part = 0; part < 4; part++) {
    await harness.publish(...Array.from({ length: 500 }, () => outgoing()));
  }
  harness.database.ran.length = 0;
  await relay.start();
  await harness.drained();
  const once = /set_config|\.session\./; // when a connection is opened
  const ran = harness.database.ran.filter(
    ({ purpose, name }) => purpose !== "pool" && !once.test(name) && !LEASE.test(name),
  );
  const looks = ran.filter(({ name }) => name === "sagabox.outbox.fetch").length;
  const batches = harness.observer.of("relay.batch").length;
  expect(batches).toBeLessThan(30);
  return (ran.length - looks + harness.observer.of("relay.fetched").length) / batches;
}

test("rule 3: with the Postgres transport a batch takes two statements: a read and a settle", async () => {
  const harness = await relays();
  const { database, observer } = harness;
  const transport = postgres();
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  expect(await statementsPerBatch(harness, harness.relay({ batchSize: 200, hop, transport }))).toBe(2);
  await transport.close();
});

test("rule 3: with a broker a batch takes two statements: a read and a settle", async () => {
  const harness = await relays();
  expect(await statementsPerBatch(harness, harness.relay({ batchSize: 200 }))).toBe(2);
  expect(harness.transport.ids).toHaveLength(2_000);
});

test("a graceful stop under load sends nothing twice and releases all lanes", async () => {
  const harness = await relays();
  harness.transport.before = () => new Promise((resolve) => setTimeout(resolve, 3));
  for (let turn = 0; turn < 4; turn++) {
    await harness.publish(
      ...Array.from({ length: 300 }, (_, n) => outgoing({ id: `${turn}.${n}`, key: `k${n % 30}` })),
    );
    const relay = harness.relay({ worker: `w${turn}`, batchSize: 40 });
    await relay.start();
    await until(() => harness.transport.ids.length > turn * 150 + 50);
    await relay.stop();
    expect(relay.inFlight).toBe(0);
    expect(await harness.rows("select 1 from sagabox.relay_lane where owner is not null")).toEqual([]);
    expect(await harness.rows("select 1 from sagabox.member")).toEqual([]);
  }
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toHaveLength(1_200);
  expect(new Set(harness.transport.ids).size).toBe(1_200);
});
