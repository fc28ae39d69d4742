import { startBroker, type BrokerKind, type BrokerServer } from "../../test/support/brokers/broker-server.ts";
import { toWire } from "../../src/transport/index.ts";
import { size, type Bench } from "../harness/bench.ts";
import { compare } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { orderMessage } from "../product/order-message.ts";
import { Guide } from "../references/guide.ts";
import { SketchRelay } from "../references/sketch-relay.ts";
import { PaceMeter } from "./pace-meter.ts";
import { openProduct } from "./product.ts";
import type { RawClient, RawMessage } from "./raw-client.ts";
import { rawClient } from "./raw-clients.ts";

const IN_FLIGHT = 500;

const servers = new Set<BrokerServer>();

/** Stops the brokers that still run, so that none outlives this process. */
export async function stopBrokers(): Promise<void> {
  const running = [...servers];
  servers.clear();
  await Promise.all(running.map((server) => server.stop()));
}

/** The product on a real broker, there and back, against the broker's own client doing the same confirmed work. */
export async function broker(bench: Bench, kind: BrokerKind): Promise<Result[]> {
  const found = await startBroker(kind);
  if ("missing" in found) {
    bench.leaveOut(`P3.${kind}`, found.missing);
    return [];
  }
  servers.add(found.server);
  bench.say(`P3.${kind}: ${found.server.version}`);
  try {
    return await measure(bench, kind, found.server);
  } finally {
    await stopBrokers();
  }
}

async function measure(bench: Bench, kind: BrokerKind, { url, version }: BrokerServer): Promise<Result[]> {
  const count = size(bench, 10_000, 4_000);
  const slowCount = size(bench, 2_000, 1_000);
  const product = await openProduct(bench, kind, url, IN_FLIGHT);
  const raw = await rawClient(kind, url, "raw", "same");
  const bare = await rawClient(kind, url, "bare", "bare");
  const guideClient = await rawClient(kind, url, "guide", "same");
  const guidePlace = await bench.server.database("guide");
  const guide = await Guide.open(guidePlace, ({ id, key, payload }) =>
    guideClient.publishOne({ id, key, body: Buffer.from(JSON.stringify(payload)) }),
  );
  const sketchClient = await rawClient(kind, url, "sketch", "same");
  const sketchPlace = await bench.server.database("sketch");
  const sketch = await SketchRelay.open(sketchPlace, "wide", (rows) =>
    sketchClient.prepare(
      rows.map(({ event_id: id, key, payload }) => ({ id, key, body: Buffer.from(payload) })),
      IN_FLIGHT,
    )(),
  );
  // What was published is taken away at once, so that the next one finds the broker as empty as the one before.
  const consumed = { product: [] as number[], raw: [] as number[] };
  const samples = await compare(bench, `P3.${kind}, events/s`, {
    sagabox: async ({ warmUp }) => {
      const rate = await product.drain(count);
      const back = await product.consume(count);
      if (!warmUp) consumed.product.push(back);
      return rate;
    },
    raw: async ({ warmUp, round }) => {
      const rate = await publishRate(raw, rawMessages(round, count));
      const meter = new PaceMeter(count);
      await raw.consume(count, IN_FLIGHT, meter.one);
      if (!warmUp) consumed.raw.push(meter.rate);
      return rate;
    },
    bare: async ({ round }) => {
      const rate = await publishRate(bare, rawMessages(round, count));
      await bare.empty();
      return rate;
    },
    guide: async () => {
      const rate = await guide.drain(slowCount);
      await guideClient.empty();
      return rate;
    },
    sketch: async () => {
      const rate = await sketch.drain(count);
      await sketchClient.empty();
      return rate;
    },
  });
  for (const open of [product, raw, bare, guideClient, sketchClient]) await open.close();
  for (const place of [guidePlace, sketchPlace]) await place.drop();
  const rates = {
    "events/s": median(samples.sagabox),
    "raw events/s": median(samples.raw),
    broker: version,
  };
  const bareRate = { "bare events/s": median(samples.bare) };
  const guideRate = { "guide events/s": median(samples.guide) };
  const back = { "messages/s": median(consumed.product), "raw messages/s": median(consumed.raw) };
  const { sagabox, sketch: least } = samples;
  return [
    result(`P3.${kind}`, computeRatio(sagabox, samples.raw), rates, computeRatio(least, samples.raw)),
    result(`P3.${kind}.bare`, computeRatio(sagabox, samples.bare), bareRate),
    result(
      `P3.${kind}.guide`,
      computeRatio(sagabox, samples.guide),
      guideRate,
      computeRatio(least, samples.guide),
    ),
    result(`P3.${kind}.consume`, computeRatio(consumed.product, consumed.raw), back),
  ];
}

async function publishRate(raw: RawClient, messages: readonly RawMessage[]): Promise<number> {
  const publish = raw.prepare(messages, IN_FLIGHT);
  const began = performance.now();
  await publish();
  return (messages.length / (performance.now() - began)) * 1000;
}

/** The bodies that the product sends, envelope and all; ids differ from round to round, since a broker may know them. */
function rawMessages(round: number, count: number): RawMessage[] {
  return Array.from({ length: count }, (_, n) => {
    const message = orderMessage(n);
    return { id: `${round}-${message.id}`, key: message.key ?? "", body: toWire(message).body };
  });
}
