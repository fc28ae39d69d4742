import { expect, onTestFinished, test } from "vitest";
import { aMessage } from "../../test/support/messages.ts";
import { parkingHarness } from "../../test/support/parking.ts";
import { seededRandom } from "../../test/support/random-data.ts";
import { MemoryTransport } from "../testing/index.ts";
import type { Delivery, Transport } from "../transport/index.ts";

const { signal } = new AbortController();

async function setup() {
  const broker = new MemoryTransport();
  const made = await parkingHarness(() => Promise.resolve(broker));
  onTestFinished(made.close);
  return { ...made, broker };
}

function member(transport: Transport, receive: (delivery: Delivery) => unknown, prefetch = 10) {
  return transport.subscribe(
    {
      group: "books",
      topics: [{ topic: "orders", kind: "event", from: "now" }],
      prefetch,
      worker: "w",
      service: "s",
      ordered: true,
    },
    receive,
  );
}

const order = (id: string, key: string | null) => aMessage({ id, key, topic: "orders" });

test("E2, rule 18: a failed message and its successors leave the broker at once, and other keys flow", async () => {
  const { transport, broker, pool } = await setup();
  const seen: string[] = [];
  await member(transport, async (delivery) => {
    seen.push(`${delivery.message.id}#${delivery.attempt}`);
    if (delivery.message.id === "a1" && delivery.attempt === 1) {
      await delivery.retry({ delayMs: 60_000, countsAsAttempt: true, error: "no" });
    } else await delivery.ack();
  });
  await broker.publish([order("a1", "a")], { signal });
  await expect.poll(() => seen, { timeout: 20_000 }).toContain("a1#1");
  await broker.publish([order("a2", "a"), order("b1", "b"), order("a3", "a"), order("free", null)], {
    signal,
  });
  await expect.poll(() => [...seen].sort(), { timeout: 20_000 }).toEqual(["a1#1", "b1#1", "free#1"]);
  const parked = async () =>
    (
      await pool.query<{ message_id: string; attempts: number; last_error: string | null }>(
        "select message_id, attempts, last_error from sagabox.queue order by seq",
      )
    ).rows;
  await expect.poll(parked, { timeout: 20_000 }).toEqual([
    { message_id: "a1", attempts: 1, last_error: "no" },
    { message_id: "a2", attempts: 0, last_error: null },
    { message_id: "a3", attempts: 0, last_error: null },
  ]);
  await expect.poll(() => broker.backlog("books"), { timeout: 20_000 }).toBe(0);
});

test("E2, rule 18: a copy that comes again while the first one is parked waits there once", async () => {
  const { transport, broker, pool } = await setup();
  let first = true;
  await member(transport, async (delivery) => {
    if (!first) return delivery.ack();
    first = false;
    return delivery.retry({ delayMs: 60_000, countsAsAttempt: true, error: "no" });
  });
  await broker.publish([order("a1", "a")], { signal });
  const parked = async () => (await pool.query("select message_id from sagabox.queue")).rows;
  await expect.poll(parked, { timeout: 20_000 }).toHaveLength(1);
  await broker.publish([order("a1", "a"), order("a2", "a")], { signal });
  await expect.poll(parked, { timeout: 20_000 }).toHaveLength(2);
});

test("rule 18: order per key holds over three members while one delivery in three fails", async () => {
  const { transport, another, broker } = await setup();
  const random = seededRandom(7);
  const done = new Map<string, number[]>();
  let settled = 0;
  const work = async (delivery: Delivery): Promise<void> => {
    const { key, id } = delivery.message;
    await new Promise((resolve) => setTimeout(resolve, random() * 3));
    if (delivery.attempt < 4 && random() < 0.33) {
      await delivery.retry({ delayMs: random() * 20, countsAsAttempt: true, error: "scripted failure" });
      return;
    }
    done.set(key ?? "", [...(done.get(key ?? "") ?? []), Number(id.split("-")[1])]);
    settled += 1;
    await delivery.ack();
  };
  for (let n = 0; n < 3; n++) await member(n === 0 ? transport : await another(), work, 1);
  for (let n = 0; n < 25; n++) {
    await broker.publish(
      Array.from({ length: 12 }, (_, k) => order(`k${k}-${n}`, `k${k}`)),
      { signal },
    );
  }
  await expect.poll(() => settled, { timeout: 25_000 }).toBe(300);
  for (const numbers of done.values()) expect(numbers).toEqual(Array.from({ length: 25 }, (_, n) => n));
});
