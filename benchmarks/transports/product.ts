import type { BrokerKind } from "../../test/support/brokers/broker-server.ts";
import { brokerTransport } from "../../test/support/brokers/broker-transport.ts";
import type { Delivery, Subscription, Transport } from "../../src/transport/index.ts";
import type { Bench } from "../harness/bench.ts";
import { RunningBus } from "../product/running-bus.ts";
import { PaceMeter } from "./pace-meter.ts";

/** A relay that publishes to the broker, and a group of its own that reads there. */
export async function openProduct(bench: Bench, kind: BrokerKind, url: string, prefetch: number) {
  const reader = brokerTransport(kind, url);
  await reader.open();
  // A broker with queues has none before the first subscription.
  await receive(reader, 0, prefetch);
  const place = await bench.server.database(kind);
  const running = new RunningBus({
    database: place.pool(20),
    transport: brokerTransport(kind, url),
    outbox: { optimistic: false },
  });
  await running.start();
  return {
    /** Events per second from the commit of a backlog until all of it is confirmed and settled. */
    async drain(count: number): Promise<number> {
      await place.admin.query("vacuum analyze sagabox.outbox");
      return running.drain(count);
    },
    /** Messages per second, each acknowledged at once. */
    consume: (count: number) => receive(reader, count, prefetch),
    async close(): Promise<void> {
      await running.stop();
      await reader.close();
      await place.drop();
    },
  };
}

/** A group whose members keep the order of each key. */
export function createSubscription(prefetch: number): Subscription {
  return {
    group: "billing",
    topics: [{ topic: "events.order.placed", kind: "event", from: "beginning" }],
    prefetch,
    worker: "bench",
    service: "bench",
    ordered: true,
  };
}

async function receive(transport: Transport, count: number, prefetch: number): Promise<number> {
  const meter = new PaceMeter(count);
  let left = count;
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const settle = async (delivery: Delivery): Promise<void> => {
    meter.one();
    await delivery.ack();
    if (--left === 0) end();
  };
  const consumption = await transport.subscribe(
    createSubscription(prefetch),
    (delivery) => void settle(delivery),
  );
  if (count > 0) await ended;
  await consumption.close();
  return meter.rate;
}
