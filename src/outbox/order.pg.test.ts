import { expect, test } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { postgres } from "../transports/postgres/index.ts";
import type { PollingRelay } from "./polling-relay.ts";

const soon = { retry: { firstDelay: 300, maxDelay: 300 } };

test("rule 4: a failing head holds its own key back and nobody else, then its key goes on in order", async () => {
  const house = await relays();
  let failures = 0;
  house.transport.answer = ({ id }) => (id === "a1" && failures++ < 2 ? "rejected" : "published");
  const keys = ["a1", "b1", "a2", "b2", "a3", "b3"];
  await house.publish(...keys.map((id) => outgoing({ id, key: id.slice(0, 1) })));
  await house.relay(soon).start();
  await house.drained();
  const ids = house.transport.ids;
  expect(ids.filter((id) => id.startsWith("a"))).toEqual(["a1", "a2", "a3"]);
  expect(ids.indexOf("b3")).toBeLessThan(ids.indexOf("a1"));
  expect(failures).toBe(3);
});

test("rule 4: what is written behind a failing head waits behind it, and arrives in order", async () => {
  const house = await relays();
  let healed = false;
  house.transport.answer = ({ key }) => (key === "k" && !healed ? "rejected" : "published");
  await house.publish(outgoing({ id: "0", key: "k", maxAttempts: 1_000 }));
  await house.relay({ retry: { firstDelay: 20, maxDelay: 20 } }).start();
  await house.observer.until("relay.failed");
  for (let n = 1; n < 40; n++)
    await house.publish(outgoing({ id: String(n), key: "k" }), outgoing({ key: `o${n}` }));
  await until(() => house.transport.published.length === 39);
  expect(new Set(house.transport.calls.flat().map(({ key, id }) => (key === "k" ? id : "0")))).toEqual(
    new Set(["0"]),
  );
  healed = true;
  await house.drained();
  const inKey = house.transport.published.filter(({ key }) => key === "k").map(({ id }) => Number(id));
  expect(inKey).toEqual(Array.from({ length: 40 }, (_, n) => n));
});

test("rule 4: the same key on two topics is two streams", async () => {
  const house = await relays();
  house.transport.answer = ({ topic }) => (topic === "broken" ? "rejected" : "published");
  await house.publish(
    outgoing({ id: "1", key: "k", topic: "broken" }),
    outgoing({ id: "2", key: "k", topic: "fine" }),
  );
  await house.relay(soon).start();
  await until(() => house.transport.ids.length === 1);
  expect(house.transport.ids).toEqual(["2"]);
});

test("rule 8: no two messages of a key are ever unconfirmed together", async () => {
  const house = await relays();
  const open = new Set<string>();
  const together: string[] = [];
  const publish = house.transport.publish.bind(house.transport);
  house.transport.publish = async (batch) => {
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
    await house.publish(
      ...Array.from({ length: 60 }, (_, n) => outgoing({ id: `${round}-${n}`, key: `k${n % 7}` })),
    );
  }
  await house.relay({ batchSize: 50 }).start();
  await house.drained();
  expect([together, new Set(house.transport.ids).size, house.transport.ids.length]).toEqual([[], 240, 240]);
});

const LEASE = /^sagabox\.lanes\.(join|look|renew|acquire|release|leave|reap)$/;

/** Every statement of the relay that was not spent on an empty look or on its lease, per batch. */
async function statementsPerBatch(house: Relays, relay: PollingRelay): Promise<number> {
  for (let part = 0; part < 4; part++) {
    await house.publish(...Array.from({ length: 500 }, () => outgoing()));
  }
  house.database.ran.length = 0;
  await relay.start();
  await house.drained();
  const once = /set_config|\.session\./; // when a connection is opened
  const ran = house.database.ran.filter(
    ({ purpose, name }) => purpose !== "pool" && !once.test(name) && !LEASE.test(name),
  );
  const looks = ran.filter(({ name }) => name === "sagabox.outbox.fetch").length;
  const batches = house.observer.of("relay.batch").length;
  expect(batches).toBeLessThan(30);
  return (ran.length - looks + house.observer.of("relay.fetched").length) / batches;
}

test("rule 3: where the database is the transport, two statements per batch: one reads it, one hands it over", async () => {
  const house = await relays();
  const { database, observer } = house;
  const transport = postgres();
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  expect(await statementsPerBatch(house, house.relay({ batchSize: 200, hop, transport }))).toBe(2);
  await transport.close();
});

test("rule 3: for a broker two statements per batch as well: one reads the rows and their messages, one settles", async () => {
  const house = await relays();
  expect(await statementsPerBatch(house, house.relay({ batchSize: 200 }))).toBe(2);
  expect(house.transport.ids).toHaveLength(2_000);
});

test("a graceful stop in the middle of the flow sends nothing twice and leaves nothing owned", async () => {
  const house = await relays();
  house.transport.before = () => new Promise((resolve) => setTimeout(resolve, 3));
  for (let turn = 0; turn < 4; turn++) {
    await house.publish(
      ...Array.from({ length: 300 }, (_, n) => outgoing({ id: `${turn}.${n}`, key: `k${n % 30}` })),
    );
    const relay = house.relay({ worker: `w${turn}`, batchSize: 40 });
    await relay.start();
    await until(() => house.transport.ids.length > turn * 150 + 50);
    await relay.stop();
    expect(relay.inFlight).toBe(0);
    expect(await house.rows("select 1 from sagabox.relay_lane where owner is not null")).toEqual([]);
    expect(await house.rows("select 1 from sagabox.member")).toEqual([]);
  }
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toHaveLength(1_200);
  expect(new Set(house.transport.ids).size).toBe(1_200);
});
