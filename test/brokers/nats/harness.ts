import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { inject, onTestFinished } from "vitest";
import type { NatsOptions } from "../../../src/transports/nats/index.ts";
import { nats } from "../../../src/transports/nats/index.ts";
import type {
  Consumption,
  Delivery,
  PublishOutcome,
  Subscription,
  Transport,
} from "../../../src/transport/index.ts";
import type { Message } from "../../../src/message/index.ts";
import { startNATS, type NatsServerOptions } from "../../support/brokers/nats-server.ts";
import type { BrokerServer } from "../../support/brokers/broker-server.ts";

const found = inject("nats");

/** True where there is no server to test with; the run says so by itself. */
export const missing = "missing" in found;
/** The server of the whole run. */
export const sharedUrl = "url" in found ? found.url : "";

/** The raw client, to look at what is there. */
export async function connectClient(url = sharedUrl) {
  const nc = await connect({ servers: url.replace("nats://", "") });
  onTestFinished(() => nc.close());
  return { js: jetstream(nc), jsm: await jetstreamManager(nc) };
}

let count = 0;
/** A prefix of its own keeps a test from all others. */
export const newPrefix = (): string => `t${process.pid}_${++count}`;

/** A server for one test, that may be killed. */
export async function ownServer(wishes: NatsServerOptions = {}): Promise<BrokerServer> {
  const started = await startNATS(wishes);
  if ("missing" in started) throw new Error(started.missing);
  onTestFinished(() => started.server.stop());
  return started.server;
}

export function createTransport(options: NatsOptions): Transport {
  const transport = nats(options);
  onTestFinished(() => transport.close());
  return transport;
}

export async function openTransport(options: NatsOptions): Promise<Transport> {
  const transport = createTransport(options);
  await transport.open();
  return transport;
}

export function publish(
  transport: Transport,
  ...batch: readonly Message[]
): Promise<readonly PublishOutcome[]> {
  return transport.publish(batch, { signal: AbortSignal.timeout(30_000) });
}

export interface Member {
  readonly received: Delivery[];
  readonly consumption: Consumption;
  /** Resolves when this many deliveries satisfy the condition. */
  until(count: number, condition?: (delivery: Delivery) => boolean): Promise<Delivery[]>;
}

export async function member(
  transport: Transport,
  wishes: Partial<Subscription> & {
    readonly topic: string;
    readonly receive?: (delivery: Delivery) => unknown;
  },
): Promise<Member> {
  const { topic, receive, ...change } = wishes;
  const received: Delivery[] = [];
  const wake = new Set<() => void>();
  const consumption = await transport.subscribe(
    {
      group: "group",
      service: "test",
      worker: "w",
      prefetch: 10,
      ordered: true,
      topics: [{ topic, kind: "event", from: "now" }],
      ...change,
    },
    (delivery) => {
      received.push(delivery);
      receive?.(delivery);
      for (const go of wake) go();
    },
  );
  const until: Member["until"] = async (most, condition = () => true) => {
    const matching = (): Delivery[] => received.filter(condition);
    while (matching().length < most) {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          wake.delete(go);
          resolve();
        };
        wake.add(go);
      });
    }
    return matching();
  };
  return { received, consumption, until };
}

export const ids = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);

/** Looks again and again; a test that never sees it ends by its own time limit. */
export async function eventually(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 20));
}
